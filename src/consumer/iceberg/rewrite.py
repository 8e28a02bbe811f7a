"""Compaction that is proven before readers see it.

Iceberg's own action rewrites small data files on a branch that no reader follows. The rows of the replaced and the new
files are read and compared by an order-independent hash. Only then does one commit swap the files in the table itself,
and drop the branch. Rows that were appended meanwhile are kept; if a replaced file was changed meanwhile, Iceberg
refuses the commit, and the table stays unchanged.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructField, StructType, VariantType

from consumer.iceberg.append import ATTEMPTS, OpenTable, clock_errors, commit_prepared, quoted
from consumer.iceberg.jvm import elements, exception_class, first_cause, java_class, static_method
from consumer.iceberg.memory import MEMORY
from lakeproof.catalog import CATALOG
from lakeproof.tables.names import MICRO_BATCH_ID

BRANCH = "lakeproof-maintenance"
"""Prefix of branches on which files are rewritten. A killed maintenance leaves one behind."""

_NESTED = (ArrayType, MapType, StructType, VariantType)
_TO_THE_MICROSECOND = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"  # the default drops microseconds
_WHOLE = {
    "ignoreNullFields": "false",
    "timestampFormat": f"{_TO_THE_MICROSECOND}XXX",
    "timestampNTZFormat": _TO_THE_MICROSECOND,
}
_COLLECTIONS = "org.apache.iceberg.relocated.com.google.common.collect"
SWAPPED = "lakeproof.maintenance"
"""Entry in the summary of the snapshot that swaps files."""
_DROPPED = "another maintenance dropped the branch of this one"
# Exceptions for a change by another writer between reading the table and the commit.
_COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"
_COLLISIONS = (_COMMIT_FAILED, "org.apache.iceberg.exceptions.ValidationException")
# Merges all small manifests in the commit that swaps files. Nobody sees the property: the same commit removes it.
_MERGE_MANIFESTS = ("commit.manifest.min-count-to-merge", "2")


class NotEqualError(Exception):
    """Rows before and after a compaction differ, so it was not published."""


class CollisionError(Exception):
    """Another writer changed the compacted files. The table is as that writer left it."""


@dataclass(frozen=True)
class Side:
    """Data files on one side of a compaction, and the time to read all their rows."""

    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Compacted:
    """The data files of a compaction before and after."""

    rows: int
    before: Side
    after: Side


_Key = tuple[str, tuple[str, ...]]
"""A data file and its delete files, by their locations."""


@dataclass(frozen=True)
class Work:
    """Data files that a compaction would replace."""

    files: int
    bytes: int


def work(table: OpenTable, options: Mapping[str, str]) -> Work:
    """Return the files that :func:`compact` would replace, as planned by Iceberg's own action."""
    if table.loaded.currentSnapshot() is None:
        return Work(0, 0)
    planner = java_class(table.spark, "org.apache.iceberg.actions.BinPackRewriteFilePlanner")(table.loaded)
    planner.init(dict(options))
    lists = java_class(table.spark, f"{_COLLECTIONS}.Lists")
    groups = elements(lists.newArrayList(planner.plan().groups()))
    sizes = [(int(each.inputFileNum()), int(each.inputFilesSizeInBytes())) for each in groups]
    return Work(sum(files for files, _ in sizes), sum(size for _, size in sizes))


def compact(table: OpenTable, options: Mapping[str, str]) -> Compacted | None:
    """Rewrite small data files of a table, sorted by the time of its partitions; return None if no file is small.

    `options` are those of Iceberg's ``rewrite_data_files``. Raises NotEqualError if the rows before and after differ,
    and CollisionError if another writer changed the files meanwhile; the table then stays unchanged.
    """
    drop_branches(table)
    if not work(table, options).files:
        return None
    start = table.loaded.currentSnapshot()
    if start is None:
        return None
    snapshot_id = start.snapshotId()
    branch = make_branch(table, snapshot_id)
    try:
        _rewrite(table, branch, options)
        head = head_of(table, branch, snapshot_id)
        if head.snapshotId() == snapshot_id:
            return None
        old, new = only_in(table, snapshot_id, head.snapshotId())
        found = _compare(table, old, new)
        _swap(table, branch, start, old, new)
        MEMORY.forget_files({str(task.file().location()) for task in old})
    except (Py4JJavaError, PySparkException) as error:
        table.loaded.refresh()
        if table.loaded.refs().containsKey(branch):
            raise
        raise CollisionError(_DROPPED) from error
    finally:
        drop_branches(table, branch)
    return found


def make_branch(table: OpenTable, snapshot_id: int) -> str:
    """Create a branch for a rewrite; return its name.

    The name is unique: a second maintainer, with leases in another database, drops the branch but never continues it.
    """
    branch = f"{BRANCH}-{uuid.uuid4().hex[:12]}"
    _change_branch(table, branch, snapshot_id)
    return branch


def head_of(table: OpenTable, branch: str, start_id: int) -> Any:
    """Return the newest snapshot of a branch made at a snapshot; raise CollisionError if the branch was dropped."""
    table.loaded.refresh()
    head = first = table.loaded.snapshot(branch)
    while first is not None and start_id not in (first.snapshotId(), first.parentId()):
        parent = first.parentId()
        first = None if parent is None else table.loaded.snapshot(parent)
    # A commit to a dropped branch creates it again at the table's newest snapshot, with rows appended meanwhile.
    if first is None or (head.snapshotId() != start_id and table.descends_from(first.snapshotId())):
        raise CollisionError(_DROPPED)
    return head


def drop_branches(table: OpenTable, prefix: str = BRANCH) -> None:
    """Drop branches with rewritten files. Files that only these branches have are removed when snapshots expire."""
    table.loaded.refresh()
    for name in [str(name) for name in elements(table.loaded.refs().keySet())]:
        if name.startswith(prefix):
            _change_branch(table, name, None)


def _change_branch(table: OpenTable, name: str, snapshot_id: int | None) -> None:
    """Create a branch at a snapshot, or drop it if `snapshot_id` is None."""
    for left in reversed(range(ATTEMPTS)):
        try:
            manage = table.loaded.manageSnapshots()
            with clock_errors(table):
                (manage.removeBranch(name) if snapshot_id is None else manage.createBranch(name, snapshot_id)).commit()
        except Py4JJavaError as error:
            table.loaded.refresh()
            # After a lost answer, Iceberg tries again and fails because the change has landed. After a commit of
            # another writer, each of its tries fails: it does not apply the change to the new metadata.
            if table.loaded.refs().containsKey(name) == (snapshot_id is not None):
                return
            if not left or exception_class(error) != _COMMIT_FAILED:
                raise
        else:
            return


def _rewrite(table: OpenTable, branch: str, options: Mapping[str, str]) -> None:
    """Rewrite files on the branch."""
    fields = table.loaded.spec().fields()
    sort_by = "" if fields.isEmpty() else str(table.loaded.schema().findColumnName(fields.get(0).sourceId()))
    given = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    order = f", strategy => 'sort', sort_order => '`{sort_by}`'" if sort_by else ""
    table.spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => {quoted(table.name)}, branch => '{branch}', "
        f"options => map({given}){order})"
    ).collect()


def only_in(table: OpenTable, before: int, after: int) -> tuple[list[Any], list[Any]]:
    """Return scan tasks of the files that only one of two snapshots has, or that have different deletes."""
    old, new = dict(tasks_of(table, before)), dict(tasks_of(table, after))
    return [old[key] for key in old.keys() - new.keys()], [new[key] for key in new.keys() - old.keys()]


def tasks_of(table: OpenTable, snapshot_id: int) -> Iterator[tuple[_Key, Any]]:
    """Yield scan tasks of the files of a snapshot, with the delete files of each."""
    planned = table.loaded.newScan().useSnapshot(snapshot_id).planFiles()
    try:
        for task in elements(java_class(table.spark, f"{_COLLECTIONS}.Lists").newArrayList(planned)):
            deletes = sorted(str(each.location()) for each in elements(task.deletes()))
            yield (str(task.file().location()), tuple(deletes)), task
    finally:
        planned.close()


def _compare(table: OpenTable, old: list[Any], new: list[Any]) -> Compacted:
    """Read the rows of both sides, and check that they are equal."""
    before, of_old = read_groups(table, old)
    after, of_new = read_groups(table, new)
    # The number of rows that Iceberg recorded when it wrote the files: a scan of other files would differ from it.
    written = sum(int(task.file().recordCount()) for task in new)
    if of_old != of_new or written != sum(count for count, _ in of_new.values()):
        groups = of_old.keys() | of_new.keys()
        differing = sorted((group for group in groups if of_old.get(group) != of_new.get(group)), key=str)
        rows = [sum(count for count, _ in side.values()) for side in (of_old, of_new)]
        shown = ", ".join("without a number" if group is None else f"{group:,}" for group in differing[:5])
        raise NotEqualError(
            f"{table.name}: {rows[0]:,} rows before and {rows[1]:,} after it; {len(differing):,} micro-batches differ"
            f" ({shown}{' …' if len(differing) > len(differing[:5]) else ''})"
        )
    return Compacted(sum(count for count, _ in of_old.values()), before, after)


Groups = dict[int | None, tuple[int, int]]
"""Number of rows and sum of their hashes, by micro-batch."""


def read_groups(
    table: OpenTable, tasks: list[Any], some: Callable[[DataFrame], DataFrame] = lambda rows: rows
) -> tuple[Side, Groups]:
    """Count and hash the rows of scan tasks, or some of them, by micro-batch."""
    files = len(tasks)
    size = sum(int(task.file().fileSizeInBytes()) for task in tasks)
    began = time.monotonic()
    groups: Groups = {}
    if tasks:
        with _staged(table, tasks) as staged:
            rows = some(staged)
            number = sf.col(MICRO_BATCH_ID) if MICRO_BATCH_ID in rows.columns else sf.lit(None).cast("long")
            hashed = rows.select(number.alias("number"), row_hash(rows).cast("decimal(38, 0)").alias("hash"))
            counted = hashed.groupBy("number").agg(sf.count("*").alias("rows"), sf.sum("hash").alias("hash"))
            groups = {row["number"]: (row["rows"], int(row["hash"])) for row in counted.collect()}
    return Side(files, size, time.monotonic() - began), groups


def row_hash(rows: DataFrame) -> Column:
    """Return a 64-bit hash of all columns of a row. Nulls and missing nested values differ."""
    parts: list[Column] = []
    for field in rows.schema.fields:
        column = sf.col(f"`{field.name}`")
        parts += [column.isNull(), _comparable(column, field)]
    return sf.xxhash64(*parts)


def _comparable(column: Column, field: StructField) -> Column:
    """Convert a nested column to JSON: Spark cannot hash maps."""
    if isinstance(field.dataType, _NESTED):
        return sf.to_json(sf.struct(column), _WHOLE)
    return column


@contextmanager
def _staged(table: OpenTable, tasks: list[Any]) -> Iterator[DataFrame]:
    """Provide the rows of scan tasks, in the way that Iceberg's own action reads the files that it rewrites."""
    named, name = partial(java_class, table.spark), uuid.uuid4().hex
    manager = named("org.apache.iceberg.spark.ScanTaskSetManager").get()
    tables = static_method(table.spark, "org.apache.iceberg.spark.SparkTableCache", "get")()
    staged = named("java.util.ArrayList")()
    for task in tasks:
        staged.add(task)
    tables.add(name, table.loaded)
    manager.stageTasks(table.loaded, name, staged)
    try:
        yield table.spark.read.format("iceberg").load(name)
    finally:
        tables.remove(name)
        manager.removeTasks(table.loaded, name)


def _swap(table: OpenTable, branch: str, start: Any, old: list[Any], new: list[Any]) -> None:
    """Replace files in the table itself, merge its manifests, and drop the branch, in one commit.

    Until this commit, the branch protects the new files from expiry; the commit fails if the branch was dropped.
    """
    for _ in range(ATTEMPTS):
        transaction = table.loaded.newTransaction()  # reads the table again
        try:
            snapshot = _prepare(table, transaction, branch, start, old, new)
        except Py4JJavaError as error:
            if exception_class(error) in _COLLISIONS:
                raise CollisionError(first_cause(error)) from error
            raise
        if commit_prepared(table, transaction, snapshot):
            return
    raise CollisionError("Other writers keep changing the table.")


def _prepare(table: OpenTable, transaction: Any, branch: str, start: Any, old: list[Any], new: list[Any]) -> Any:
    key, value = _MERGE_MANIFESTS
    was = table.property(key)
    transaction.updateProperties().set(key, value).commit()
    update = transaction.newRewrite().validateFromSnapshot(start.snapshotId())
    update.dataSequenceNumber(start.sequenceNumber())
    is_vector = java_class(table.spark, "org.apache.iceberg.util.ContentFileUtil").isDV
    for task in old:
        update.deleteFile(task.file())
        for deletes in elements(task.deletes()):
            if is_vector(deletes):
                update.deleteFile(deletes)
    for task in new:
        update.addFile(task.file())
    update.set(SWAPPED, "compacted")
    update.commit()
    properties = transaction.updateProperties()
    (properties.remove(key) if was is None else properties.set(key, was)).commit()
    transaction.manageSnapshots().removeBranch(branch).commit()
    return transaction.currentMetadata().currentSnapshot()
