"""Parquet data files, written where the rows are; a commit of the driver adds them to the table."""

import uuid
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from consumer.iceberg.derivation import Derivation, Deriving, Room
from lakeproof.addresses import encoded
from lakeproof.errors import LakeproofError
from lakeproof.settings import S3Settings
from lakeproof.storage import Storage, open_storage

log = structlog.get_logger()

# Bytes of buffered Arrow rows at which they are written, as one row group for each day in them.
_FLUSH_BYTES = 64 << 20
# Average length of a run of rows of one day from which on runs are sliced, instead of sorting and copying all rows:
# files of a landing zone mostly have one day each. Slicing shorter runs costs more than the copy.
_LONG_RUN = 64
# Maximum number of files, one for each day, that are open at the same time: each has a buffer.
_MAX_OPEN = 256
_WRITES_AT_ONCE = 8
_SAMPLE = 1_000  # rows by which columns with distinct values are found
NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""Iceberg's name of the partition of rows whose day is null."""


@dataclass(frozen=True)
class Target:
    """The facts about a table that a task needs to write data files for it."""

    folder: str
    schema: pa.Schema  # with the field ids of Iceberg
    day_of: str  # the path of the timestamp whose day is the partition: ``event.timestamp``
    partition: str
    renamed: Mapping[str, str] = field(default_factory=dict)  # renamed columns by their former names
    derivations: Sequence[Derivation] = ()  # what readers in this program want to know of each data file
    derived_bytes: int = 0  # maximum size of what a task derives; beyond it, readers read


@dataclass(frozen=True)
class DataFile:
    """A data file that is not committed yet, with its Parquet footer, which has the statistics of its columns."""

    uri: str
    size: int
    partition: str  # as Iceberg writes it: ``field=2026-11-21``
    footer: bytes
    derived: Mapping[Hashable, pa.Table] = field(default_factory=dict, compare=False)  # results by their keys


class _Leaf(NamedTuple):
    """A column of a Parquet file."""

    name: str  # of the table's column
    path: str
    is_repeated: bool  # within a list or a map


class _OpenFile:
    """A data file in memory, and what is derived from its rows."""

    def __init__(self, target: Target, first: pa.Table, room: Room) -> None:
        self._buffer = pa.BufferOutputStream()
        repeating: Any = _repeating(first)
        measured: Any = _measured(target.schema)
        self._writer = pq.ParquetWriter(
            self._buffer, target.schema, compression="zstd", use_dictionary=repeating, write_statistics=measured
        )
        self._deriving = [Deriving(each, room) for each in target.derivations]

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)
        for each in self._deriving:
            each.add(rows)

    def close(self) -> bytes:
        self._writer.close()
        return self._buffer.getvalue().to_pybytes()

    def derived(self) -> dict[Hashable, pa.Table]:
        return {key: table for each in self._deriving for key, table in each.result().items()}


class DataFileWriter:
    """Writes rows of one table: a file for each day, whole or not at all."""

    def __init__(self, target: Target, storage: Storage) -> None:
        self._target = target
        self._storage = storage
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        self._open: dict[str, _OpenFile] = {}
        self._written: list[DataFile] = []
        self._room = Room(target.derived_bytes)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows. Columns and nested fields are matched to the table by name.

        A table may have more or wider columns than rows that were judged under an older contract.
        """
        if rows.num_rows:
            self._rows.append(rows)
            self._bytes += rows.nbytes
            if self._bytes >= _FLUSH_BYTES:
                self._flush()

    def close(self) -> list[DataFile]:
        """Write the remaining rows; return all files of this writer, which have all its rows."""
        self._flush()
        self._close_files()
        if self._room.left < 0:
            # All or nothing: a job with more tasks than cores has many rows in each.
            self._written = [replace(file, derived={}) for file in self._written]
        return self._written

    def _flush(self) -> None:
        if not self._rows:
            return
        table = _fitted(pa.Table.from_batches(self._rows), self._target)
        self._rows, self._bytes = [], 0
        for day, rows in _by_day(table, self._target.day_of):
            if day not in self._open:
                if len(self._open) >= _MAX_OPEN:
                    self._close_files()
                self._open[day] = _OpenFile(self._target, rows, self._room)
            self._open[day].write(rows)

    def _close_files(self) -> None:
        # A finished file is written as a whole: encoded and compressed, it is a tenth of its input. Threads write:
        # there is a file for each day, and each waits for the disk or the network.
        with ThreadPoolExecutor(_WRITES_AT_ONCE) as threads:
            writes = deque[Future[None]]()
            for day, file in self._open.items():
                content = file.close()
                partition = f"{self._target.partition}={day}"
                uri = f"{self._target.folder}/{partition}/{uuid.uuid4().hex}.parquet"
                if len(writes) == _WRITES_AT_ONCE:  # more would wait in memory, and be tried after an error
                    writes.popleft().result()
                # Storage decodes percent signs, Iceberg does not.
                writes.append(threads.submit(self._storage.write_new, encoded(uri), content))
                self._written.append(DataFile(uri, len(content), partition, _footer(content), file.derived()))
            for write in writes:
                write.result()  # raises its error
        self._open = {}


def remove_files(files: Iterable[DataFile], s3: S3Settings) -> None:
    """Remove data files without a commit; files that cannot be removed are left to the removal of orphans."""
    left, storages = 0, dict[str, Storage]()
    for file in files:
        uri = encoded(file.uri)
        place = "/".join(uri.split("/")[:3])  # the disk, or a bucket
        try:
            if place not in storages:
                storages[place] = open_storage(place, s3)
            storages[place].remove(uri)
        except (LakeproofError, OSError):
            left += 1
    if left:
        log.warning("data files that no table has could not be removed", files=left)


def _repeating(rows: pa.Table) -> list[str]:
    """Return the paths in Parquet of columns whose values repeat, and of nested ones.

    For a column of distinct values, such as keys, a dictionary takes time and makes the file larger.
    """
    sample = rows.slice(0, _SAMPLE)
    distinct = {
        name
        for name, values in zip(sample.column_names, sample.columns, strict=True)
        if not pa.types.is_nested(values.type) and 2 * len(values.unique()) > len(values)
    }
    return [leaf.path for leaf in _leaves(rows.schema) if leaf.name not in distinct]


def _measured(schema: pa.Schema) -> list[str]:
    """Return the paths in Parquet of columns with statistics: no reader has a use for those of lists and maps."""
    return [leaf.path for leaf in _leaves(schema) if not leaf.is_repeated]


@lru_cache(maxsize=100)
def _leaves(schema: pa.Schema) -> list[_Leaf]:
    """Return the columns of a Parquet file."""
    buffer = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), buffer)
    found = pq.ParquetFile(pa.BufferReader(buffer.getvalue())).schema
    columns = [found.column(index) for index in range(len(found))]
    return [_Leaf(each.path.partition(".")[0], each.path, each.max_repetition_level > 0) for each in columns]


def _footer(content: bytes) -> bytes:
    """Return the footer of a Parquet file: its length and the magic number follow it."""
    end = len(content) - 8
    return content[end - int.from_bytes(content[end : end + 4], "little") : end]


def _fitted(rows: pa.Table, target: Target) -> pa.Table:
    """Return rows with the table's columns: matched by name, null if missing, widened if the table's are wider."""
    rows = rows.rename_columns([target.renamed.get(name, name) for name in rows.column_names])
    unknown = _unknown(pa.struct(list(rows.schema)), pa.struct(list(target.schema)))
    if unknown:
        raise LakeproofError(
            f"The table at {target.folder} does not have all fields of its contract: {', '.join(unknown)}.",
            "Run `lakeproof contract apply` for the stream, then run the consumer again.",
        )
    has = set(rows.column_names)
    columns: list[Any] = [
        rows[column.name].cast(column.type) if column.name in has else pa.nulls(rows.num_rows, column.type)
        for column in target.schema
    ]
    return pa.Table.from_arrays(columns, schema=target.schema)


def _unknown(rows: pa.DataType, table: pa.DataType, within: str = "") -> list[str]:
    """Return the paths of the fields of `rows` that a table lacks; a cast would drop them silently."""
    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        has = {child.name: child.type for child in table}
        return [
            path
            for child in rows
            for path in (
                _unknown(child.type, has[child.name], f"{within}{child.name}.")
                if child.name in has
                else [within + child.name]
            )
        ]
    if pa.types.is_list(rows) and (pa.types.is_list(table) or pa.types.is_large_list(table)):
        return _unknown(rows.value_type, table.value_type, within)
    if pa.types.is_map(rows) and pa.types.is_map(table):
        return _unknown(rows.item_type, table.item_type, within)
    return []


def _by_day(table: pa.Table, column: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield Iceberg's name of each day (UTC) with its rows; the order within a day is kept."""
    # As numbers: Python cannot represent the date of a window that begins before the year 1.
    days: Any = field_at(table, column).cast(pa.date32()).cast(pa.int32())
    edges: Any = pc.min_max(days).as_py()
    if edges["min"] == edges["max"] and not days.null_count:
        yield _name(edges["min"]), table
        return
    runs = pc.run_end_encode(days.combine_chunks())
    if table.num_rows < _LONG_RUN * len(runs.values):
        order = pc.sort_indices(table.append_column("_day", days), [("_day", "ascending")])
        # Taken once for all days: each take from a chunked table reads the whole table.
        table, runs = table.take(order), pc.run_end_encode(days.take(order).combine_chunks())
    found: dict[int | None, list[pa.Table]] = {}
    begin = 0
    for day, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        found.setdefault(day, []).append(table.slice(begin, end - begin))
        begin = end
    for day, slices in found.items():
        yield _name(day), pa.concat_tables(slices)


def field_at(columns: Any, path: str) -> Any:
    """Return a column of a table, a record batch or a mapping, or a nested field: ``event.timestamp``."""
    name, *inner = path.split(".")
    return pc.struct_field(columns[name], inner) if inner else columns[name]


def _name(day: int | None) -> str:
    if day is None:
        return NO_DAY
    text = str(np.datetime64(day, "D"))
    # NumPy pads a year to four characters including its sign; Java expects four digits.
    return f"-0{text[1:]}" if text.startswith("-") and len(text) == len("-001-01-01") else text
