"""Decide a large micro-batch in tasks: rows of one key go to one bucket, and verdicts to the tasks that write.

The driver only receives the newest event time of each micro-batch, and 32 bits of each key's hash, with which tasks
skip most rows of silver. Tasks depend only on this and on data files, which never change: a result that is computed
again after the loss of an executor is the same.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from consumer.iceberg.scan import Scan, parts_of, read, rows_of, spread_parts
from consumer.layers.silver.compared import as_kept, compared_of, counts_as
from consumer.layers.silver.content import keys
from consumer.layers.silver.tasks import ROW, Decided, DecidedPart, DecidedRows, lost_table, whole_of, write_part
from consumer.layers.silver.verdicts import COMPARED, COUNTS_AS, IN_SILVER, KEY, Micros, decide, watermarks
from consumer.spreading import attempted, dealt, succeeded, tidied
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError
from lakeproof.tables.names import CONTENT_HASH, INGESTED_AT, MICRO_BATCH_ID

_ROWS_PER_BUCKET = 500_000
"""Rows of bronze that a task decides at once."""
_ROWS_PER_PART = 2_000_000
"""Rows of bronze that a task reads, and later writes; more if a file has more. All their verdicts are in memory."""
_PART = "_part"
_SHUFFLED = [name for name in COMPARED.names if name != COUNTS_AS]

_Dealt = tuple[int, Any]
"""The number of the receiving task, and an item for it or the error of a task."""


@dataclass(frozen=True)
class Survey:
    """Facts about rows of bronze that are needed to decide them."""

    newest: dict[int, Micros]  # see :func:`~consumer.layers.silver.verdicts.watermarks`
    keys: Any  # bit map of the last bits of key hashes, as bytes; None without silver


def parts_to_decide(spark: SparkSession, bronze: Scan) -> list[Scan]:
    """Return the parts of bronze that tasks read to decide their rows, and again to write them."""
    return parts_of(spark, bronze, _ROWS_PER_PART)


def survey(spark: SparkSession, bronze: Scan, parts: Sequence[Scan], contract: Contract, with_keys: bool) -> Survey:
    """Survey rows of bronze: the newest event time of each micro-batch and a bit map of key hashes."""
    top = contract.event_time.partition(".")[0]
    names = {top, MICRO_BATCH_ID, INGESTED_AT, *(contract.primary_key if with_keys else ())}

    def look(part: Scan) -> tuple[dict[int, Micros], Any]:
        newest, hashes = dict[int, Micros](), [np.array([], np.uint32)]
        for rows in read(replace(part, columns={name: part.columns[name] for name in names})):
            times = {MICRO_BATCH_ID: rows.column(MICRO_BATCH_ID), COUNTS_AS: counts_as(rows, contract)}
            _raise(newest, watermarks(pa.table(times)))
            if with_keys:
                hashes.append(_hashes(keys(rows, contract)))
        return newest, np.unique(np.concatenate(hashes))

    newest = dict[int, Micros]()
    # At least four times as many bits as rows: less than a quarter of silver's rows with other keys pass.
    size = 1 << min(31, max(3, (4 * rows_of(bronze)).bit_length())) if with_keys else 1
    bits = np.zeros(size, np.bool_)
    for times, hashes in spread_parts(spark, bronze, parts, look):
        _raise(newest, times)
        bits[hashes % len(bits)] = True
    return Survey(newest, np.packbits(bits) if with_keys else None)


def decide_in_tasks(
    spark: SparkSession, parts: Sequence[Scan], kept: Scan, found: Survey, oldest: Micros | None, decided: Decided
) -> DecidedRows:
    """Decide rows of bronze together with silver's rows of the same keys, and write them."""
    if not parts:  # the rows were removed: the caller compares what is found with the ledger
        return whole_of([], decided)
    contract = decided.contract
    buckets = max(len(parts), 1 + sum(map(rows_of, parts)) // _ROWS_PER_BUCKET)

    def deal(item: tuple[int | None, Scan]) -> Iterator[_Dealt]:
        number, part = item
        try:
            first = 0
            for rows in read(part):
                if number is None:
                    rows = rows.filter(_may_match(keys(rows, contract), found.keys))
                    yield from in_buckets(as_kept(compared_of(rows, contract), oldest), IN_SILVER, 0, buckets)
                else:
                    yield from in_buckets(compared_of(rows, contract), number, first, buckets)
                first += rows.num_rows
        except LakeproofError as error:  # an exception would reach the driver as the text of a stack trace
            yield 0, error

    def decide_bucket(mine: Iterable[_Dealt]) -> Iterator[_Dealt]:
        try:
            yield from verdicts(succeeded(each for _, each in mine), decided)
        except LakeproofError as error:
            yield 0, error

    def write(mine: Iterable[_Dealt]) -> DecidedRows:
        items = succeeded(each for _, each in mine)
        (part,) = (each for each in items if isinstance(each, Scan))
        lost = pa.concat_tables([_NOTHING, *(each for each in items if not isinstance(each, Scan))])
        return write_part(DecidedPart(part, None, lost.sort_by(ROW).combine_chunks()), decided)

    attempt, context = attempted(write), spark.sparkContext
    scans = [*enumerate(parts), *((None, part) for part in parts_of(spark, kept))]
    with tidied(context):
        shuffled = context.parallelize(scans, len(scans)).flatMap(deal).partitionBy(buckets, int)
        # Each task that writes gets its part of bronze with the verdicts on it.
        written = context.parallelize(list(enumerate(parts)), 1).union(shuffled.mapPartitions(decide_bucket))
        results = written.partitionBy(len(parts), int).mapPartitions(lambda mine: [attempt(mine)]).collect()
    return whole_of(succeeded(results), decided)


def in_buckets(rows: pa.RecordBatch, part: int, first: int, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a part by the bucket of their key, numbered from `first`."""
    whole = rows.select(_SHUFFLED).append_column(_PART, pa.repeat(pa.scalar(part, pa.int64()), rows.num_rows))
    whole = whole.append_column(ROW, pa.array(np.arange(first, first + rows.num_rows)))
    yield from dealt(whole, _hashes(whole[KEY]) % buckets)


def verdicts(shuffled: Sequence[pa.RecordBatch], decided: Decided) -> Iterator[tuple[int, pa.Table]]:
    """Decide the rows of a bucket; yield those of each part that are not kept."""
    if not shuffled:
        return
    rows = pa.Table.from_batches(shuffled)
    lost = lost_table(decide(rows.select(_SHUFFLED), decided.horizons))
    places = rows.select([_PART, ROW, CONTENT_HASH]).take(lost[ROW])
    lost = lost.set_column(0, ROW, places[ROW]).append_column(CONTENT_HASH, places[CONTENT_HASH])
    yield from dealt(lost, places[_PART].to_numpy())


_NOTHING = lost_table({}).append_column(CONTENT_HASH, pa.array([], pa.binary()))


def _may_match(texts: Any, wanted: Any) -> Any:
    """Return whether each key of silver may be among the keys of bronze."""
    hashes = _hashes(texts) % (8 * len(wanted))
    return pa.array(wanted[hashes >> 3] & (128 >> (hashes & 7)) != 0)


def _hashes(texts: Any) -> Any:
    values: list[Any] = pc.fill_null(texts, b"").to_pylist()
    return np.fromiter(map(zlib.crc32, values), np.uint32, len(values))


def _raise(newest: dict[int, Micros], times: dict[int, Micros]) -> None:
    for number, time in times.items():
        newest[number] = max(time, newest.get(number, time))
