"""Search for a person's data in the tables of a stream, and in files."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.iceberg.data_files import field_at
from consumer.iceberg.scan import Scan, plan, read, spread
from consumer.removal.account import Entry
from consumer.removal.avro import unpacked_avro
from consumer.removal.condition import Condition, unpacked
from consumer.row_hashes import row_hashes, signed
from lakeproof.catalog import catalog_errors
from lakeproof.contracts import Contract
from lakeproof.errors import UsageError
from lakeproof.tables.names import (
    ATTEMPT,
    CONTRACT_VERSION,
    HEADERS,
    INGESTED_AT,
    KEY,
    LETTER,
    LETTER_REASONS,
    MICRO_BATCH_ID,
    OUTCOME,
    POSITION,
    RAW,
    REASONS,
    REPLAY,
    RESCUED,
    SALVAGED,
    SOURCE,
    TRANSFORM,
    TRANSFORM_DIGEST,
    StreamTables,
)

_FACTS = (LETTER, LETTER_REASONS, ATTEMPT, REPLAY, OUTCOME, SALVAGED, TRANSFORM, TRANSFORM_DIGEST)
_FACTS_OF_ALL = (*_FACTS, INGESTED_AT, CONTRACT_VERSION)
Letters = frozenset[tuple[str, int, int]]


@dataclass(frozen=True)
class Match:
    """A row that belongs to the person."""

    entry: Entry
    is_batch: bool = False
    """Whether the row is a dead letter that is not a record: it may also have records of other people."""


def find_rows(
    spark: SparkSession, catalog: Catalog, names: StreamTables, contract: Contract, condition: Condition
) -> list[Match]:
    """Find the rows of bronze, the dead letters, and their attempts that belong to the person."""
    with catalog_errors():
        has = set(catalog.load_table(names.bronze).schema().column_names)
    for path in {path for each in condition.alternatives for path in each}:
        if has.isdisjoint(condition.paths(path)):
            raise UsageError(
                f"{names.bronze} has no column {path}, so its rows cannot be found.",
                f"Run `lakeproof contract apply {contract.stream}`. If another program renamed the column, undo that.",
            )
    found = _matches(spark, catalog, names.bronze, partial(_of_bronze, contract=contract, condition=condition))
    # An attempt may have bytes that its dead letter lacks: those of a unit that was too large, or of a transform.
    own = _matches(spark, catalog, names.attempts, partial(_of_attempts, condition=condition, letters=frozenset()))
    of_letters = partial(_of_letters, condition=condition, letters=_letters_of(own))
    letters = _matches(spark, catalog, names.dead_letters, of_letters)
    of_attempts = partial(_of_attempts, condition=condition, letters=_letters_of(letters))
    attempts = _matches(spark, catalog, names.attempts, of_attempts)
    return [*found, *letters, *attempts]


def _letters_of(matches: Sequence[Match]) -> Letters:
    return frozenset((each.entry.source, each.entry.position, each.entry.letter) for each in matches)


def _matches(
    spark: SparkSession, catalog: Catalog, name: str, match: Callable[[str, pa.RecordBatch], Iterator[Match]]
) -> list[Match]:
    with catalog_errors():
        if not catalog.table_exists(name):
            return []
        table = catalog.load_table(name)
        scan = plan(table, name, {column.name: column.name for column in table.schema().fields})
    return [each for part in spread(spark, scan, partial(_in_part, match=match)) for each in part]


def _in_part(part: Scan, match: Callable[[str, pa.RecordBatch], Iterator[Match]]) -> list[Match]:
    return [each for rows in read(part) for each in match(part.name, rows)]


def _of_bronze(name: str, rows: pa.RecordBatch, contract: Contract, condition: Condition) -> Iterator[Match]:
    is_wanted = np.zeros(rows.num_rows, np.bool_)
    has = set(rows.schema.names)
    for alternative in condition.alternatives:
        mine = np.ones(rows.num_rows, np.bool_)
        for path, value in alternative.items():
            # The contract may not be applied yet: then the column has a former name.
            there = [each for each in condition.paths(path) if each.split(".")[0] in has]
            mine &= _equal(field_at(rows, there[-1]), value, rows.num_rows)
        is_wanted |= mine
    rescued = rows.column(RESCUED).to_pylist() if RESCUED in has else [None] * rows.num_rows
    for index, values in enumerate(rescued):
        if values and not is_wanted[index]:
            is_wanted[index] = condition.is_in_values((path.rpartition(".")[2], value) for path, value in values)
    wanted = rows.filter(pa.array(is_wanted))
    hashes = row_hashes(wanted, contract)
    counts = [len(each or ()) for each, is_mine in zip(rescued, is_wanted, strict=True) if is_mine]
    for index, row in enumerate(wanted.select([SOURCE, POSITION, MICRO_BATCH_ID]).to_pylist()):
        yield Match(_entry(name, row, hashes[index], rescued=counts[index]))


def _equal(column: Any, value: Any, count: int) -> Any:
    try:
        scalar = pa.scalar(value, column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # no value of the column can be equal
        return np.zeros(count, np.bool_)
    return pc.fill_null(pc.equal(column, scalar), False).to_numpy(zero_copy_only=False)


def _of_letters(name: str, rows: pa.RecordBatch, condition: Condition, letters: Letters) -> Iterator[Match]:
    wanted, records = [], []
    extra = [each for each in (KEY, HEADERS) if each in rows.schema.names]
    for index, row in enumerate(rows.select([RAW, REASONS, SOURCE, POSITION, ATTEMPT, *extra]).to_pylist()):
        raw, place = row.pop(RAW), (row.pop(SOURCE), row.pop(POSITION), row.pop(ATTEMPT) or 1)
        others = {**row, REASONS: [each["detail"] for each in row[REASONS] or ()]}
        if (
            place in letters
            or (raw is not None and condition.is_in_bytes(raw))
            or condition.is_in_values((key, value) for key, value in _flat(others) if value is not None)
        ):
            wanted.append(index)
            records.append(place in letters if raw is None else _is_record(raw))
    mine = rows.take(pa.array(wanted, pa.int64()))
    hashes = row_hashes(mine)
    columns = [SOURCE, POSITION, MICRO_BATCH_ID, ATTEMPT, REASONS]
    for index, row in enumerate(mine.select(columns).to_pylist()):
        codes = "+".join(sorted({reason["code"] for reason in row[REASONS] or ()}))
        entry = _entry(name, row, hashes[index], letter=row[ATTEMPT] or 1, codes=codes)
        yield Match(entry, is_batch=not records[index])


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name == HEADERS:
            yield from ((str(each["key"]), each["value"]) for each in value or ())
        elif isinstance(value, list):
            yield from ((name, each) for each in value)
        else:
            yield name, value


def _is_record(raw: bytes) -> bool:
    import json

    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


def _of_attempts(name: str, rows: pa.RecordBatch, condition: Condition, letters: Letters) -> Iterator[Match]:
    listed = rows.to_pylist()
    wanted = [
        index
        for index, row in enumerate(listed)
        if (row[SOURCE], row[POSITION], row[LETTER]) in letters
        or (row[RAW] is not None and condition.is_in_bytes(row[RAW]))
        or condition.is_in_values((REASONS, each["detail"]) for each in row[REASONS] or ())
    ]
    mine = rows.take(pa.array(wanted, pa.int64()))
    hashes = row_hashes(mine)
    for index, row in enumerate(listed[each] for each in wanted):
        facts = {each: row[each] for each in _FACTS_OF_ALL} | {"reasons": len(row[REASONS] or ())}
        yield Match(_entry(name, row, hashes[index], letter=row[LETTER], attempt=row[ATTEMPT], facts=facts))


def _entry(name: str, row: Mapping[str, Any], hashed: Any, **more: Any) -> Entry:
    return Entry(name, row[SOURCE], row[POSITION], row[MICRO_BATCH_ID], signed(int(hashed)), **more)


def is_in_file(condition: Condition, content: bytes) -> bool:
    """Return whether a file has data of the person."""
    with suppress(ValueError, OSError, zlib.error, pa.ArrowException):  # damaged or of another format: search the bytes
        if content.startswith(b"PAR1"):
            return _is_in_parquet(condition, content)
        if content.startswith(b"Obj\x01"):
            content = unpacked_avro(content)
    plain = unpacked(content)
    if not condition.is_in_bytes(plain):
        return False
    parts = _records(plain)
    return parts is None or any(condition.is_in_bytes(each) for each in parts)


def _records(content: bytes) -> Sequence[bytes] | None:
    """Return the records of a landed file; None if it cannot be split, and counts as a single record."""
    # Each as it is in the file: parsed and written again, it would lose digits, and all but one of equal names.
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"), type=msgspec.Raw)
        if not bytes(whole).startswith(b"["):
            return [content]
        return [bytes(each) for each in msgspec.json.decode(whole, type=list[msgspec.Raw])]
    lines = content.splitlines()
    return lines if len(lines) > 1 and all(line.startswith(b"{") for line in lines if line) else None


def _is_in_parquet(condition: Condition, content: bytes) -> bool:
    file, texts = pq.ParquetFile(BytesIO(content)), condition.longest_texts()
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group)
        binary = any(pa.types.is_binary(kind) for kind in rows.schema.types)
        # Most files have none of the texts; binary columns may have them compressed or escaped.
        if texts is not None and not binary and not any(_has(rows, text) for text in texts):
            continue
        for row in rows.to_pylist():
            if condition.is_in_values((name, value) for name, value in row.items() if value is not None):
                return True
    return False


def _has(rows: pa.Table, text: str) -> bool:
    return any(_has_in(column.combine_chunks(), text) for column in rows.columns)


def _has_in(array: Any, text: str) -> bool:
    kind = array.type
    if isinstance(array, pa.ChunkedArray):
        return any(_has_in(chunk, text) for chunk in array.chunks)
    if pa.types.is_struct(kind):
        return any(_has_in(child, text) for child in array.flatten())
    if pa.types.is_map(kind):
        return _has_in(array.keys, text) or _has_in(array.items, text)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_in(array.flatten(), text)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bool(pc.any(pc.match_substring(array, text)).as_py())
    return False
