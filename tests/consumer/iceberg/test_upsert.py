"""An upsert happens once, and every engine reads its result."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.consumer.iceberg.upserts import Upserts, marker
from tests.selection import first_by_default

from consumer.iceberg import append
from consumer.iceberg.upsert import OldRows, upsert_once

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: SparkSession) -> Upserts:
    return Upserts(spark)


def test_rows_are_replaced_and_a_repetition_changes_nothing(table: Upserts) -> None:
    assert table.upsert(0, "a", 0, 1, 2, 30, 31)
    assert table.upsert(1, "b", 1, 31)
    assert table.kinds() == {"PARQUET": 4, "PUFFIN": 2}
    assert not table.upsert(1, "c", 1, 31)
    assert table.rows() == {0: "a", 1: "b", 2: "a", 30: "a", 31: "b"}


@pytest.mark.all
def test_a_vector_includes_the_one_before_it(table: Upserts) -> None:
    table.upsert(0, "a", 0, 1, 2, 3)
    for number in (1, 2, 3):
        table.upsert(number, "b", number)
    assert table.rows() == {0: "a", 1: "b", 2: "b", 3: "b"}
    assert table.kinds() == {"PARQUET": 4, "PUFFIN": 1}
    assert table.spark.table(f"lake.{table.name}.delete_files").collect()[0].record_count == 3


def test_a_file_without_rows_is_removed(table: Upserts) -> None:
    table.upsert(0, "a", 0, 1, 2)
    table.upsert(1, "b", 0)
    table.upsert(2, "c", 1, 2)
    assert table.rows() == {0: "b", 1: "c", 2: "c"}
    assert table.kinds() == {"PARQUET": 2}
    table.upsert(3, "d", 0, 1, 2)
    assert table.kinds() == {"PARQUET": 1}


@pytest.mark.all
def test_many_rows_at_once(table: Upserts) -> None:
    ids = range(24 * 40)
    table.upsert(0, "a", *ids)
    table.upsert(1, "b", *ids[::2])
    assert table.rows() == {number: "a" if number % 2 else "b" for number in ids}


def test_an_upsert_of_no_rows_keeps_the_sequence(table: Upserts) -> None:
    assert upsert_once(table.open(), marker(0), [], lambda _: OldRows())
    assert upsert_once(table.open(), marker(1), [], lambda _: OldRows())
    newest = table.open().newest()
    assert newest
    assert newest.marker == marker(1)


BETWEEN = {
    "compaction": "call lake.system.rewrite_data_files(table => '{0}', options => map('rewrite-all', 'true'))",
    "manifests": "call lake.system.rewrite_manifests('{0}')",
    "expiry": "call lake.system.expire_snapshots(table => '{0}', older_than => timestamp '2100-01-01', "
    "retain_last => 1)",
    "insert": "insert into lake.{0} values (7, 'theirs', timestamp '1970-01-01 07:00:00')",
    "property": "alter table lake.{0} set tblproperties ('theirs' = 'kept')",
}


@pytest.mark.parametrize("between", first_by_default(BETWEEN, 2))
def test_commits_of_others_may_come_between(table: Upserts, monkeypatch: pytest.MonkeyPatch, between: str) -> None:
    table.upsert(0, "a", 0, 1, 2)
    table.upsert(1, "b", 0)
    commit = append._commit

    def delayed(transaction: Any) -> None:
        monkeypatch.setattr(append, "_commit", commit)
        table.spark.sql(BETWEEN[between].format(table.name))
        commit(transaction)

    monkeypatch.setattr(append, "_commit", delayed)
    assert table.upsert(2, "c", 1)
    rows = table.rows()
    assert rows.pop(7, "theirs") == "theirs"
    assert rows == {0: "b", 1: "c", 2: "a"}


@pytest.mark.parametrize("looked", ["before its transaction", "before its commit"])
def test_a_writer_that_wakes_up_too_late_changes_nothing(
    table: Upserts, monkeypatch: pytest.MonkeyPatch, looked: str
) -> None:
    table.upsert(0, "a", 0, 1, 2)
    step = "_prepare" if looked == "before its transaction" else "_commit"
    real = getattr(append, step)

    def suspended(*arguments: Any) -> Any:
        # Another writer upserts the same micro-batch.
        monkeypatch.setattr(append, step, real)
        assert table.upsert(1, "b", 1)
        return real(*arguments)

    monkeypatch.setattr(append, step, suspended)
    assert not table.upsert(1, "b", 1)
    assert table.rows() == {0: "a", 1: "b", 2: "a"}
    assert table.kinds() == {"PARQUET": 2, "PUFFIN": 1}
