"""Upserts that happen exactly once: new rows are added and the replaced ones deleted in one commit with one marker.

Rows are removed by deletion vectors of Iceberg v3, one per data file, which include the rows of the previous vector. A
data file without remaining rows is removed as a whole, so the number of files does not grow with each upsert.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from consumer.iceberg.append import OpenTable, commit_once, described
from consumer.iceberg.data_files import DataFile
from consumer.iceberg.jvm import elements, java_class, long_array
from consumer.iceberg.marker import Marker
from lakeproof.errors import UnavailableError

Span = tuple[int, int]
"""A span from one time to before another, in microseconds since 1970."""

# Py4J passes a smaller number as an Integer, which Iceberg does not accept as a time.
_INT = 1 << 31


@dataclass(frozen=True)
class OldRows:
    """Rows of a table that new rows replace.

    `positions` are their positions by location of the data file. `column` is a timestamp column, and `spans` has its
    values in these rows, to find the data files.
    """

    positions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    column: str = ""
    spans: Sequence[Span] = ()


def upsert_once(
    table: OpenTable, marker: Marker, files: Sequence[DataFile], find_old: Callable[[int], OldRows]
) -> bool:
    """Add data files and remove the rows that they replace, unless the table already has the marker.

    An upsert without files is committed, too: its marker keeps the sequence complete. `find_old` finds the rows to
    remove in a snapshot, by its id; it is called again if others rewrote the table meanwhile. For the result and
    errors, see :func:`consumer.iceberg.append.commit_once`. The table has version 3 of the format.
    """

    def upsert(transaction: Any) -> Any:
        update = transaction.newRowDelta()
        for file in described(table, files):
            update.addRows(file)
        snapshot = transaction.table().currentSnapshot()
        if snapshot is not None:
            _remove(table, update, snapshot.snapshotId(), find_old(snapshot.snapshotId()))
        return update

    return commit_once(table, marker, upsert)


def _remove(table: OpenTable, update: Any, snapshot_id: int, old: OldRows) -> None:
    """Let an update remove rows of the snapshot from which it is prepared."""
    if not old.positions:
        return
    named = partial(java_class, table.spark)
    puffin = named("org.apache.iceberg.FileFormat").PUFFIN
    vectors = named("org.apache.iceberg.io.OutputFileFactory").builderFor(table.loaded, 0, 0).format(puffin).build()
    inputs, before = named("java.util.HashMap")(), named("java.util.HashMap")()
    functions = named("com.google.common.base.Functions")
    loader = named("org.apache.iceberg.data.BaseDeleteLoader")(functions.forMap(inputs))
    writer = named("org.apache.iceberg.deletes.BaseDVFileWriter")(vectors, functions.forMap(before, None))
    for task, positions in _tasks(table, snapshot_id, old):
        file, deletes = task.file(), elements(task.deletes())
        if len(positions) + sum(vector.recordCount() for vector in deletes) == file.recordCount():
            update.removeRows(file)
            for vector in deletes:
                update.removeDeletes(vector)
            continue
        if deletes:
            for vector in deletes:
                inputs.put(vector, table.loaded.io().newInputFile(vector.location(), vector.fileSizeInBytes()))
            before.put(file.location(), loader.loadPositionDeletes(task.deletes(), file.location()))
        spec = table.loaded.specs().get(file.specId())
        writer.delete(file.location(), _index(table, positions), spec, file.partition())
    writer.close()
    written = writer.result()
    for vector in elements(written.deleteFiles()):
        update.addDeletes(vector)
    for vector in elements(written.rewrittenDeleteFiles()):
        update.removeDeletes(vector)
    # Otherwise Iceberg mistakes each vector of the table's history for one that was added meanwhile.
    update.validateFromSnapshot(snapshot_id)


def _tasks(table: OpenTable, snapshot_id: int, old: OldRows) -> Iterator[tuple[Any, Sequence[int]]]:
    """Yield scan tasks for the data files of old rows, with their deletion vectors, and the positions of the rows."""
    left = dict(old.positions)
    planned = table.loaded.newScan().useSnapshot(snapshot_id).filter(_within(table, old)).planFiles()
    try:
        tasks = planned.iterator()
        while left and tasks.hasNext():
            task = tasks.next()
            positions = left.pop(task.file().location(), None)
            if positions is not None:
                yield task, positions
    finally:
        planned.close()
    if left:
        raise UnavailableError(f"{table.name} no longer has the file {min(left)}.", "Run the consumer again.")


def _within(table: OpenTable, old: OldRows) -> Any:
    """Return an Iceberg expression for the spans of old rows."""
    expressions = java_class(table.spark, "org.apache.iceberg.expressions.Expressions")
    either, both = getattr(expressions, "or"), getattr(expressions, "and")
    found = expressions.alwaysFalse()
    for start, end in old.spans:
        low = expressions.greaterThanOrEqual(old.column, start if abs(start) > _INT else -_INT - 1)
        high = expressions.lessThan(old.column, end if abs(end) > _INT else _INT)
        found = either(found, both(low, high))
    return found


def _index(table: OpenTable, positions: Sequence[int]) -> Any:
    """Return positions as an index of Iceberg's."""
    named = partial(java_class, table.spark)
    numbers = long_array(table.spark, np.asarray(positions, dtype=">i8").tobytes())
    listed = named("org.apache.iceberg.relocated.com.google.common.primitives.Longs").asList(numbers)
    iterable = named("org.apache.iceberg.io.CloseableIterable").of(listed)
    return named("org.apache.iceberg.deletes.Deletes").toPositionIndex(iterable)
