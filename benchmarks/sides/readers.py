"""Read landed files in one process on one core, and print processor time: ``python -m … NAME FOLDER``."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import msgspec

from benchmarks.machine import ROOT
from lakeproof.contracts import load_contract
from lakeproof.install.judges import JudgeName
from lakeproof.judge.batch import Judge


def main() -> None:
    """Read all files; measure processor time."""
    name, folder = sys.argv[1:]
    batches = [path.read_bytes() for path in sorted(Path(folder).rglob("*.json"))]
    read = READERS[name]()
    read(batches[:5])  # one-time imports and compilation do not count
    began = time.process_time()
    units = read(batches)
    print(json.dumps({"seconds": time.process_time() - began, "units": units}))


def _judge(choice: JudgeName) -> Callable[[list[bytes]], int]:
    judge = Judge(load_contract(ROOT / "contracts", "events"), choice=choice)
    return lambda batches: sum(len(judged) for batch in batches for judged in judge.judge(batch))


def _parser(decode: Callable[[bytes], list[object]], error: type[Exception]) -> Callable[[list[bytes]], int]:
    def read(batches: list[bytes]) -> int:
        units = 0
        for batch in batches:
            try:
                units += len(decode(batch))
            except error:  # truncated file
                units += 1
        return units

    return read


def _duckdb() -> Callable[[list[bytes]], int]:
    connection = duckdb.connect(config={"threads": 1})
    columns = "{user_id: 'VARCHAR', event_id: 'VARCHAR', event_timestamp: 'VARCHAR', event_type: 'VARCHAR', \
product_id: 'VARCHAR', amount: 'VARCHAR', properties: 'JSON'}"

    def read(batches: list[bytes]) -> int:
        # DuckDB reads files only, and stops at a truncated one: these are omitted, and count as one unit each.
        sound = [path for path in _paths()[: len(batches)] if path.read_bytes().rstrip().endswith(b"]")]
        found = connection.execute(
            "SELECT count(*), max(hash(t)) FROM (SELECT * REPLACE (try_cast(event_timestamp AS TIMESTAMPTZ) AS "
            f"event_timestamp) FROM read_json($paths, format = 'array', columns = {columns})) t",
            {"paths": [str(path) for path in sound]},
        ).fetchall()
        return int(found[0][0]) + len(batches) - len(sound)

    return read


def _paths() -> list[Path]:
    return sorted(Path(sys.argv[2]).rglob("*.json"))


READERS: dict[str, Callable[[], Callable[[list[bytes]], int]]] = {
    "native": lambda: _judge("native"),
    "python": lambda: _judge("python"),
    "json": lambda: _parser(json.loads, ValueError),
    "msgspec": lambda: _parser(msgspec.json.Decoder().decode, msgspec.MsgspecError),
    "duckdb": _duckdb,
}


if __name__ == "__main__":
    main()
