"""Rows of an Iceberg table that tasks read with PyIceberg: names of data files travel through the JVM, no rows.

PyIceberg finds columns by their ids, applies deletes, and leaves out the row groups that the filter rules out.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from lakeproof.errors import UnavailableError

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata

_BYTES_PER_TASK = 1 << 20
_FILE_COST = 1 << 16
"""Bytes that take as long to read as to open a file."""

ResultT = TypeVar("ResultT")


class FilesGoneError(UnavailableError):
    """Data files were removed since the scan was planned: the table was compacted, and its old snapshots expired."""


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
    """
    from pyiceberg.expressions import AlwaysTrue, And

    every = AlwaysTrue()
    # Tasks need the schemas, and no history.
    metadata = table.metadata.model_copy(
        update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "properties": {}}
    )
    files = list(table.scan(And(rows or every, within or every)).plan_files())
    return Scan(name, metadata, table.io, columns, rows or every, files)


def read(scan: Scan) -> Iterator[pa.RecordBatch]:
    """Read rows within a task.

    Raises
    ------
    FilesGoneError
        A data file is no longer there.
    UnavailableError
        A data file cannot be read.
    """
    from pyiceberg.io.pyarrow import ArrowScan

    schema = scan.metadata.schema()
    projected = schema.select(*scan.columns.values())
    try:
        # A file at a time: PyIceberg would read all of them before it returns the first rows.
        for file in scan.files:
            for batch in ArrowScan(scan.metadata, scan.io, projected, scan.rows).to_record_batches([file]):
                if batch.num_rows:
                    columns: Any = [batch.column(name) for name in scan.columns.values()]
                    yield pa.RecordBatch.from_arrays(columns, names=list(scan.columns))
    except FileNotFoundError as error:
        raise FilesGoneError(
            f"Data files of {scan.name} were removed while they were read: {error}.",
            "Run the consumer again. Keep expired snapshots for longer than a micro-batch takes.",
        ) from error
    except OSError as error:
        raise UnavailableError(f"Cannot read {scan.name}: {error}.", "Run the consumer again.") from error


def spread(spark: SparkSession, scan: Scan, work: Callable[[Scan], ResultT]) -> list[ResultT]:
    """Let tasks work on parts of a scan, of about the same number of bytes."""
    if not scan.files:
        return []
    context = spark.sparkContext
    total = sum(map(_cost, scan.files))
    groups = _balanced(scan.files, min(1 + total // _BYTES_PER_TASK, len(scan.files), context.defaultParallelism))
    parts = [replace(scan, files=files) for files in groups]
    return context.parallelize(parts, len(parts)).map(work).collect()


def _balanced(files: "Sequence[FileScanTask]", groups: int) -> "list[list[FileScanTask]]":
    heap: list[tuple[int, int]] = [(0, index) for index in range(groups)]
    dealt: list[list[FileScanTask]] = [[] for _ in range(groups)]
    for file in sorted(files, key=_cost, reverse=True):
        cost, lightest = heap[0]
        dealt[lightest].append(file)
        heapq.heapreplace(heap, (cost + _cost(file), lightest))
    return dealt


def _cost(file: "FileScanTask") -> int:
    return file.file.file_size_in_bytes + _FILE_COST
