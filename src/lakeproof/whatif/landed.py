"""Rows of a stream's tables: each landed unit once, even if the consumer commits meanwhile."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.catalog import table_or_none
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.judge.batch import MAX_BYTES, MAX_UNITS
from lakeproof.tables.names import (
    ATTEMPT,
    LETTER,
    MICRO_BATCH_ID,
    OUTCOME,
    POSITION,
    REPLAY,
    SOURCE,
    ReplayOutcome,
    stream_tables,
)
from lakeproof.whatif.large_files import read_large

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import FileScanTask, Table

_FILES_AT_ONCE = 8
_BYTES_AT_ONCE = 8 << 20


@dataclass(frozen=True)
class Landed:
    """The tables of a stream up to the newest micro-batch that is committed in all of them.

    The ledger is committed last, and was read before the other tables, so they have all units of the ledger.
    """

    bronze: "Table"
    dead_letters: "Table"
    closed: frozenset[str]  # keys of dead letters that a replay has closed: their records are in bronze
    newest: int  # number of the micro-batch
    discarded: frozenset[str]  # versions of contracts under which values were discarded


def landed(catalog: "Catalog", stream: str) -> Landed | None:
    """Open the tables of a stream; None if nothing has landed. A lost table is an error."""
    names = stream_tables(stream)
    ledger = table_or_none(catalog, names.ledger)
    if ledger is None:
        return None
    newest, replayed, discarded = _accounts(ledger)
    if newest is None:
        return None
    bronze, dead_letters = table_or_none(catalog, names.bronze), table_or_none(catalog, names.dead_letters)
    if bronze is None:
        raise _lost(names.bronze, names.ledger)
    if dead_letters is None:
        raise _lost(names.dead_letters, names.ledger)
    attempts = table_or_none(catalog, names.attempts)
    if attempts is None and replayed:
        raise _lost(names.attempts, names.ledger)
    closed = _closed(attempts, newest) if attempts else frozenset()
    return Landed(bronze, dead_letters, closed, newest, discarded)


def _lost(name: str, ledger: str) -> LakeproofError:
    return LakeproofError(
        f"The table {name} does not exist, but {ledger} has rows of what it held.",
        "Restore the catalog or the table: `consumer status` and docs/operations/recover.md.",
    )


def _accounts(ledger: "Table") -> tuple[int | None, bool, frozenset[str]]:
    """Return the newest micro-batch, whether there was a replay, and versions of contracts that discarded values."""
    columns = [MICRO_BATCH_OF_LEDGER, REPLAY, "discarded", "_contract_version"]
    newest, replayed = None, False
    discarded: set[str | None] = set()
    for rows in read(ledger, columns):
        number = pc.max(rows.column(MICRO_BATCH_OF_LEDGER)).as_py()
        if number is not None:
            newest = number if newest is None else max(newest, number)
        if REPLAY in rows.schema.names:
            replayed = replayed or rows.column(REPLAY).null_count < rows.num_rows
        if {"discarded", "_contract_version"} <= {*rows.schema.names}:
            has = pc.greater(pc.list_value_length(_as_lists(rows.column("discarded"))), 0)
            discarded |= {*rows.column("_contract_version").filter(has).to_pylist()}
    return newest, replayed, frozenset(filter(None, discarded))


MICRO_BATCH_OF_LEDGER = "micro_batch_id"


def _as_lists(maps: Any) -> Any:
    entries = pa.list_(pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)]))
    return maps.cast(entries)


def _closed(attempts: "Table", newest: int) -> frozenset[str]:
    found: set[str] = set()
    for rows in read(attempts, [SOURCE, POSITION, LETTER, OUTCOME, MICRO_BATCH_ID], newest):
        found.update(keys_of(rows.filter(pc.equal(rows.column(OUTCOME), ReplayOutcome.CLOSED.value)), LETTER))
    return frozenset(found)


def keys_of(rows: pa.RecordBatch, number: str = ATTEMPT) -> list[str]:
    """Return the key of each dead letter: source, position, and number of the attempt that made it."""
    numbers: Any = rows.column(number) if number in rows.schema.names else pa.nulls(rows.num_rows, pa.int32())
    # Dead letters of earlier versions have no number: the first attempt made them.
    parts = [rows.column(SOURCE), rows.column(POSITION).cast(pa.string()), numbers.fill_null(1).cast(pa.string())]
    keys: list[str] = pc.binary_join_element_wise(*(part.fill_null("") for part in parts), "\0").to_pylist()
    return keys


def rows_of(table: "Table") -> int:
    """Return the number of rows of a table by its metadata, including rows of a micro-batch that is being committed."""
    return sum(task.file.record_count for task in _tasks(table))


def read(
    table: "Table", columns: Sequence[str], newest: int | None = None, sample: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Read rows of a table, up to the micro-batch `newest`, in groups of at most as many as are judged at once.

    The order is the same each time as long as the table's data files do not change. Columns that the table lacks are
    left out. `sample` is the number of rows to choose, evenly spaced; all by default.
    """
    tasks = _tasks(table)
    chosen = _chosen(sum(task.file.record_count for task in tasks), sample)
    has = [name for name in columns if name in table.schema().as_arrow().names]
    waiting: list[pa.RecordBatch] = []
    rows, size = 0, 0
    for batch in _batches(table, has, tasks, chosen):
        found = batch
        if newest is not None and MICRO_BATCH_ID in has:
            late = pc.greater(batch.column(MICRO_BATCH_ID), newest)
            if pc.any(late).as_py():
                found = batch.filter(pc.invert(late))
        for piece in _pieces(found):
            if waiting and (rows + piece.num_rows > MAX_UNITS or size + piece.nbytes > MAX_BYTES):
                yield _together(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if waiting:
        yield _together(waiting)


def _chosen(rows: int, sample: int | None) -> Any:
    """Return the numbers of evenly spaced rows; None for all."""
    if sample is None or sample >= rows:
        return None
    return (2 * np.arange(sample, dtype=np.int64) + 1) * rows // (2 * sample)


def _tasks(table: "Table") -> list["FileScanTask"]:
    try:
        return sorted(table.scan().plan_files(), key=lambda task: task.file.file_path)
    except ValueError as error:  # PyIceberg does not read equality deletes
        raise LakeproofError(
            f"Cannot read {'.'.join(table.name())}: {error}.",
            "If another program has deleted rows by equality deletes, roll the table back to the snapshot before.",
        ) from error


def _batches(
    table: "Table", columns: Sequence[str], tasks: Sequence["FileScanTask"], chosen: Any
) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    projected = table.schema().select(*columns)
    scan = ArrowScan(table.metadata, table.io, projected, AlwaysTrue())
    for first, group in _groups(tasks, chosen):
        at = first
        try:
            large = read_large(table, group[0], columns) if len(group) == 1 else None
            for batch in large or scan.to_record_batches(group):
                if chosen is None:
                    yield batch
                    continue
                begin, end = np.searchsorted(chosen, [at, at + batch.num_rows])
                yield batch.take(pa.array(chosen[begin:end] - at))
                at += batch.num_rows
        except OSError as error:
            raise UnavailableError(
                f"Cannot read {'.'.join(table.name())}: {error}.",
                "Run it again. Keep expired snapshots for longer than this takes.",
            ) from error


def _groups(tasks: Sequence["FileScanTask"], chosen: Any) -> Iterator[tuple[int, list["FileScanTask"]]]:
    """Yield groups of data files with chosen rows, which are read at once, and the number of their first row."""
    group: list[FileScanTask] = []
    first, size, at = 0, 0, 0
    for task in tasks:
        rows = task.file.record_count
        wanted = chosen is None or np.searchsorted(chosen, at) < np.searchsorted(chosen, at + rows)
        full = len(group) == _FILES_AT_ONCE or size + task.file.file_size_in_bytes > _BYTES_AT_ONCE
        if group and (full or not wanted):
            yield first, group
            group, size = [], 0
        if wanted:
            if not group:
                first = at
            group.append(task)
            size += task.file.file_size_in_bytes
        at += rows
    if group:
        yield first, group


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if rows:
        most = max(1, min(MAX_UNITS, rows * MAX_BYTES // max(batch.nbytes, 1)))
        for start in range(0, rows, most):
            piece = batch.slice(start, most)
            # In files that other tools compacted, the same columns have other Arrow types.
            columns: Any = [column.cast(_plain(column.type)) for column in piece.columns]
            yield pa.RecordBatch.from_arrays(columns, names=piece.schema.names)


def _plain(kind: Any) -> Any:
    """Return the type with 32-bit offsets, which suffice for a piece."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _plain(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
