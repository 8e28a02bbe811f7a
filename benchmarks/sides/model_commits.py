"""Commits to a table with increasing numbers of snapshots and of data files; then with a maintained history.

Run as a side: ``python -m benchmarks.sides.model_commits SNAPSHOTS...``: the last number is held out.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.flat_commits import timed, write_files
from benchmarks.flat_tables import QUERY, append_many, marker
from consumer.iceberg.append import OpenTable, append_once, open_table
from consumer.maintenance.maintain import maintain_table
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import load_settings
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_tables

STREAM = "events"
_WARM_UPS = 20
_APPENDS = 6
_DATA_FILES = (1, 8, 32, 96)
_AT_ONCE = 3


def main() -> None:
    """Append at each size; print samples."""
    sizes = [int(each) for each in sys.argv[1:]]
    settings = load_settings()
    spark = start_session(settings, "benchmark: commits", PLANNING_ONLY)
    ensure_tables(open_catalog(settings), load_contract(settings.contracts, STREAM))
    names = stream_tables(STREAM)
    samples: list[dict[str, Any]] = []
    of_several = open_table(spark, names.dead_letters, QUERY)
    for number, count in enumerate([1] * _WARM_UPS + [each for each in _DATA_FILES for _ in range(_AT_ONCE)]):
        files = [file for some in write_files(spark, settings, names.dead_letters, count) for file in some]
        took = timed(spark, lambda n=number, f=files: append_once(of_several, marker(n), f))
        if number >= _WARM_UPS:
            samples.append({"phase": "commit", "snapshots": number, "data_files": count, **took})
    table, number = open_table(spark, names.bronze, QUERY), 0
    for size in sizes:
        history = write_files(spark, settings, names.bronze, size - number)
        append_many(spark, names.bronze, [(marker(n), files) for n, files in enumerate(history, start=number)])
        number = size
        for files in write_files(spark, settings, names.bronze, _APPENDS):
            took = timed(spark, lambda n=number, f=files: append_once(table, marker(n), f))
            shape = {"snapshots": number, "data_files": 1, "held_out": size == sizes[-1]}
            samples.append({"phase": "commit", **shape, **took, "metadata_bytes": _metadata_bytes(table)})
            number += 1
    at_once = settings.maintenance.model_copy(update={"keep_hours": 1e-9})
    began = time.monotonic()
    maintained = maintain_table(spark, names.bronze, at_once, None)
    if maintained.problem:
        raise AssertionError(f"{names.bronze} was not maintained: {maintained}")
    samples.append({"phase": "maintain", "snapshots": number, "wall": time.monotonic() - began})
    table.loaded.refresh()
    for files in write_files(spark, settings, names.bronze, _APPENDS):
        took = timed(spark, lambda n=number, f=files: append_once(table, marker(n), f))
        samples.append({"phase": "commit, maintained", "snapshots": 1, "data_files": 1, **took})
        number += 1
    spark.stop()
    print(json.dumps({"samples": samples}))


def _metadata_bytes(table: OpenTable) -> int:
    location = str(table.loaded.operations().current().metadataFileLocation())
    return Path(location.removeprefix("file://").removeprefix("file:")).stat().st_size


if __name__ == "__main__":
    main()
