"""Removal of rows by new data files without them: a delete file would leave their bytes in storage.

Spark deletes the rows on a branch that no reader follows. The rows of the replaced and the new files are read and
compared by micro-batch: the old rows must equal the remaining rows plus the rows to remove. Only then does one commit
replace the files in the table itself, and rewrite its manifests, which have bounds of the old files.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from consumer.iceberg.append import ATTEMPTS, OpenTable, commit_prepared, identifier_of
from consumer.iceberg.jvm import elements, first_cause, is_cancelled, java_class
from consumer.iceberg.rewrite import (
    CollisionError,
    Groups,
    NotEqualError,
    drop_branches,
    head_of,
    make_branch,
    only_in,
    read_groups,
    tasks_of,
)
from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError, UnavailableError, UsageError

REMOVED = "lakeproof.removed"
"""Entry in the summary of a snapshot that removed rows: the request."""
_TRIES = 3


@dataclass(frozen=True)
class Removed:
    """The result of a removal from a table."""

    rows: int
    files: int
    """Number of replaced data files."""
    snapshot_id: int


@dataclass(frozen=True)
class Accounted:
    """An account of the removed rows, written by the same commit as a property of the table."""

    property: str
    was: str | None
    value: str
    rows: int
    """Number of rows that it adds to the account."""


@contextmanager
def removal_errors(table: str, hint: str) -> Iterator[None]:
    """Report why rows of a table were not removed; `hint` is for a collision with another program."""
    try:
        yield
    except NotEqualError as error:
        raise LakeproofError(
            f"Rows were not removed, since others would have changed: {error}",
            "Nothing was published. Report this as a bug, with the versions.",
        ) from error
    except CollisionError as error:
        raise UnavailableError(
            f"Rows of {table} were not removed, since another program changed it meanwhile: {error}", hint
        ) from error


def remove(
    table: OpenTable, keys: DataFrame, on: Mapping[str, str], request: str, account: Accounted | None = None
) -> Removed | None:
    """Remove the rows with the given keys; return None if no row has one.

    `on` maps the columns of `keys` to SQL expressions that they must equal, in which `row` is a row of the table.
    Raises NotEqualError if other rows would be removed or changed, and CollisionError if another writer changed the
    files or the account meanwhile; the table then stays unchanged.
    """
    for left in reversed(range(_TRIES)):
        try:
            return _remove(table, keys, on, request, account)
        except (Py4JJavaError, PySparkException) as error:
            # If the catalog's answer to Spark's own commit was lost, Iceberg mistakes the landed commit for a collision
            # and deletes its manifests. The commit was on the branch, which is dropped.
            if is_cancelled(error):  # the application ends, and does not wait for another try
                raise
            if left:
                continue
            if isinstance(error, Py4JJavaError):
                raise
            raise CollisionError(first_cause(error)) from error
    return None


def _remove(
    table: OpenTable, keys: DataFrame, on: Mapping[str, str], request: str, account: Accounted | None
) -> Removed | None:
    drop_branches(table)
    start = table.loaded.currentSnapshot()
    if start is None:
        return None
    branch = make_branch(table, start.snapshotId())
    view = f"removed_{uuid.uuid4().hex}"
    keys.createOrReplaceTempView(view)
    try:
        equal = " AND ".join(f"{view}.`{name}` = {sql}" for name, sql in on.items())
        table.spark.sql(
            f"DELETE FROM {CATALOG}.{identifier_of(table.name)}.`branch_{branch}` AS row "
            f"WHERE EXISTS (SELECT 1 FROM {view} WHERE {equal})"
        ).collect()
        head = head_of(table, branch, start.snapshotId())
        if head.snapshotId() == start.snapshotId():
            return None
        old, new = only_in(table, start.snapshotId(), head.snapshotId())
        if any(task.deletes() for task in new):
            raise UsageError(
                f"{table.name} has the property write.delete.mode: rows would only be marked as deleted.",
                f"Run: ALTER TABLE {CATALOG}.{table.name} UNSET TBLPROPERTIES ('write.delete.mode').",
            )
        if not old:  # Spark makes a snapshot even without changes
            return None
        rows = _proven(table, old, new, keys, on)
        if account and account.rows != rows:
            raise NotEqualError(f"{table.name}: {rows:,} rows would be removed, and {account.rows:,} accounted for")
        return Removed(rows, len(old), _publish(table, branch, old, new, request, account))
    finally:
        table.spark.catalog.dropTempView(view)
        drop_branches(table, branch)


def _proven(table: OpenTable, old: list[Any], new: list[Any], keys: DataFrame, on: Mapping[str, str]) -> int:
    """Check that the new files have all rows of the old ones except those to remove; return the number of these."""

    def wanted(rows: DataFrame) -> DataFrame:
        named = rows.alias("row")
        columns = {name: sf.expr(sql) for name, sql in on.items()}
        return named.join(
            sf.broadcast(keys.alias("wanted")),
            [sf.col(f"wanted.`{name}`") == column for name, column in columns.items()],
            "left_semi",
        )

    _, before = read_groups(table, old)
    _, removed = read_groups(table, old, wanted)
    _, after = read_groups(table, new)
    written = sum(int(task.file().recordCount()) for task in new)
    left = _less(before, removed)
    if left != after or written != sum(count for count, _ in after.values()):
        differing = sum(left.get(group) != after.get(group) for group in left.keys() | after.keys())
        raise NotEqualError(f"{table.name}: {differing:,} micro-batches would not be what is left of them")
    return sum(count for count, _ in removed.values())


def _less(groups: Groups, removed: Groups) -> Groups:
    found = {}
    for number, (rows, hashed) in groups.items():
        less_rows, less_hash = removed.get(number, (0, 0))
        if rows != less_rows:
            found[number] = rows - less_rows, hashed - less_hash
    return found


def _publish(
    table: OpenTable, branch: str, old: list[Any], new: list[Any], request: str, account: Accounted | None
) -> int:
    """Replace files in the table itself, write its manifests again, and drop the branch, in one commit."""
    for _ in range(ATTEMPTS):
        transaction = table.loaded.newTransaction()  # reads the table again
        current = transaction.startMetadata().currentSnapshot()
        has = dict(tasks_of(table, current.snapshotId()))
        gone = [task for task in old if _key(task) not in has]
        if gone or transaction.startMetadata().ref(branch) is None:
            raise CollisionError(f"another writer has changed {len(gone):,} of the files meanwhile")
        if account:
            if transaction.startMetadata().properties().get(account.property) != account.was:
                raise CollisionError("another retention has removed rows meanwhile")
            transaction.updateProperties().set(account.property, account.value).commit()
        update = transaction.newOverwrite()
        for task in old:
            update.deleteFile(task.file())
        for task in new:
            update.addFile(task.file())
        update.set(REMOVED, request)
        update.commit()
        # A manifest keeps the bounds of files that were removed from it until it is rewritten.
        rewrite = transaction.rewriteManifests().clusterBy(_constant(table))
        rewrite.set(REMOVED, request)
        rewrite.commit()
        transaction.manageSnapshots().removeBranch(branch).commit()
        snapshot = transaction.currentMetadata().currentSnapshot()
        if commit_prepared(table, transaction, snapshot):
            return int(snapshot.snapshotId())
    raise CollisionError("Other writers keep changing the table.")


def _key(task: Any) -> tuple[str, tuple[str, ...]]:
    return str(task.file().location()), tuple(sorted(str(each.location()) for each in elements(task.deletes())))


def _constant(table: OpenTable) -> Any:
    """Return a function of the JVM that assigns each file to the same cluster."""
    # A map is a function in Scala.
    nothing = getattr(java_class(table.spark, "scala.collection.immutable.Map$"), "MODULE$").empty()
    constant = nothing.withDefaultValue("")
    return java_class(table.spark, "scala.jdk.javaapi.FunctionConverters").asJavaFunction(constant)
