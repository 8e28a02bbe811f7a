"""Compaction: readers see rewritten files only after their rows were found equal; a collision changes nothing."""

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from tests.consumer.iceberg.upserts import Upserts
from tests.selection import first_by_default, only_with_all

from consumer.iceberg import rewrite
from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.expire import expire, remove_orphans
from consumer.iceberg.memory import MEMORY
from consumer.iceberg.rewrite import BRANCH, CollisionError, Compacted, NotEqualError, compact, work
from consumer.maintenance.maintain import options_of
from lakeproof.settings import MaintenanceSettings

pytestmark = pytest.mark.spark

OPTIONS = {"min-input-files": "2"}
Rewrite = Callable[[OpenTable, str, dict[str, str]], None]


class Table:
    """Table of three days whose rows are in many files, some of them deleted."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.name = f"gold.t{uuid.uuid4().hex}"
        self.full = f"lake.{self.name}"
        spark.sql("create namespace if not exists lake.gold")
        spark.sql(
            f"create table {self.full} (id long, text string, other string, price double, counts map<string, long>, "
            "at timestamp, _micro_batch_id long) using iceberg partitioned by (days(at)) tblproperties ("
            "'format-version' = '3', 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
        )
        for number in range(4):
            self.insert(f"{number} * 10 + id", number)
        spark.sql(f"delete from {self.full} where id in (3, 15)")

    def insert(self, ids: str, number: int) -> None:
        """Insert nine rows, three a day."""
        self.spark.sql(
            f"insert into {self.full} select {ids}, if(id % 4 = 0, null, 'some text'), 'other', id / 3, "
            f"map('a', id, 'b', null), timestamp'2026-11-20 00:00:00' + make_interval(0, 0, 0, id % 3, id), {number} "
            "from range(9)"
        )

    def open(self) -> OpenTable:
        return open_table(self.spark, self.name, "maintenance")

    def rows(self) -> list[Row]:
        return sorted(self.spark.table(self.full).collect(), key=lambda row: row["id"])

    @property
    def branch(self) -> str:
        (name,) = (each for each in self.branches() if each != "main")
        return f"{self.full}.`branch_{name}`"

    def snapshot(self) -> int:
        return int(self.open().loaded.currentSnapshot().snapshotId())

    def branches(self) -> list[str]:
        return [str(name) for name in self.open().loaded.refs().keySet()]

    def manifests(self) -> int:
        return int(self.spark.table(f"{self.full}.manifests").count())

    def files(self) -> int:
        return int(self.spark.table(f"{self.full}.files").where("content = 0").count())


@pytest.fixture(scope="module")
def shared(spark: SparkSession) -> Table:
    """Return a table that no test changes."""
    return Table(spark)


@pytest.fixture
def table(spark: SparkSession) -> Table:
    return Table(spark)


def then(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen after the rewrite on the branch, before the rows are compared."""
    rewritten: Rewrite = rewrite._rewrite  # type: ignore[assignment]

    def and_then(table: OpenTable, branch: str, options: dict[str, str]) -> None:
        rewritten(table, branch, options)
        happens()

    monkeypatch.setattr(rewrite, "_rewrite", and_then)


def test_rows_are_the_same_in_fewer_files(table: Table) -> None:
    before, planned = table.rows(), work(table.open(), OPTIONS)
    replaced = table.spark.table(f"{table.full}.files").first()
    assert replaced is not None
    MEMORY.keep(replaced["file_path"], {"rows": pa.table({"id": [1]})})
    done = compact(table.open(), OPTIONS)
    assert isinstance(done, Compacted)
    assert MEMORY.table(replaced["file_path"], "rows") is None
    assert (planned.files, done.before.files, done.after.files) == (12, 12, 3)
    assert planned.bytes == done.before.bytes
    assert (done.rows, table.files()) == (34, 3)
    assert table.rows() == before
    assert table.branches() == ["main"]
    assert compact(table.open(), OPTIONS) is None

    files = [row["file_path"] for row in table.spark.table(f"{table.full}.files").collect()]
    read = duckdb.sql(f"select id from read_parquet({[each.removeprefix('file:') for each in files]})")
    assert sorted(number for (number,) in read.fetchall()) == [row["id"] for row in before]
    for file in files:
        times = [row["at"] for row in table.spark.read.parquet(file).collect()]
        assert times == sorted(times)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_microseconds_of_nested_times_are_proven(spark: SparkSession, kind: str) -> None:
    text = f"select array(struct({kind}'2026-11-21 06:00:00.00000%s' as at)) as times"
    one, other = (spark.sql(text % digit) for digit in (1, 2))
    assert one.select(rewrite.row_hash(one)).collect() != other.select(rewrite.row_hash(other)).collect()


@pytest.mark.all
def test_what_was_compacted_is_left_alone(spark: SparkSession) -> None:
    name = f"gold.t{uuid.uuid4().hex}"
    spark.sql(f"create table lake.{name} (bytes string, at timestamp) using iceberg partitioned by (days(at))")
    for _ in range(6):  # 1.3 MB in total, for two files of less than three quarters of their size
        spark.sql(
            f"insert into lake.{name} select concat(uuid(), uuid(), uuid()), "
            "timestamp'2026-11-20' + make_interval(0, 0, 0, 0, 0, 0, id) from range(3600)"
        )
    options = options_of(MaintenanceSettings(file_mib=1))
    table = open_table(spark, name, "maintenance")
    done = compact(table, options)
    assert done
    assert done.before.files == 6
    assert 1 < done.after.files < 6
    assert work(table, options).files == 0
    assert work(table, {**options, "min-file-size-bytes": str(3 << 18)}).files > 0  # Iceberg's default


MUTANTS = {
    "a partition is dropped": "delete from {} where at < timestamp'2026-11-21'",
    "everything is dropped": "delete from {}",
    "a row is lost": "delete from {} where id = 1",
    "a row is doubled": "insert into {} select * from {} where id = 1",
    "a delete is ignored": "insert into {} values (3, 'some text', 'other', 1, map('a', 3L, 'b', null), "
    "timestamp'2026-11-20 03:00:00', 0)",
    "a text is changed": "update {} set text = 'some texts' where id = 1",
    "a null is an empty text": "update {} set text = '' where id = 4",
    "a null is in another column": "update {} set text = other, other = text where id = 4",
    "a number is rounded": "update {} set price = round(price, 3) where id = 1",
    "a time is a microsecond later": "update {} set at = at + make_interval(0, 0, 0, 0, 0, 0, 0.000001) where id = 1",
    "a row is of another micro-batch": "update {} set _micro_batch_id = 1 where id = 1",
    "a nested null is missing": "update {} set counts = map('a', 1L) where id = 1",
    "two rows exchange their values": "update {} set price = 5 / 3 - price where id in (1, 4)",
}


@pytest.mark.parametrize("mutant", first_by_default(MUTANTS, 2))
def test_a_planted_bug_is_stopped_before_readers_see_it(
    shared: Table, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, snapshot = shared.rows(), shared.snapshot()
    then(monkeypatch, lambda: shared.spark.sql(MUTANTS[mutant].format(shared.branch, shared.branch)).collect())
    with pytest.raises(NotEqualError, match="micro-batches differ"):
        compact(shared.open(), OPTIONS)
    assert (shared.snapshot(), shared.branches()) == (snapshot, ["main"])
    assert shared.rows() == before


@pytest.mark.all
def test_rows_that_are_appended_meanwhile_stay(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    then(monkeypatch, lambda: table.insert("100 + id", 4))
    before = table.rows()
    done = compact(table.open(), OPTIONS)
    assert done
    assert done.rows == len(before)
    rows = table.rows()
    assert [row for row in rows if row["id"] < 100] == before
    assert len(rows) == len(before) + 9


def test_what_a_writer_changes_meanwhile_wins(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    upserts = Upserts(spark)
    for number in range(6):
        upserts.append(number, "old", 2 * number, 2 * number + 1)
    expected = upserts.rows() | {3: "new"}
    then(monkeypatch, lambda: upserts.upsert(6, "new", 3))
    with pytest.raises(CollisionError):
        compact(upserts.open(), OPTIONS)
    assert upserts.rows() == expected
    monkeypatch.undo()
    assert compact(upserts.open(), OPTIONS)
    assert upserts.rows() == expected
    upserts.upsert(7, "newer", 3, 4)
    assert upserts.rows() == expected | {3: "newer", 4: "newer"}


class CommittedMeanwhile:
    """Iceberg table that another writer appends to once a change of its branches has begun."""

    def __init__(self, table: Table, loaded: Any) -> None:
        self._table, self._loaded = table, loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded, name)

    def manageSnapshots(self) -> Any:  # noqa: N802 - Iceberg's name
        begun = self._loaded.manageSnapshots()
        self._table.insert("100 + id", 4)
        self.manageSnapshots = self._loaded.manageSnapshots  # type: ignore[method-assign]
        return begun


@pytest.mark.all
def test_branches_are_changed_whatever_a_writer_commits_meanwhile(table: Table) -> None:
    start = table.snapshot()
    opened = table.open()
    name = rewrite.make_branch(replace(opened, loaded=CommittedMeanwhile(table, opened.loaded)), start)
    assert set(table.branches()) == {"main", name}
    rewrite.drop_branches(replace(opened, loaded=CommittedMeanwhile(table, opened.loaded)))
    assert table.branches() == ["main"]
    assert len(table.rows()) == 34 + 2 * 9


@pytest.mark.all
def test_of_two_maintainers_one_is_too_late(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sees the other's lease: each has its own state database."""
    before, done = table.rows(), []

    def other_maintainer() -> None:
        monkeypatch.undo()
        done.append(compact(table.open(), OPTIONS))

    then(monkeypatch, other_maintainer)
    with pytest.raises(CollisionError):
        compact(table.open(), OPTIONS)
    assert [each.rows for each in done if each] == [34]
    assert (table.branches(), table.files(), table.rows()) == (["main"], 3, before)


@pytest.mark.all
def test_files_that_another_maintainer_has_expired_are_not_swapped_in(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, compare = table.rows(), rewrite._compare

    def and_expired(*arguments: Any) -> Compacted:
        found = compare(*arguments)
        other = table.open()
        rewrite.drop_branches(other)
        expire(other, datetime.now(UTC))
        return found

    monkeypatch.setattr(rewrite, "_compare", and_expired)
    with pytest.raises(CollisionError, match="dropped the branch"):
        compact(table.open(), OPTIONS)
    assert (table.branches(), table.files(), table.rows()) == (["main"], 12, before)


@pytest.mark.all
def test_a_branch_that_was_dropped_and_created_again_is_not_swapped_in(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another maintainer drops the branch while files are rewritten, and Iceberg's commit creates it again."""
    rewritten: Rewrite = rewrite._rewrite  # type: ignore[assignment]
    before = len(table.rows())

    def dropped_meanwhile(opened: OpenTable, branch: str, options: dict[str, str]) -> None:
        table.insert("100 + id", 4)
        rewrite.drop_branches(opened)
        opened.loaded.manageSnapshots().createBranch(branch, table.snapshot()).commit()
        rewritten(opened, branch, options)

    monkeypatch.setattr(rewrite, "_rewrite", dropped_meanwhile)
    with pytest.raises(CollisionError, match="dropped the branch"):
        compact(table.open(), OPTIONS)
    assert (table.branches(), len(table.rows())) == (["main"], before + 9)


class ExpiredMeanwhile:
    """Spark session in which another program expires snapshots while the first statement runs."""

    def __init__(self, table: Table, expires: bool) -> None:
        self._table, self._expires, self.statements = table, expires, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table.spark, name)

    def sql(self, statement: str) -> Any:
        self.statements += 1
        if self.statements == 1:
            if self._expires:
                expire(self._table.open(), datetime.now(UTC))
            raise PySparkException("a manifest list does not exist")
        return self._table.spark.sql(statement)


@pytest.mark.parametrize("expires", [only_with_all(True), False])
def test_a_search_for_orphans_is_repeated_if_another_program_expires_snapshots(table: Table, expires: bool) -> None:
    session: Any = ExpiredMeanwhile(table, expires)
    opened, limit = replace(table.open(), spark=session), datetime.now(UTC) - timedelta(days=1)
    with nullcontext() if expires else pytest.raises(PySparkException, match="does not exist"):
        assert remove_orphans(opened, limit, dry_run=True) == 0
    assert session.statements == 1 + expires


@pytest.mark.all
def test_a_name_that_needs_quotes_and_a_nested_time(spark: SparkSession) -> None:
    name = f"gold.it's-t{uuid.uuid4().hex}"
    full = f"lake.gold.`{name.removeprefix('gold.')}`"
    spark.sql(
        f"create table {full} (id long, event struct<`at time`: timestamp>) using iceberg "
        "partitioned by (days(event.`at time`))"
    )
    for _ in range(2):
        spark.sql(f"insert into {full} select id, struct(timestamp'2026-11-20' as `at time`) from range(3)")
    table = open_table(spark, name, "")
    done = compact(table, OPTIONS)
    assert done
    assert (done.rows, done.after.files) == (6, 1)
    assert remove_orphans(table, datetime.now(UTC) - timedelta(days=1), dry_run=True) == 0
    spark.sql(f"drop table {full}")


@pytest.mark.all
def test_manifests_are_merged_with_the_swap(table: Table) -> None:
    for number in range(4, 8):
        table.insert(f"{number} * 10 + id", number)
    before = table.rows()
    assert table.manifests() > 8
    assert compact(table.open(), OPTIONS)
    assert table.manifests() <= 2  # one of data files, one of delete files
    assert table.rows() == before
    assert "commit.manifest.min-count-to-merge" not in table.open().loaded.properties()


class Killed(BaseException):
    """Raised when the process is gone: nothing is cleaned up."""


@pytest.mark.parametrize("step", first_by_default(["_swap", "_rewrite", "_compare"]))
def test_a_compaction_that_was_killed_is_repeated(table: Table, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = table.rows()

    def killed(*arguments: Any) -> None:
        raise Killed

    real = rewrite.drop_branches
    with monkeypatch.context() as patch:
        patch.setattr(rewrite, step, killed)
        calls = iter([real, lambda *_: None])  # the branch stays
        patch.setattr(rewrite, "drop_branches", lambda *arguments: next(calls)(*arguments))
        with pytest.raises(Killed):
            compact(table.open(), OPTIONS)
    assert [name.startswith(f"{BRANCH}-") for name in sorted(table.branches())] == [True, False]
    assert table.rows() == before
    assert compact(table.open(), OPTIONS)
    assert (table.branches(), table.files()) == (["main"], 3)
    assert table.rows() == before
