"""Removal of rows: new data files, compared before one commit, and no trace of the rows in the rest of the table."""

import uuid
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from consumer.iceberg import remove as module
from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.remove import Accounted, remove
from consumer.iceberg.rewrite import CollisionError, NotEqualError
from lakeproof.errors import UsageError

pytestmark = pytest.mark.spark

ON = {"id": "row.id", "number": "row._micro_batch_id"}


class Table:
    """Table of two days whose rows are in many files."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark, self.name = spark, f"silver.t{uuid.uuid4().hex}"
        self.full = f"lake.{self.name}"
        spark.sql("create namespace if not exists lake.silver")
        spark.sql(
            f"create table {self.full} (id long, text string, parts array<struct<a: string>>, at timestamp, "
            "_micro_batch_id long) using iceberg partitioned by (days(at))"
        )
        for number in range(3):
            self.insert(number)

    def insert(self, number: int) -> None:
        self.spark.sql(
            f"insert into {self.full} select id, concat('person-', id), if(id = 0, null, array()), "
            f"timestamp'2026-11-20' + make_interval(0, 0, 0, id % 2), {number} from range(6)"
        )

    def open(self) -> OpenTable:
        return open_table(self.spark, self.name, "maintenance")

    def rows(self) -> list[Row]:
        return sorted(self.spark.table(self.full).collect(), key=lambda row: (row["_micro_batch_id"], row["id"]))

    def keys(self, *keys: tuple[int, int]) -> DataFrame:
        return self.spark.createDataFrame(list(keys), "id long, number long")


@pytest.fixture
def table(spark: SparkSession) -> Table:
    return Table(spark)


def test_rows_are_gone_and_the_others_are_as_they_were(table: Table) -> None:
    before, files = table.rows(), table.spark.table(f"{table.full}.files").count()
    done = remove(table.open(), table.keys((3, 1), (5, 1), (3, 2), (77, 1)), ON, "e1")
    assert done
    assert (done.rows, done.files) == (3, 2)
    wanted = [row for row in before if (row["id"], row["_micro_batch_id"]) not in {(3, 1), (5, 1), (3, 2)}]
    assert table.rows() == wanted
    now = table.spark.table(f"{table.full}.files")
    assert now.count() <= files
    assert now.where("content <> 0").isEmpty()
    assert [row["name"] for row in table.spark.table(f"{table.full}.refs").collect()] == ["main"]
    # No manifest of the current snapshot has an entry of a replaced file.
    assert table.spark.table(f"{table.full}.entries").where("status = 2").isEmpty()
    last = table.spark.sql(f"select operation, summary from {table.full}.snapshots order by committed_at").collect()
    assert [row["operation"] for row in last[-2:]] == ["overwrite", "replace"]
    assert remove(table.open(), table.keys((3, 1)), ON, "e1") is None  # once more


def test_nothing_is_published_that_is_not_proven(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    before, groups = table.rows(), module.read_groups

    def wrong(*args: Any) -> Any:
        side, found = groups(*args)
        return side, {number: (rows, hashed + 1) for number, (rows, hashed) in found.items()}

    monkeypatch.setattr(module, "read_groups", wrong)
    with pytest.raises(NotEqualError, match="would not be what is left"):
        remove(table.open(), table.keys((3, 1)), ON, "e1")
    assert table.rows() == before
    assert [row["name"] for row in table.spark.table(f"{table.full}.refs").collect()] == ["main"]


def test_a_removal_that_is_cancelled_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def cancelled(*_: Any) -> None:
        tries.append(1)
        raise PySparkException("Job 1 cancelled", errorClass="SPARK_JOB_CANCELLED")

    monkeypatch.setattr(module, "_remove", cancelled)
    monkeypatch.setattr(module, "is_cancelled", lambda _: True)
    nothing: Any = None
    with pytest.raises(PySparkException, match="cancelled"):  # not a collision: retention is interrupted
        remove(nothing, nothing, ON, "e1")
    assert tries == [1]


@pytest.mark.all
def test_a_writer_that_comes_between_is_kept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = module._publish

    def after_an_append(*args: Any) -> int:
        table.insert(3)
        return publish(*args)

    monkeypatch.setattr(module, "_publish", after_an_append)
    before = table.rows()
    remove(table.open(), table.keys((3, 1)), ON, "e1")
    assert len(table.rows()) == len(before) + 6 - 1

    def after_a_delete(*args: Any) -> int:
        table.spark.sql(f"delete from {table.full} where id = 1 and _micro_batch_id = 1")
        return publish(*args)

    monkeypatch.setattr(module, "_publish", after_a_delete)
    with pytest.raises(CollisionError):
        remove(table.open(), table.keys((5, 1)), ON, "e1")
    assert len(table.rows()) == len(before) + 6 - 2


@pytest.mark.all
def test_an_account_goes_with_the_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def account(was: str | None, value: str, rows: int = 1) -> Accounted:
        return Accounted("account", was, value, rows)

    with pytest.raises(NotEqualError, match="1 rows would be removed, and 2 accounted for"):
        remove(table.open(), table.keys((3, 1)), ON, "e1", account(None, "a", 2))
    assert table.open().property("account") is None
    remove(table.open(), table.keys((3, 1)), ON, "e1", account(None, "a"))
    assert table.open().property("account") == "a"
    before, publish = table.rows(), module._publish

    def after_another(*args: Any) -> int:
        table.open().set_property("account", "b")
        return publish(*args)

    monkeypatch.setattr(module, "_publish", after_another)
    with pytest.raises(CollisionError, match="another retention"):
        remove(table.open(), table.keys((5, 1)), ON, "e1", account("a", "c"))
    assert (table.rows(), table.open().property("account")) == (before, "b")


def test_rows_are_not_only_marked_as_deleted(table: Table) -> None:
    table.spark.sql(f"alter table {table.full} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    before = table.rows()
    with pytest.raises(UsageError, match=r"write\.delete\.mode"):
        remove(table.open(), table.keys((3, 1)), ON, "e1")
    assert table.rows() == before
