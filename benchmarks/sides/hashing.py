"""What hashes rows of bronze, in one process and on one core: ``python -m … NAME FOLDER``, prints processor time."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.machine import ROOT
from consumer import row_hashes as in_python
from consumer.layers.bronze.ledger import MicroBatch
from consumer.layers.bronze.rows import Origins, bronze_rows
from consumer.layers.silver import content
from consumer.sources.envelope import Envelope
from lakeproof.contracts import Contract, load_contract
from lakeproof.judge.batch import Judge
from lakeproof.tables.schemas import bronze_schema
from reader.verify.tables.row_hash import row_hash_sql, sum_sql

Hash = Callable[[pa.RecordBatch], object]
_NOW = datetime(2026, 11, 21, tzinfo=UTC)


def main() -> None:
    """Hash the rows of all files, timed by the processor."""
    name, folder = sys.argv[1:]
    contract = load_contract(ROOT / "contracts", "events")
    rows = [batch for path in sorted(Path(folder).rglob("*.json")) for batch in _rows(contract, path)]
    hash_rows = HASHES[name](contract)
    for batch in rows[:5]:  # what is imported and compiled once does not count
        hash_rows(batch)
    began = time.process_time()
    for batch in rows:
        hash_rows(batch)
    seconds = time.process_time() - began
    print(json.dumps({"seconds": seconds, "units": sum(batch.num_rows for batch in rows)}))


def _rows(contract: Contract, path: Path) -> list[pa.RecordBatch]:
    micro_batch = MicroBatch(7, "checkpoint", contract, _NOW)
    origins = Origins.of_envelopes([Envelope(None, f"2026/11/21/08/{path.name}", _NOW)])
    judged = Judge(contract).judge(path.read_bytes())
    return [
        bronze_rows(each.good, origins.columns_of(None, len(each.good)), micro_batch) for each in judged if each.good
    ]


def _rows_in_python(contract: Contract) -> Hash:
    in_python.native_hashes = _nothing
    return lambda rows: in_python.row_hashes(rows, contract)


def _contents_in_python(contract: Contract) -> Hash:
    content.native_hashes = _nothing
    return lambda rows: content.content_hashes(rows, contract)


def _nothing(*_: Any) -> None:
    return None


def _in_duckdb(contract: Contract) -> Hash:
    connection = duckdb.connect(config={"threads": 1})
    sql = f"SELECT {sum_sql(row_hash_sql(bronze_schema(contract), contract, 'r'))} FROM rows AS r"

    def hash_rows(rows: pa.RecordBatch) -> object:
        connection.register("rows", pa.Table.from_batches([rows]))
        return connection.execute(sql).fetchall()

    return hash_rows


HASHES: dict[str, Callable[[Contract], Hash]] = {
    "rows-native": lambda contract: lambda rows: in_python.row_hashes(rows, contract),
    "rows-python": _rows_in_python,
    "rows-duckdb": _in_duckdb,
    "contents-native": lambda contract: lambda rows: content.content_hashes(rows, contract),
    "contents-python": _contents_in_python,
}


if __name__ == "__main__":
    main()
