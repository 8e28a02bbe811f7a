"""An append happens once, however often its micro-batch is tried."""

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.operations.tables import expire_all_but_last
from tests.selection import only_with_all

from consumer.iceberg import append
from consumer.iceberg.append import OpenTable, append_once, open_table
from consumer.iceberg.data_files import DataFile, DataFileWriter
from consumer.iceberg.derivation import Derivation
from consumer.iceberg.jvm import java_class
from consumer.iceberg.marker import Marker, MarkerLostError, property_of
from consumer.iceberg.memory import MEMORY
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage
from lakeproof.tables.names import RENAMED

pytestmark = pytest.mark.spark

QUERY = "bronze-t"
Rows = Callable[..., list[DataFile]]


@pytest.fixture
def name(spark: SparkSession) -> str:
    name = f"bronze.t{uuid.uuid4().hex}"
    spark.sql("create namespace if not exists lake.bronze")
    spark.sql(f"create table lake.{name} (id long, at timestamp) using iceberg partitioned by (days(at))")
    return name


@pytest.fixture
def table(spark: SparkSession, name: str) -> Callable[[], OpenTable]:
    """Return a function that opens the table, as each micro-batch does."""
    return lambda: open_table(spark, name, QUERY)


@pytest.fixture
def rows(table: Callable[[], OpenTable]) -> Rows:
    """Return a function that writes data files of rows with given ids, on two days; id 0 has no day."""

    def write(*ids: int) -> list[DataFile]:
        newest = table().newest()
        known = table().target(Marker("none", 0, "", newest.marker.end if newest else "0:", "x"))
        assert known is not None
        writer = DataFileWriter(known, open_storage(known.folder, S3Settings()))
        days = [datetime(2026, 11, 20 + number % 2, 12, tzinfo=UTC) if number else None for number in ids]
        columns = {"id": pa.array(ids, pa.int64()), "at": pa.array(days, pa.timestamp("us", "UTC"))}
        writer.write(pa.RecordBatch.from_pydict(columns))
        return writer.close()

    return write


def ids(spark: SparkSession, name: str) -> list[int]:
    return sorted(row.id for row in spark.table(f"lake.{name}").collect())


def marker(number: int, checkpoint_id: str = "c1", contract: str = "digest") -> Marker:
    """Return the marker of the micro-batch from position `number` to the next one."""
    return Marker(checkpoint_id, number, contract, f"{number}:a", f"{number + 1}:a")


Table = Callable[[], OpenTable]


def test_a_repeated_micro_batch_changes_nothing(spark: SparkSession, name: str, table: Table, rows: Rows) -> None:
    assert append_once(table(), marker(0), rows(1, 2))
    assert not append_once(table(), marker(0), rows(1, 2))
    assert append_once(table(), marker(1), rows(3))
    assert not append_once(table(), marker(1), rows(3))
    assert ids(spark, name) == [1, 2, 3]


def test_what_was_held_decides_not_who_did_it(spark: SparkSession, name: str, table: Table, rows: Rows) -> None:
    append_once(table(), marker(0, "c1"), rows(1))
    assert not append_once(table(), marker(0, "c2"), rows(1))
    assert append_once(table(), marker(1, "c2"), rows(2))
    assert ids(spark, name) == [1, 2]


@pytest.mark.parametrize(
    "other",
    [
        Marker("c1", 1, "digest", "1:b", "2:b"),  # the same numbers, but another history
        Marker("c1", 2, "digest", "5:a", "6:a"),  # a gap
        Marker("c1", 0, "digest", "0:a", "1:a"),  # before the newest
        Marker("c1", 1, "digest", "1:a", "3:a"),  # the newest and more
        Marker("c1", 1, "another", "1:a", "2:a"),  # the newest, under another contract
    ],
)
def test_what_neither_repeats_the_newest_nor_follows_it_is_refused(
    spark: SparkSession, name: str, table: Table, rows: Rows, other: Marker
) -> None:
    append_once(table(), marker(0), rows(1))
    append_once(table(), marker(1), rows(2))
    with pytest.raises(MarkerLostError, match="consumer reset"):
        append_once(table(), other, [])
    assert ids(spark, name) == [1, 2]


@pytest.mark.parametrize("others", [(), range(3, 3 + 2 * append._CONVERSATIONS)], ids=["alone", "among others"])
def test_a_data_file_that_was_removed_meanwhile_is_not_committed(
    spark: SparkSession, name: str, table: Table, rows: Rows, others: Sequence[int]
) -> None:
    append_once(table(), marker(0), rows(1))
    written = [file for number in (2, *others) for file in rows(number)]
    Path(urlsplit(written[0].uri).path).unlink()
    with pytest.raises(UnavailableError, match=r"were removed before their commit: .*parquet"):
        append_once(table(), marker(1), written)
    assert ids(spark, name) == [1]


def test_the_rows_of_an_opened_table_are_those_of_its_snapshot(
    spark: SparkSession, name: str, table: Table, rows: Rows
) -> None:
    append_once(table(), marker(0), rows(1, 2))
    before = table()
    spark.sql(f"alter table lake.{name} rename column at to moment")
    spark.sql(f"alter table lake.{name} add column note string")
    spark.sql(f"alter table lake.{name} set tblproperties ('{RENAMED}' = '{json.dumps({'at': 'moment'})}')")
    renamed = table().rows(1)
    assert renamed.columns == ["id", "moment", "note"]
    assert {(row.id, row.moment is None, row.note) for row in renamed.collect()} == {(1, False, None), (2, False, None)}
    append_once(table(), marker(1), rows(3))
    assert sorted(row.id for row in before.rows(1).collect()) == [1, 2]
    assert sorted(row.id for row in table().rows(2).collect()) == [1, 2, 3]
    with pytest.raises(UnavailableError, match="does not show the newest state"):
        before.rows(2)
    expire_all_but_last(spark, name)  # to Spark, the snapshot is as unknown as in an older state
    with pytest.raises(UnavailableError, match="does not show the newest state"):
        before.rows(1)


def test_many_data_files_are_described_at_once_and_leave_no_connections(
    spark: SparkSession, name: str, table: Table, rows: Rows
) -> None:
    """Each thread that calls the JVM has a connection, and a thread there."""

    def connections() -> int:
        names = (str(each.getName()) for each in java_class(spark, "java.lang.Thread").getAllStackTraces().keySet())
        return sum(name.startswith("Thread-") for name in names)

    at_once = range(2 * append._CONVERSATIONS)
    before = connections()
    for number in range(5):
        files = [file for index in at_once for file in rows(100 * number + index + 1)]
        assert append_once(table(), marker(number), files)
    assert ids(spark, name) == sorted(100 * number + index + 1 for number in range(5) for index in at_once)
    deadline = monotonic() + 30
    while connections() >= before + append._CONVERSATIONS and monotonic() < deadline:
        sleep(0.1)
    assert connections() < before + append._CONVERSATIONS


def test_statistics_are_those_that_iceberg_reads_from_the_file(spark: SparkSession, table: Table, rows: Rows) -> None:
    (written,) = rows(1, 3)
    opened = table()
    (described,) = append.described(opened, [written])
    iceberg = partial(java_class, spark)
    bounds = iceberg("org.apache.iceberg.MetricsConfig").forTable(opened.loaded)
    read = iceberg("org.apache.iceberg.parquet.ParquetUtil").fileMetrics(
        opened.loaded.io().newInputFile(written.uri, written.size), bounds
    )
    assert described.recordCount() == read.recordCount() == 2
    for kind in ("columnSizes", "valueCounts", "nullValueCounts", "nanValueCounts", "lowerBounds", "upperBounds"):
        ours, theirs = getattr(described, kind)(), getattr(read, kind)()
        assert ours is theirs is None or ours.equals(theirs), kind
    assert dict(described.valueCounts()) == {1: 2, 2: 2}
    assert described.lowerBounds()[1].getLong(0) == 1


def test_an_append_of_no_rows_keeps_the_sequence(table: Table, rows: Rows) -> None:
    append_once(table(), marker(0), rows())
    append_once(table(), marker(1), rows(1))
    newest = table().newest()
    assert newest is not None
    assert newest.marker == marker(1)


def test_queries_do_not_see_each_others_markers(spark: SparkSession, name: str, table: Table, rows: Rows) -> None:
    append_once(table(), marker(0), rows(1))
    append_once(open_table(spark, name, "other"), marker(7), rows(2))
    append_once(table(), marker(1), rows(3))
    assert ids(spark, name) == [1, 2, 3]


@pytest.mark.all
def test_a_marker_outlives_compaction_and_expiry(spark: SparkSession, name: str, table: Table, rows: Rows) -> None:
    append_once(table(), marker(0), rows(1))
    append_once(table(), marker(1), rows(3))
    spark.sql(f"call lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    spark.sql(f"call lake.system.rewrite_manifests('{name}')")
    spark.sql(
        f"call lake.system.expire_snapshots(table => '{name}', older_than => timestamp '2100-01-01', retain_last => 1)"
    )
    assert spark.sql(f"select count(*) as n from lake.{name}.snapshots").collect()[0].n == 1
    assert not append_once(table(), marker(1), rows(3))
    assert append_once(table(), marker(2), rows(5))
    assert ids(spark, name) == [1, 3, 5]


def test_without_the_property_the_snapshots_tell(spark: SparkSession, name: str, table: Table, rows: Rows) -> None:
    append_once(table(), marker(0), rows(1))
    spark.sql(f"alter table lake.{name} unset tblproperties ('{property_of(QUERY)}')")
    spark.sql(f"insert into lake.{name} values (7, timestamp '2026-11-20 12:00:00')")
    assert not append_once(table(), marker(0), rows(1))
    assert append_once(table(), marker(1), rows(2))
    assert not append_once(table(), marker(1), rows(2))
    assert ids(spark, name) == [1, 2, 7]


@pytest.mark.parametrize("then", ["nothing", "an insert"])
def test_a_table_that_was_rolled_back_is_refused_until_that_is_undone(
    spark: SparkSession, name: str, table: Table, rows: Rows, then: str
) -> None:
    append_once(table(), marker(0), rows(1))
    first = table().newest()
    append_once(table(), marker(1), rows(2))
    assert first
    spark.sql(f"call lake.system.rollback_to_snapshot('{name}', {first.snapshot_id})")
    if then == "an insert":
        spark.sql(f"insert into lake.{name} values (7, timestamp '2026-11-20 12:00:00')")
    with pytest.raises(MarkerLostError, match="rolled back") as raised:
        append_once(table(), marker(2), rows())
    assert raised.value.hint.startswith("To undo this, run: CALL lake.system.set_current_snapshot(")
    spark.sql(raised.value.hint.removeprefix("To undo this, run: ").rstrip("."))
    assert append_once(table(), marker(2), rows(3))
    assert ids(spark, name) == [1, 2, 3]


def test_a_table_that_was_replaced_is_refused(spark: SparkSession, name: str, table: Table, rows: Rows) -> None:
    append_once(table(), marker(0), rows(1))
    spark.sql(
        f"create or replace table lake.{name} using iceberg partitioned by (days(at)) as "
        "select 9L as id, timestamp '2026-11-20 12:00:00' as at"
    )
    with pytest.raises(MarkerLostError, match="rolled back or replaced"):
        append_once(table(), marker(1), [])


def test_a_table_that_was_replaced_without_partitions_goes_on_when_both_are_undone(
    spark: SparkSession, name: str, table: Table, rows: Rows
) -> None:
    append_once(table(), marker(0), rows(1))
    spark.sql(f"create or replace table lake.{name} using iceberg as select * from lake.{name}")
    with pytest.raises(MarkerLostError, match="rolled back or replaced") as replaced:
        table().target(marker(1))
    spark.sql(replaced.value.hint.removeprefix("To undo this, run: ").rstrip("."))
    with pytest.raises(LakeproofError, match="no longer partitioned") as raised:
        table().target(marker(1))
    spark.sql(raised.value.hint.removeprefix("To undo this, run: ").rstrip("."))
    assert append_once(table(), marker(1), rows(2))
    assert ids(spark, name) == [1, 2]


@pytest.mark.parametrize("change", ["add partition field id", "replace partition field at_day with months(at)"])
def test_other_partitions_are_refused_until_they_are_undone(
    spark: SparkSession, name: str, table: Table, rows: Rows, change: str
) -> None:
    append_once(table(), marker(0), rows(1))
    spark.sql(f"alter table lake.{name} {change}")
    with pytest.raises(LakeproofError, match="has other partitions than days") as refused:
        table().target(marker(1))
    for step in refused.value.hint.removeprefix("To undo this, run: ").rstrip(".").split("; "):
        spark.sql(step)
    assert append_once(table(), marker(1), rows(2))
    assert ids(spark, name) == [1, 2]


def test_a_writer_that_wakes_up_too_late_changes_nothing(
    spark: SparkSession, name: str, table: Table, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_once(table(), marker(0), rows(1))
    commit = append._commit

    def suspended(transaction: Any) -> None:
        # Another writer appends the same micro-batch between the look and the commit.
        monkeypatch.setattr(append, "_commit", commit)
        assert append_once(table(), marker(1), rows(2))
        commit(transaction)

    monkeypatch.setattr(append, "_commit", suspended)
    assert not append_once(table(), marker(1), rows(2))
    assert ids(spark, name) == [1, 2]


def test_a_writer_that_looked_long_before_changes_nothing(
    spark: SparkSession, name: str, table: Table, rows: Rows
) -> None:
    append_once(table(), marker(0), rows(1))
    opened, files = table(), rows(2)
    # Another writer appends the same micro-batch between the look and the transaction.
    assert append_once(table(), marker(1), rows(2))
    assert not append_once(opened, marker(1), files)
    assert ids(spark, name) == [1, 2]


def test_a_writer_that_wakes_up_much_too_late_is_refused(
    spark: SparkSession, name: str, table: Table, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_once(table(), marker(0), rows(1))
    commit = append._commit

    def suspended(transaction: Any) -> None:
        monkeypatch.setattr(append, "_commit", commit)
        assert append_once(table(), marker(1), rows(2))
        assert append_once(table(), marker(2), rows(3))
        commit(transaction)

    monkeypatch.setattr(append, "_commit", suspended)
    with pytest.raises(MarkerLostError):
        append_once(table(), marker(1), rows(2))
    assert ids(spark, name) == [1, 2, 3]


@pytest.mark.parametrize(
    "between",
    [
        "insert into lake.{0} values (7, timestamp '2026-11-20 12:00:00')",
        "call lake.system.rewrite_data_files(table => '{0}', options => map('rewrite-all', 'true'))",
        only_with_all(
            "call lake.system.expire_snapshots(table => '{0}', older_than => timestamp '2100-01-01', retain_last => 1)"
        ),
        only_with_all("alter table lake.{0} set tblproperties ('theirs' = 'kept')"),
    ],
)
def test_commits_of_others_may_come_between(
    spark: SparkSession, name: str, table: Table, rows: Rows, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    append_once(table(), marker(0), rows(1, 3))
    append_once(table(), marker(1), rows(5))
    commit = append._commit

    def delayed(transaction: Any) -> None:
        monkeypatch.setattr(append, "_commit", commit)
        spark.sql(between.format(name))
        commit(transaction)

    monkeypatch.setattr(append, "_commit", delayed)
    assert append_once(table(), marker(2), rows(9))
    assert not append_once(table(), marker(2), rows(9))
    assert append_once(table(), marker(3), rows(11))
    assert [number for number in ids(spark, name) if number != 7] == [1, 3, 5, 9, 11]


def test_an_append_is_one_commit_and_leaves_nothing_staged(
    spark: SparkSession, name: str, table: Table, rows: Rows
) -> None:
    append_once(table(), marker(0), rows(1))
    before = spark.table(f"lake.{name}.metadata_log_entries").count()
    append_once(table(), marker(1), rows(2))
    assert spark.table(f"lake.{name}.metadata_log_entries").count() == before + 1
    assert spark.table(f"lake.{name}.snapshots").count() == 2


def test_readers_find_what_the_writer_derived(spark: SparkSession, name: str, table: Table, rows: Rows) -> None:
    """The table has another form of a file's URI than its writer."""
    wanted = Derivation({"id": "id"}, 0, "ids", lambda batch: pa.Table.from_batches([batch]))
    MEMORY.want(name, wanted)
    append_once(table(), marker(0), rows(2, 4))
    (file,) = spark.table(f"lake.{name}.files").collect()
    found = MEMORY.take(file.file_path, wanted.key)
    assert found is not None
    assert found.to_pydict() == {"id": [2, 4]}


def test_iceberg_knows_of_each_data_file_what_it_prunes_by(
    spark: SparkSession, name: str, table: Table, rows: Rows
) -> None:
    append_once(table(), marker(0), rows(1, 2, 3, 5))
    files = spark.table(f"lake.{name}.files").collect()
    bounds = [(row.readable_metrics.id.lower_bound, row.readable_metrics.id.upper_bound) for row in files]
    assert sorted(bounds) == [(1, 5), (2, 2)]
    assert sorted((row.record_count, str(row.partition.at_day)) for row in files) == [
        (1, "2026-11-20"),
        (3, "2026-11-21"),
    ]


def test_rows_without_a_day_have_a_partition_too(spark: SparkSession, name: str, table: Table, rows: Rows) -> None:
    append_once(table(), marker(0), rows(0, 1))
    assert [row.id for row in spark.table(f"lake.{name}").where("at is null").collect()] == [0]
    assert ids(spark, name) == [0, 1]
