"""Cost of an append to a table with a given number of snapshots.

Run as a side: ``python -m benchmarks.flat_commits SNAPSHOTS [maintained] [gzip]``: optionally with a maintained
history, and with compressed metadata files.
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.flat_figures import percentile
from benchmarks.flat_tables import QUERY, append_many, marker
from consumer.iceberg import append
from consumer.iceberg.append import append_once, open_table
from consumer.iceberg.data_files import DataFile, DataFileWriter
from consumer.iceberg.jvm import java_class
from consumer.maintenance.maintain import maintain_table
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings, load_settings
from lakeproof.storage import open_storage
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_tables

_STREAM = "events"
_ROWS = 1_000
_WARM_UPS = 30
_APPENDS = 30
_STEPS = ("newest_marker", "_prepare", "_commit")


def main() -> None:
    """Warm up on another table, create the history, then append as the consumer does."""
    snapshots, options = int(sys.argv[1]), sys.argv[2:]
    settings = load_settings()
    spark = start_session(settings, "benchmark: commits", PLANNING_ONLY)
    ensure_tables(open_catalog(settings), load_contract(settings.contracts, _STREAM))
    names = stream_tables(_STREAM)
    timed_appends(spark, settings, names.dead_letters, 0, _WARM_UPS)
    history = write_files(spark, settings, names.bronze, snapshots)
    append_many(spark, names.bronze, [(marker(number), files) for number, files in enumerate(history)])
    figures: dict[str, float] = {}
    if "gzip" in options:
        open_table(spark, names.bronze, QUERY).set_property("write.metadata.compression-codec", "gzip")
    if "maintained" in options:
        at_once = settings.maintenance.model_copy(update={"keep_hours": 1e-9})
        began = time.perf_counter()
        maintained = maintain_table(spark, names.bronze, at_once, None)
        if maintained.problem or maintained.after.snapshots > 1:
            raise AssertionError(f"{names.bronze} was not maintained: {maintained}")
        figures["maintenance_s"] = time.perf_counter() - began
    steps = _Steps()
    taken = timed_appends(spark, settings, names.bronze, snapshots, _APPENDS)
    spark.stop()
    seconds, of_processor = zip(*taken, strict=True)
    figures |= {"p50_s": percentile(seconds, 0.5), "p99_s": percentile(seconds, 0.99)}
    print(json.dumps({**figures, "processor_s": percentile(of_processor, 0.5), **steps.medians()}))


class _Steps:
    """Timer of the steps of :func:`append_once`; starts when it is created."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {name: [] for name in _STEPS}
        for name in _STEPS:
            self._wrap(name)

    def medians(self) -> dict[str, float]:
        return {f"{name.strip('_')}_s": percentile(seconds, 0.5) for name, seconds in self._seconds.items()}

    def _wrap(self, name: str) -> None:
        step = getattr(append, name)

        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return step(*arguments)
            finally:
                self._seconds[name].append(time.perf_counter() - began)

        setattr(append, name, timed)


def timed_appends(
    spark: SparkSession, settings: Settings, table: str, first: int, count: int
) -> list[tuple[float, float]]:
    """Return the elapsed seconds and processor seconds of each append."""
    found = []
    for number, files in enumerate(write_files(spark, settings, table, count), start=first):
        took = timed(spark, partial(_append, spark, table, number, files))
        found.append((took["wall"], took["seconds"]))
    return found


def _append(spark: SparkSession, table: str, number: int, files: list[DataFile]) -> bool:
    return append_once(open_table(spark, table, QUERY), marker(number), files)


def timed(spark: SparkSession, append: Callable[[], bool]) -> dict[str, float]:
    """Return an append's elapsed seconds, and the processor seconds of its threads in Python and in the JVM."""
    threads = java_class(spark, "java.lang.management.ManagementFactory").getThreadMXBean()
    began, there, here = time.perf_counter(), threads.getCurrentThreadCpuTime(), time.thread_time()
    if not append():
        raise AssertionError("The table has that micro-batch already.")
    of_processor = (threads.getCurrentThreadCpuTime() - there) / 1e9 + time.thread_time() - here
    return {"wall": time.perf_counter() - began, "seconds": of_processor}


def write_files(spark: SparkSession, settings: Settings, table: str, count: int) -> list[list[DataFile]]:
    """Write data files for a number of appends, all of one day; all columns but the partition's are null."""
    opened = open_table(spark, table, "a reader of the schema")
    where = opened.target(marker(0))
    if where is None:
        raise AssertionError(f"{table} has a marker of a query that never was.")
    day = pa.array([datetime(2026, 11, 21, tzinfo=UTC)] * _ROWS, pa.timestamp("us", "UTC"))
    columns = [day if field.name == where.day_of else pa.nulls(_ROWS, field.type) for field in where.schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=where.schema)
    storage, found = open_storage(where.folder, settings.s3), []
    for _ in range(count):
        writer = DataFileWriter(where, storage)
        writer.write(rows)
        found.append(writer.close())
    return found


if __name__ == "__main__":
    main()
