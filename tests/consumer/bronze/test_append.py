"""An append happens once, however often its micro-batch is tried."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from consumer.bronze import append
from consumer.bronze.append import Marker, MarkerLostError, append_once, newest_micro_batch, target
from consumer.bronze.data_files import DataFile, DataFileWriter
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage

pytestmark = pytest.mark.spark


Rows = Callable[..., list[DataFile]]


@pytest.fixture
def table(spark: SparkSession) -> str:
    name = f"bronze.t{uuid.uuid4().hex}"
    spark.sql("create namespace if not exists lake.bronze")
    spark.sql(f"create table lake.{name} (id long, at timestamp) using iceberg partitioned by (days(at))")
    return name


@pytest.fixture
def rows(spark: SparkSession, table: str) -> Rows:
    """Data files of rows with the ids given, on two days; 0 has none."""

    def write(*ids: int) -> list[DataFile]:
        known = target(spark, table, Marker("none", 0, ""))
        assert known is not None
        writer = DataFileWriter(known, open_storage(known.folder, S3Settings(_env_file=None)))
        days = [datetime(2026, 11, 20 + number % 2, 12, tzinfo=UTC) if number else None for number in ids]
        columns = {"id": pa.array(ids, pa.int64()), "at": pa.array(days, pa.timestamp("us", "UTC"))}
        writer.write(pa.RecordBatch.from_pydict(columns))
        return writer.close()

    return write


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(row.id for row in spark.table(f"lake.{table}").collect())


def marker(micro_batch_id: int, checkpoint_id: str = "c1") -> Marker:
    return Marker(checkpoint_id, micro_batch_id, "digest")


def test_a_repeated_micro_batch_changes_nothing(spark: SparkSession, table: str, rows: Rows) -> None:
    assert append_once(spark, table, marker(0), rows(1, 2))
    assert not append_once(spark, table, marker(0), rows(1, 2))
    assert append_once(spark, table, marker(1), rows(3))
    assert not append_once(spark, table, marker(0), rows(1, 2))
    assert ids(spark, table) == [1, 2, 3]


def test_an_append_of_no_rows_keeps_the_sequence(spark: SparkSession, table: str, rows: Rows) -> None:
    append_once(spark, table, marker(0), rows())
    append_once(spark, table, marker(1), rows(1))
    assert newest_micro_batch(spark, table, "c1") == 1


def test_checkpoints_do_not_see_each_others_markers(spark: SparkSession, table: str, rows: Rows) -> None:
    append_once(spark, table, marker(0, "c1"), rows(1))
    append_once(spark, table, marker(0, "C1"), rows(2))
    append_once(spark, table, marker(1, "c1"), rows(3))
    assert newest_micro_batch(spark, table, "C1") == 0
    assert newest_micro_batch(spark, table, "c2") is None
    assert ids(spark, table) == [1, 2, 3]


def test_markers_are_found_behind_snapshots_without_one(spark: SparkSession, table: str, rows: Rows) -> None:
    append_once(spark, table, marker(0), rows(1))
    append_once(spark, table, marker(1), rows(2))
    spark.sql(f"call lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    assert newest_micro_batch(spark, table, "c1") == 1
    assert not append_once(spark, table, marker(1), rows(2))


def test_a_gap_in_the_markers_is_refused(spark: SparkSession, table: str, rows: Rows) -> None:
    with pytest.raises(MarkerLostError, match="reader verify"):
        append_once(spark, table, marker(3), rows(1))
    append_once(spark, table, marker(0), rows(1))
    with pytest.raises(MarkerLostError, match="micro-batch 0"):
        append_once(spark, table, marker(2), rows(1))
    assert ids(spark, table) == [1]


def test_a_writer_that_wakes_up_too_late_changes_nothing(
    spark: SparkSession, table: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_once(spark, table, marker(0), rows(1))
    publish = append._publish

    def suspended(*arguments: Any) -> bool:
        # Between its staging and its publishing, another writer does the same micro-batch, and the next one.
        monkeypatch.setattr(append, "_publish", publish)
        assert append_once(spark, table, marker(1), rows(2))
        assert append_once(spark, table, marker(2), rows(3))
        return publish(*arguments)

    monkeypatch.setattr(append, "_publish", suspended)
    assert not append_once(spark, table, marker(1), rows(2))
    assert ids(spark, table) == [1, 2, 3]


def test_a_marker_outlives_a_commit_that_comes_between(
    spark: SparkSession, table: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = append._publish

    def delayed(*arguments: Any) -> bool:
        spark.sql(f"insert into lake.{table} values (7, timestamp '2026-11-20 12:00:00')")
        return publish(*arguments)

    monkeypatch.setattr(append, "_publish", delayed)
    assert append_once(spark, table, marker(0), rows(1))
    monkeypatch.undo()
    assert newest_micro_batch(spark, table, "c1") == 0
    assert not append_once(spark, table, marker(0), rows(1))
    assert append_once(spark, table, marker(1), rows(2))
    assert ids(spark, table) == [1, 2, 7]


def test_what_was_staged_before_a_crash_is_published_once(
    spark: SparkSession, table: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*arguments: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(append, "_publish", crash)
    with pytest.raises(KeyboardInterrupt):
        append_once(spark, table, marker(0), rows(1))
    assert ids(spark, table) == []
    monkeypatch.undo()
    assert append_once(spark, table, marker(0), rows(1))
    assert append_once(spark, table, marker(1), rows(2))
    assert ids(spark, table) == [1, 2]


def test_iceberg_knows_of_each_data_file_what_it_prunes_by(spark: SparkSession, table: str, rows: Rows) -> None:
    append_once(spark, table, marker(0), rows(1, 2, 3, 5))
    files = spark.table(f"lake.{table}.files").collect()
    bounds = [(row.readable_metrics.id.lower_bound, row.readable_metrics.id.upper_bound) for row in files]
    assert sorted(bounds) == [(1, 5), (2, 2)]
    assert sorted((row.record_count, str(row.partition.at_day)) for row in files) == [
        (1, "2026-11-20"),
        (3, "2026-11-21"),
    ]


def test_rows_without_a_day_have_a_partition_too(spark: SparkSession, table: str, rows: Rows) -> None:
    append_once(spark, table, marker(0), rows(0, 1))
    assert [row.id for row in spark.table(f"lake.{table}").where("at is null").collect()] == [0]
    assert ids(spark, table) == [0, 1]
