"""An append happens once, however often its micro-batch is tried."""

import uuid
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from consumer.bronze import append
from consumer.bronze.append import Marker, MarkerLostError, append_once, newest_micro_batch

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: SparkSession) -> str:
    name = f"bronze.t{uuid.uuid4().hex}"
    spark.sql("create namespace if not exists lake.bronze")
    spark.sql(f"create table lake.{name} (id long) using iceberg tblproperties ('write.wap.enabled'='true')")
    return name


def rows(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(number,) for number in ids], "id long")


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(row.id for row in spark.table(f"lake.{table}").collect())


def marker(micro_batch_id: int, checkpoint_id: str = "c1") -> Marker:
    return Marker(checkpoint_id, micro_batch_id, "digest")


def test_a_repeated_micro_batch_changes_nothing(spark: SparkSession, table: str) -> None:
    assert append_once(rows(spark, 1, 2), table, marker(0))
    assert not append_once(rows(spark, 1, 2), table, marker(0))
    assert append_once(rows(spark, 3), table, marker(1))
    assert not append_once(rows(spark, 1, 2), table, marker(0))
    assert ids(spark, table) == [1, 2, 3]


def test_an_append_of_no_rows_keeps_the_sequence(spark: SparkSession, table: str) -> None:
    append_once(rows(spark), table, marker(0))
    append_once(rows(spark, 1), table, marker(1))
    assert newest_micro_batch(spark, table, "c1") == 1


def test_checkpoints_do_not_see_each_others_markers(spark: SparkSession, table: str) -> None:
    append_once(rows(spark, 1), table, marker(0, "c1"))
    append_once(rows(spark, 2), table, marker(0, "C1"))
    append_once(rows(spark, 3), table, marker(1, "c1"))
    assert newest_micro_batch(spark, table, "C1") == 0
    assert newest_micro_batch(spark, table, "c2") is None
    assert ids(spark, table) == [1, 2, 3]


def test_markers_are_found_behind_snapshots_without_one(spark: SparkSession, table: str) -> None:
    append_once(rows(spark, 1), table, marker(0))
    append_once(rows(spark, 2), table, marker(1))
    spark.sql(f"call lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    assert newest_micro_batch(spark, table, "c1") == 1
    assert not append_once(rows(spark, 2), table, marker(1))


def test_a_gap_in_the_markers_is_refused(spark: SparkSession, table: str) -> None:
    with pytest.raises(MarkerLostError, match="reader verify"):
        append_once(rows(spark, 1), table, marker(3))
    append_once(rows(spark, 1), table, marker(0))
    with pytest.raises(MarkerLostError, match="micro-batch 0"):
        append_once(rows(spark, 1), table, marker(2))
    assert ids(spark, table) == [1]


def test_a_writer_that_wakes_up_too_late_changes_nothing(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_once(rows(spark, 1), table, marker(0))
    publish = append._publish

    def suspended(*arguments: Any) -> bool:
        # Between its staging and its publishing, another writer does the same micro-batch, and the next one.
        monkeypatch.setattr(append, "_publish", publish)
        assert append_once(rows(spark, 2), table, marker(1))
        assert append_once(rows(spark, 3), table, marker(2))
        return publish(*arguments)

    monkeypatch.setattr(append, "_publish", suspended)
    assert not append_once(rows(spark, 2), table, marker(1))
    assert ids(spark, table) == [1, 2, 3]


def test_a_marker_outlives_a_commit_that_comes_between(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = append._publish

    def delayed(*arguments: Any) -> bool:
        spark.sql(f"insert into lake.{table} values (7)")
        return publish(*arguments)

    monkeypatch.setattr(append, "_publish", delayed)
    assert append_once(rows(spark, 1), table, marker(0))
    monkeypatch.undo()
    assert newest_micro_batch(spark, table, "c1") == 0
    assert not append_once(rows(spark, 1), table, marker(0))
    assert append_once(rows(spark, 2), table, marker(1))
    assert ids(spark, table) == [1, 2, 7]


def test_what_was_staged_before_a_crash_is_published_once(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*arguments: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(append, "_publish", crash)
    with pytest.raises(KeyboardInterrupt):
        append_once(rows(spark, 1), table, marker(0))
    assert ids(spark, table) == []
    monkeypatch.undo()
    assert append_once(rows(spark, 1), table, marker(0))
    assert append_once(rows(spark, 2), table, marker(1))
    assert ids(spark, table) == [1, 2]
