"""Many small files of a table, before and after maintenance: the same queries in DuckDB and in Spark.

Run as ``python -m benchmarks.sides.compaction FILES``.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.flat_tables import QUERY, append_many, marker
from consumer.iceberg.append import open_table
from consumer.iceberg.data_files import DataFile, DataFileWriter
from consumer.iceberg.jvm import java_class
from consumer.maintenance.maintain import maintain_table, prepare
from consumer.spark.session import start_session
from lakeproof.catalog import CATALOG, open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings, load_settings
from lakeproof.storage import open_storage
from lakeproof.tables.names import MICRO_BATCH_ID, stream_tables
from lakeproof.tables.schemas import ensure_tables
from reader.connect import connect

_STREAM = "events"
_ROWS = 200
_DAYS = 3
_RUNS = 3
_START = datetime(2026, 11, 20, tzinfo=UTC)
_ASKED = """
SELECT user_id, count(*) AS events, count(DISTINCT event_id) AS ids, min({time}) AS first, max({time}) AS last
FROM {table} GROUP BY user_id ORDER BY user_id
"""
_OF_AN_HOUR = "SELECT count(*) FROM {table} WHERE {time} < TIMESTAMP '2026-11-20 01:00:00+00:00'"


def main() -> None:
    """Fill the table, run the queries, maintain it, and run the queries again."""
    files = int(sys.argv[1])
    settings = load_settings()
    spark = start_session(settings, "benchmark: compaction")
    prepare(spark)
    contract = load_contract(settings.contracts, _STREAM)
    ensure_tables(open_catalog(settings), contract)
    table = stream_tables(_STREAM).bronze
    append_many(spark, table, [(marker(number), _file(spark, settings, table, number)) for number in range(files)])
    before, answers = _ask(spark, settings, table, contract.event_time)
    at_once = settings.maintenance.model_copy(update={"keep_hours": 1e-9})
    began = time.perf_counter()
    done = maintain_table(spark, table, at_once, None)
    seconds = time.perf_counter() - began
    after, same = _ask(spark, settings, table, contract.event_time)
    spark.stop()
    if done.problem or answers != same:
        raise AssertionError(f"not the same answers after {done}")
    print(
        json.dumps(
            {
                "rows": sum(each.rows for each in done.compacted),
                "maintenance_s": seconds,
                "files": [done.before.files, done.after.files],
                "bytes": [done.before.bytes, done.after.bytes],
                "snapshots": [done.before.snapshots, done.after.snapshots],
                "before": before,
                "after": after,
            }
        )
    )


def _ask(spark: SparkSession, settings: Settings, table: str, event_time: str) -> tuple[dict[str, float], list[Any]]:
    """Return the median seconds of each query in each engine, and the results."""
    found: dict[str, float] = {}
    answers = []
    for name, query in {"all rows": _ASKED, "an hour": _OF_AN_HOUR}.items():
        of_spark = query.format(table=f"{CATALOG}.{table}", time=event_time)
        of_duckdb = query.format(table=table, time=event_time)
        found[f"Spark, {name}"], rows = _timed(lambda sql=of_spark: [tuple(row) for row in spark.sql(sql).collect()])
        with connect(settings) as session:
            found[f"DuckDB, {name}"], same = _timed(lambda sql=of_duckdb: session.fetch(sql))
        if [row[:3] for row in rows] != [row[:3] for row in same]:
            raise AssertionError("Spark and DuckDB disagree.")
        answers.append(rows)

    def plan() -> int:
        opened = open_table(spark, table, QUERY)
        planned = opened.loaded.newScan().planFiles()
        try:
            lists = java_class(spark, "org.apache.iceberg.relocated.com.google.common.collect.Lists")
            return int(lists.newArrayList(planned).size())
        finally:
            planned.close()

    found["planning in Iceberg"], _ = _timed(plan)
    found["manifests"] = float(spark.table(f"{CATALOG}.{table}.manifests").count())
    return found, answers


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    seconds, result = [], None
    for _ in range(_RUNS):
        began = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), result


def _file(spark: SparkSession, settings: Settings, table: str, number: int) -> list[DataFile]:
    """Write a small file of one micro-batch, with rows of one day."""
    where = _TARGETS.get(table) or open_table(spark, table, "a reader of the schema").target(marker(0))
    if where is None:
        raise AssertionError(f"{table} has a marker of a query that never was.")
    _TARGETS[table] = where
    start = _START + timedelta(days=number % _DAYS, seconds=number // _DAYS * 17)
    own = {
        "event_id": pa.array([f"event-{number}-{row}" for row in range(_ROWS)]),
        "user_id": pa.array([f"user-{(number * 7 + row) % 500}" for row in range(_ROWS)]),
        where.day_of: pa.array(
            [start + timedelta(milliseconds=row) for row in range(_ROWS)], pa.timestamp("us", "UTC")
        ),
        MICRO_BATCH_ID: pa.array([number] * _ROWS, pa.int64()),
    }
    columns = [
        own[each.name].cast(each.type) if each.name in own else pa.nulls(_ROWS, each.type) for each in where.schema
    ]
    writer = DataFileWriter(where, open_storage(where.folder, settings.s3))
    writer.write(pa.RecordBatch.from_arrays(columns, schema=where.schema))
    return writer.close()


_TARGETS: dict[str, Any] = {}


if __name__ == "__main__":
    main()
