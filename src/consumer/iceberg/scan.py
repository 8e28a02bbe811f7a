"""Rows of an Iceberg table that tasks read with PyIceberg: names of data files pass through the JVM, but no rows.

PyIceberg finds columns by their ids, applies deletes, and skips the row groups that the filter excludes.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import SparkSession

from consumer.iceberg.derivation import Derivation
from consumer.iceberg.memory import MEMORY, ROWS
from consumer.iceberg.newest import outdated
from consumer.spreading import balanced, in_tasks
from lakeproof.catalog import io_for_tasks
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.tables.names import MICRO_BATCH_ID

SMALL_ROWS = 20_000
"""Maximum number of rows that the driver reads itself; the number of bytes is limited, too."""
_BYTES_PER_TASK = 1 << 20
# Opening a file takes as long as reading this many bytes.
_FILE_COST = 1 << 16
_ROW = "_row"

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Scan:
    """Data files of the table `name` that may have the wanted rows, and the columns to read.

    `metadata` has schemas only. `columns` maps the returned names to the columns of the table.
    """

    name: str
    metadata: TableMetadata
    io: FileIO
    columns: Mapping[str, str]
    rows: BooleanExpression
    files: Sequence[FileScanTask]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"io": io_for_tasks(self.io)}


@dataclass(frozen=True)
class _Manifest:
    """A manifest with cached entries."""

    file: ManifestFile

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        return MEMORY.entries(self.file, io, discard_deleted)


def plan(
    table: Table,
    name: str,
    columns: Mapping[str, str],
    rows: BooleanExpression | None = None,
    within: BooleanExpression | None = None,
    snapshot_id: int | None = None,
) -> Scan:
    """Find the data files of a table that may have the wanted rows; by default, all rows of its current snapshot.

    `columns` maps the returned names to the columns to read. `within` excludes data files only: PyIceberg does not
    filter rows by fields within objects.
    """
    from pyiceberg.expressions import AlwaysTrue, And
    from pyiceberg.expressions.visitors import UnpartitionedResidualEvaluator
    from pyiceberg.table import ManifestGroupPlanner

    every = AlwaysTrue()
    # Tasks need the schemas, and no history.
    metadata = table.metadata.model_copy(
        update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "properties": {}}
    )
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None and snapshot_id is not None:
        raise outdated(name)
    manifests: Any = [_Manifest(file) for file in snapshot.manifests(table.io)] if snapshot else []
    planner: Any = ManifestGroupPlanner(table.metadata, table.io, And(rows or every, within or every))
    # Residuals are unused, and PyIceberg fails to compare a null partition, which has the rows without event time.
    whole = UnpartitionedResidualEvaluator(table.schema(), every)
    planner._build_residual_evaluator = lambda _: lambda _: whole
    try:
        files = list(planner.plan_files(manifests))
    except ValueError as error:  # PyIceberg has no error class for equality deletes: check the manifests
        if not any(_has_equality_deletes(manifest, table.io) for manifest in manifests):
            raise
        raise LakeproofError(
            f"Another program has deleted rows of {name} by equality deletes, which the consumer does not read.",
            f"Stop that program, then roll {name} back to the snapshot before: CALL lake.system.rollback_to_snapshot. "
            "Or, if it is a table of silver or gold, run `consumer rebuild`.",
        ) from error
    return Scan(name, metadata, table.io, columns, rows or every, files)


def _has_equality_deletes(manifest: _Manifest, io: FileIO) -> bool:
    from pyiceberg.manifest import DataFileContent

    return any(
        entry.data_file.content == DataFileContent.EQUALITY_DELETES for entry in manifest.fetch_manifest_entry(io)
    )


def of_micro_batches(start: int, end: int, column: str = MICRO_BATCH_ID) -> BooleanExpression:
    """Return a filter for rows of a bronze or silver table from the micro-batches `start` to before `end` of bronze."""
    from pyiceberg.expressions.parser import parse

    return parse(f"{column} >= {start} and {column} < {end}")


def read(scan: Scan) -> Iterator[pa.RecordBatch]:
    """Read rows within a task, always in the same order."""
    for file in scan.files:  # one at a time: PyIceberg would read all files before it returns the first rows
        yield from _rows_of(scan, file)


def positions(spark: SparkSession, scan: Scan, pick: Callable[[pa.Table], pa.Table]) -> dict[str, Any]:
    """Return the positions of the picked rows in their data files, by location of the file.

    `pick` selects the rows. The scan must be of all rows, and deletes of the table must be deletion vectors.
    """
    from pyiceberg.table import FileScanTask

    # Without deletes: positions count deleted rows, too.
    fits, rest = whole_files(replace(scan, files=[FileScanTask(file.file) for file in scan.files]))
    found: dict[str, Any] = {
        file.file.file_path: _picked(rows, 0, pick)
        for file, rows in zip(fits.files, derived(spark, fits, _as_table, "positions"), strict=True)
    }

    def find(part: Scan) -> dict[str, Any]:
        return {file.file.file_path: _positions_in(part, file, pick) for file in part.files}

    for part in spread(spark, rest, find):
        found |= part
    for file in scan.files:
        path = file.file.file_path
        if len(found[path]):
            found[path] = np.setdiff1d(found[path], _deleted(scan, file))
    return {path: live for path, live in found.items() if len(live)}


def _positions_in(scan: Scan, file: FileScanTask, pick: Callable[[pa.Table], pa.Table]) -> Any:
    first, mine = 0, [np.array([], np.int64)]
    for rows in _rows_of(scan, file):
        mine.append(_picked(_as_table(rows), first, pick))
        first += rows.num_rows
    return np.concatenate(mine)


def _picked(rows: pa.Table, first: int, pick: Callable[[pa.Table], pa.Table]) -> Any:
    numbers = pa.array(np.arange(first, first + rows.num_rows))
    return pick(rows.append_column(_ROW, numbers))[_ROW].to_numpy()


def _as_table(rows: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows])


def _rows_of(scan: Scan, file: FileScanTask) -> Iterator[pa.RecordBatch]:
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

    from consumer.iceberg.nulls import keep_nulls

    keep_nulls()
    projected = scan.metadata.schema().select(*scan.columns.values())
    types = schema_to_pyarrow(projected, include_field_ids=False)
    try:
        for batch in ArrowScan(scan.metadata, scan.io, projected, scan.rows).to_record_batches([file]):
            if batch.num_rows:
                # In files compacted by other tools, the same columns have other Arrow types.
                columns: Any = [batch.column(name).cast(types.field(name).type) for name in scan.columns.values()]
                yield pa.RecordBatch.from_arrays(columns, names=list(scan.columns))
    except FileNotFoundError as error:
        raise UnavailableError(
            f"Data files of {scan.name} were removed while they were read: {error}.",
            "Run the consumer again. Keep expired snapshots for longer than a micro-batch takes.",
        ) from error
    except OSError as error:
        raise UnavailableError(f"Cannot read {scan.name}: {error}.", "Run the consumer again.") from error


def _deleted(scan: Scan, file: FileScanTask) -> Any:
    """Return the positions of a data file in its deletion vectors."""
    found: list[Any] = [np.array([], np.int64)]
    for path in {each.file_path for each in file.delete_files}:
        vectors = MEMORY.vectors(path, partial(_vectors, path, scan.io))
        if file.file.file_path in vectors:
            found.append(vectors[file.file.file_path])
    return np.concatenate(found)


def _vectors(path: str, io: FileIO) -> dict[str, Any]:
    """Read a file of deletion vectors; return the deleted positions by data file."""
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
    from pyiceberg.table.puffin import PuffinFile

    with io.new_input(path).open() as content:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(content.read()))
    return {vector.referenced_data_file: vector.to_vector().to_numpy() for vector in vectors}


def spread(spark: SparkSession, scan: Scan, work: Callable[[Scan], ResultT]) -> list[ResultT]:
    """Process the parts of a scan in tasks; see :func:`spread_parts`."""
    return spread_parts(spark, scan, parts_of(spark, scan), work)


def spread_parts(
    spark: SparkSession, scan: Scan, parts: Sequence[PartT], work: Callable[[PartT], ResultT]
) -> list[ResultT]:
    """Process each part of a scan in a task; return the results in the same order.

    The driver processes a small scan itself: starting a task would take longer.
    """
    return list(map(work, parts)) if is_small(scan) else in_tasks(spark.sparkContext, parts, work)


def whole_files(scan: Scan) -> tuple[Scan, Scan]:
    """Split a scan into the data files for :func:`derived`, and the rest.

    The former are data files with all their rows in the scan: no row was deleted, and the filter holds for every row.
    The smallest files come first: they cost the most per row.
    """
    from pyiceberg.expressions.visitors import ROWS_MUST_MATCH, _StrictMetricsEvaluator

    is_whole = _StrictMetricsEvaluator(scan.metadata.schema(), scan.rows).eval
    fits, rest, rows = [], [], 0
    for file in sorted(scan.files, key=lambda file: file.file.record_count):
        count = file.file.record_count
        if not count or file.delete_files or rows + count > ROWS or is_whole(file.file) != ROWS_MUST_MATCH:
            rest.append(file)
        else:
            fits.append(file)
            rows += count
    return replace(scan, files=fits), replace(scan, files=rest)


def derived(
    spark: SparkSession,
    scan: Scan,
    derive: Callable[[pa.RecordBatch], pa.Table],
    kind: Hashable,
    repeats: int = 1,
) -> list[pa.Table]:
    """Return the result of a function for each data file of the first scan that :func:`whole_files` returned.

    Results are cached, so they must depend on the rows only; `kind` identifies the function. A result has each row
    `repeats` times at most.
    """
    derivation = derivation_of(scan, derive, kind, repeats)
    MEMORY.want(scan.name, derivation)

    def work(part: Scan) -> list[pa.Table]:
        return [derivation.of(_rows_of(part, file)) for file in part.files]

    known = {file.file.file_path: MEMORY.table(file.file.file_path, derivation.key) for file in scan.files}
    missing = replace(scan, files=[file for file in scan.files if known[file.file.file_path] is None])
    parts = parts_of(spark, missing)
    for part, tables in zip(parts, spread_parts(spark, missing, parts, work), strict=True):
        for file, table in zip(part.files, tables, strict=True):
            known[file.file.file_path] = table
            MEMORY.keep(file.file.file_path, {derivation.key: table})
    return [table for table in known.values() if table is not None]


def derivation_of(
    scan: Scan, derive: Callable[[pa.RecordBatch], pa.Table], kind: Hashable, repeats: int = 1
) -> Derivation:
    """Return what :func:`derived` derives."""
    return Derivation(scan.columns, scan.metadata.current_schema_id, kind, derive, repeats)


def derived_once(
    spark: SparkSession, scan: Scan, parts: Sequence[Scan], derivation: Derivation, schema: pa.Schema
) -> list[pa.Table]:
    """Return the result of a function, with the given schema, for each part of a scan whose rows are read only once.

    Results of the writer are taken out of the cache; others are not cached.
    """
    MEMORY.want(scan.name, derivation)
    nothing, (fits, _) = schema.empty_table(), whole_files(scan)
    whole = {file.file.file_path for file in fits.files}

    def known(part: Scan) -> pa.Table | None:
        paths = [file.file.file_path for file in part.files]
        found = [MEMORY.take(path, derivation.key) for path in paths if path in whole]
        tables = [table for table in found if table is not None]
        return pa.concat_tables([nothing, *tables]) if len(tables) == len(paths) else None

    def work(part: Scan) -> pa.Table:
        return pa.concat_tables([nothing, *map(derivation.derive, read(part))])

    found = [known(part) for part in parts]
    missing = [part for part, table in zip(parts, found, strict=True) if table is None]
    computed = iter(spread_parts(spark, scan, missing, work))
    return [next(computed) if table is None else table for table in found]


def is_small(scan: Scan) -> bool:
    """Return whether reading the rows takes less time than starting a task."""
    return rows_of(scan) <= SMALL_ROWS and _bytes_of(scan) <= _BYTES_PER_TASK


def rows_of(scan: Scan) -> int:
    """Return the number of rows in the data files of a scan."""
    return sum(file.file.record_count for file in scan.files)


def parts_of(spark: SparkSession, scan: Scan, rows: int | None = None) -> list[Scan]:
    """Split a scan into parts of about the same size: at most one per core, or one per `rows` rows if that is more."""
    if not scan.files:
        return []
    total = _bytes_of(scan)
    most = spark.sparkContext.defaultParallelism
    if rows:
        most = max(most, 1 + rows_of(scan) // rows)
    groups = balanced(scan.files, min(1 + total // _BYTES_PER_TASK, len(scan.files), most), _cost)
    return [replace(scan, files=files) for files in groups]


def _bytes_of(scan: Scan) -> int:
    return sum(map(_cost, scan.files))


def _cost(file: FileScanTask) -> int:
    return file.file.file_size_in_bytes + _FILE_COST
