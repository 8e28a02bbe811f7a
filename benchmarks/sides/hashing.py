"""Hash rows of bronze in one process on one core, and print processor time: ``python -m … NAME FOLDER``."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.machine import ROOT
from consumer import row_hashes
from consumer.layers.bronze.ledger import MicroBatch
from consumer.layers.bronze.rows import Origins, bronze_rows
from consumer.layers.silver import content
from consumer.sources.envelope import Envelope
from lakeproof.contracts import Contract, load_contract
from lakeproof.judge.batch import Judge
from lakeproof.tables.schemas import bronze_schema
from reader.verify.tables.row_hash import row_hash_sql, sum_sql

Hash = Callable[[list[pa.RecordBatch]], object]
_NOW = datetime(2026, 11, 21, tzinfo=UTC)


def main() -> None:
    """Hash the rows of all files; measure processor time."""
    name, folder = sys.argv[1:]
    contract = load_contract(ROOT / "contracts", "events")
    rows = [batch for path in sorted(Path(folder).rglob("*.json")) for batch in _rows(contract, path)]
    hash_rows = HASHES[name](contract)
    hash_rows(rows[:5])  # one-time imports and compilation do not count
    began = time.process_time()
    hash_rows(rows)
    seconds = time.process_time() - began
    print(json.dumps({"seconds": seconds, "units": sum(batch.num_rows for batch in rows)}))


def _rows(contract: Contract, path: Path) -> list[pa.RecordBatch]:
    micro_batch = MicroBatch(7, "checkpoint", contract, _NOW)
    origins = Origins.of_envelopes([Envelope(None, f"2026/11/21/08/{path.name}", _NOW)])
    judged = Judge(contract).judge(path.read_bytes())
    return [
        bronze_rows(each.good, origins.columns_of(None, len(each.good)), micro_batch) for each in judged if each.good
    ]


def _rows_hashed(contract: Contract, *, natively: bool) -> Hash:
    if not natively:
        row_hashes.native_hashes = _nothing
    return lambda rows: [row_hashes.row_hashes(batch, contract) for batch in rows]


def _contents_hashed(contract: Contract, *, natively: bool) -> Hash:
    if not natively:
        content.native_hashes = _nothing
    return lambda rows: [content.content_hashes(batch, contract) for batch in rows]


def _nothing(*_: Any) -> None:
    return None


def _in_duckdb(contract: Contract) -> Hash:
    connection = duckdb.connect(config={"threads": 1})
    sql = f"SELECT {sum_sql(row_hash_sql(bronze_schema(contract), contract, 'r'))} FROM rows AS r"

    def hash_rows(rows: list[pa.RecordBatch]) -> object:
        connection.register("rows", pa.Table.from_batches(rows))
        return connection.execute(sql).fetchall()

    return hash_rows


HASHES: dict[str, Callable[[Contract], Hash]] = {
    "rows-native": partial(_rows_hashed, natively=True),
    "rows-python": partial(_rows_hashed, natively=False),
    "rows-duckdb": _in_duckdb,
    "contents-native": partial(_contents_hashed, natively=True),
    "contents-python": partial(_contents_hashed, natively=False),
}


if __name__ == "__main__":
    main()
