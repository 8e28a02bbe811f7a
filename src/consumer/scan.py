"""Rows of an Iceberg table that tasks read with PyIceberg: names of data files travel through the JVM, no rows.

PyIceberg finds columns by their ids, applies deletes, and leaves out the row groups that the filter rules out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from consumer.balanced import balanced
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.tables.names import MICRO_BATCH_ID

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata

SMALL_ROWS = 20_000
"""Rows that the driver reads itself, at most, if they are not too many bytes either."""
_BYTES_PER_TASK = 1 << 20
_FILE_COST = 1 << 16
"""Bytes that take as long to read as to open a file."""

_ROW = "_row"

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Scan:
    """Data files of a table, and what is read of them.

    Parameters
    ----------
    name
        Name of the table.
    metadata
        Its schemas.
    io
        How to reach its files.
    columns
        The columns to read, by the names that they are returned with.
    rows
        Which rows.
    files
        The data files that may hold such rows.
    """

    name: str
    metadata: "TableMetadata"
    io: "FileIO"
    columns: Mapping[str, str]
    rows: "BooleanExpression"
    files: "Sequence[FileScanTask]"


def plan(
    table: "Table",
    name: str,
    columns: Mapping[str, str],
    rows: "BooleanExpression | None" = None,
    within: "BooleanExpression | None" = None,
    snapshot_id: int | None = None,
) -> Scan:
    """Find the data files of a table that may hold some rows.

    Parameters
    ----------
    table
        The table.
    name
        Its name.
    columns
        The columns to read, by the names that they are returned with.
    rows
        Which rows; all by default.
    within
        Leaves out data files only: PyIceberg does not filter rows by fields within objects.
    snapshot_id
        Of which snapshot; the current one by default.
    """
    from pyiceberg.expressions import AlwaysTrue, And

    every = AlwaysTrue()
    # Tasks need the schemas, and no history.
    metadata = table.metadata.model_copy(
        update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "properties": {}}
    )
    files = list(table.scan(And(rows or every, within or every), snapshot_id=snapshot_id).plan_files())
    return Scan(name, metadata, table.io, columns, rows or every, files)


def of_micro_batches(start: int, end: int) -> "BooleanExpression":
    """The rows of a bronze or silver table that are from some micro-batches of bronze."""
    from pyiceberg.expressions.parser import parse

    return parse(f"{MICRO_BATCH_ID} >= {start} and {MICRO_BATCH_ID} < {end}")


def read(scan: Scan) -> Iterator[pa.RecordBatch]:
    """Read rows within a task; each time, they come in the same order.

    Raises
    ------
    UnavailableError
        A data file cannot be read, or is no longer there: the table was compacted, and its old snapshots expired.
    """
    for file in scan.files:  # one at a time: PyIceberg would read all of them before it returns the first rows
        yield from _rows_of(scan, file)


def positions(scan: Scan, pick: Callable[[pa.Table], pa.Table]) -> dict[str, Any]:
    """Find the positions of some rows in their data files, within a task.

    Parameters
    ----------
    scan
        The scan, of all rows. Deletes are deletion vectors.
    pick
        Leaves the rows that are looked for, of those that it is given.

    Returns
    -------
    dict
        An array of positions by the location of a data file, of the files that have such rows.
    """
    from pyiceberg.table import FileScanTask

    found = {}
    for file in scan.files:
        first, mine = 0, []
        for rows in _rows_of(scan, FileScanTask(file.file)):  # as they lie there: what was deleted counts, too
            numbered = pa.Table.from_batches([rows]).append_column(
                _ROW, pa.array(np.arange(first, first + rows.num_rows))
            )
            mine.append(pick(numbered)[_ROW].to_numpy())
            first += rows.num_rows
        live = np.setdiff1d(np.concatenate(mine) if mine else [], _deleted(scan, file))
        if len(live):
            found[file.file.file_path] = live
    return found


def _rows_of(scan: Scan, file: "FileScanTask") -> Iterator[pa.RecordBatch]:
    from pyiceberg.io.pyarrow import ArrowScan

    projected = scan.metadata.schema().select(*scan.columns.values())
    try:
        for batch in ArrowScan(scan.metadata, scan.io, projected, scan.rows).to_record_batches([file]):
            if batch.num_rows:
                columns: Any = [batch.column(name) for name in scan.columns.values()]
                yield pa.RecordBatch.from_arrays(columns, names=list(scan.columns))
    except FileNotFoundError as error:
        raise UnavailableError(
            f"Data files of {scan.name} were removed while they were read: {error}.",
            "Run the consumer again. Keep expired snapshots for longer than a micro-batch takes.",
        ) from error
    except OSError as error:
        raise UnavailableError(f"Cannot read {scan.name}: {error}.", "Run the consumer again.") from error


def _deleted(scan: Scan, file: "FileScanTask") -> Any:
    """Positions of a data file that its deletion vectors have."""
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
    from pyiceberg.table.puffin import PuffinFile

    found: list[Any] = [np.array([], np.int64)]
    for each in file.delete_files:
        with scan.io.new_input(each.file_path).open() as content:
            vectors = deletion_vectors_from_puffin_file(PuffinFile(content.read()))
        found += [
            vector.to_vector().to_numpy() for vector in vectors if vector.referenced_data_file == file.file.file_path
        ]
    return np.concatenate(found)


def spread(spark: SparkSession, scan: Scan, parts: Sequence[PartT], work: Callable[[PartT], ResultT]) -> list[ResultT]:
    """Let a task work on each part of a scan; return what they return, in the same order.

    The driver works on a small scan itself: a task would take longer to start.

    Raises
    ------
    LakeproofError
        What a task failed with.
    """
    if not parts or is_small(scan):
        return list(map(work, parts))

    def attempt(part: PartT) -> ResultT | LakeproofError:
        try:
            return work(part)
        except LakeproofError as error:  # an exception would reach the driver as the text of a stack trace
            return error

    return succeeded(spark.sparkContext.parallelize(parts, len(parts)).map(attempt).collect())


def is_small(scan: Scan) -> bool:
    """Whether it takes less time to read the rows than to start a task for them."""
    return sum(file.file.record_count for file in scan.files) <= SMALL_ROWS and _bytes_of(scan) <= _BYTES_PER_TASK


def parts_of(spark: SparkSession, scan: Scan) -> list[Scan]:
    """Parts of a scan of about the same number of bytes, at most as many as there are cores."""
    if not scan.files:
        return []
    total = _bytes_of(scan)
    cores = spark.sparkContext.defaultParallelism
    groups = balanced(scan.files, min(1 + total // _BYTES_PER_TASK, len(scan.files), cores), _cost)
    return [replace(scan, files=files) for files in groups]


def succeeded(results: Iterable[ResultT | LakeproofError]) -> list[ResultT]:
    """What tasks returned; the error of one that failed is raised."""
    found = []
    for result in results:
        if isinstance(result, LakeproofError):
            raise result
        found.append(result)
    return found


def _bytes_of(scan: Scan) -> int:
    return sum(map(_cost, scan.files))


def _cost(file: "FileScanTask") -> int:
    return file.file.file_size_in_bytes + _FILE_COST
