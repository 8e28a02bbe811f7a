"""Compute windows of a product from rows of silver, spread over tasks, and write them to data files."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from consumer.iceberg.data_files import Target
from consumer.iceberg.memory import ROWS
from consumer.iceberg.scan import Scan, is_small, parts_of, read
from consumer.iceberg.tasks import Written, gathered, write_batches
from consumer.layers.gold.columns import aggregated, micros, pieces_in_windows
from consumer.layers.gold.sessions import Sessions, key_texts, sessions_of
from consumer.layers.gold.touched import Windows, remembered, rows_in_windows, window_texts
from consumer.spreading import attempted, dealt, succeeded, tidied
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import Product
from lakeproof.settings import S3Settings

_ROWS_PER_TASK = 2_000_000
"""Rows that a task keeps in memory to aggregate them."""


@dataclass(frozen=True)
class Wanted:
    """Parameters of a task, in addition to its rows."""

    product: Product
    event_time: str  # path of the event time
    windows: Windows | Sessions | None  # the windows to compute; None for all
    updated_at: datetime  # the time of computation
    target: Target  # where to write the rows
    s3: S3Settings


def write_windows(spark: SparkSession, silver: Scan, wanted: Wanted) -> Written:
    """Compute windows from all rows that are in them, and write them."""
    known = remembered(spark, silver, wanted.product, wanted.event_time)
    if known is not None:
        return _write([_of_windows(pa.concat_tables(known), wanted)], wanted)
    count = rows_in_windows(silver, wanted.product)
    if is_small(silver) and count <= ROWS:
        return _write([*_rows_in(read(silver), wanted)], wanted)
    parts = parts_of(spark, silver)
    tasks = max(len(parts), 1 + count // _ROWS_PER_TASK)

    def deal(part: Scan) -> Iterator[tuple[int, pa.Table | LakeproofError]]:
        try:
            for rows in _rows_in(read(part), wanted):
                yield from _dealt(rows, wanted.product, tasks)
        except LakeproofError as error:  # an exception would reach the driver as the text of a stack trace
            yield 0, error

    def write(mine: Iterable[tuple[int, pa.Table | LakeproofError]]) -> Written:
        return _write(succeeded(each for _, each in mine), wanted)

    attempt = attempted(write)
    with tidied(spark.sparkContext):
        found = spark.sparkContext.parallelize(parts, len(parts)).flatMap(deal)
        if tasks > 1:  # all rows of a window go to one task; of sessions, all rows of the same keys
            found = found.partitionBy(tasks, int)
        return gathered(succeeded(found.mapPartitions(lambda mine: [attempt(mine)]).collect()))


def _rows_in(batches: Iterable[pa.RecordBatch], wanted: Wanted) -> Iterator[pa.Table]:
    return (_of_windows(rows, wanted) for rows in pieces_in_windows(batches, wanted.product, wanted.event_time))


def _of_windows(rows: pa.Table, wanted: Wanted) -> pa.Table:
    return wanted.windows.of(rows) if wanted.windows else rows


def _dealt(rows: pa.Table, product: Product, tasks: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows by the number of the task that computes their window."""
    if tasks == 1:
        yield 0, rows
        return
    texts = (key_texts if product.window.session else window_texts)(rows).dictionary_encode()
    hashes = np.array([zlib.crc32(text) for text in texts.dictionary.to_pylist()], np.int64) % tasks
    yield from dealt(rows, hashes[texts.indices.to_numpy()])


def _write(mine: list[pa.Table], wanted: Wanted) -> Written:
    rows = [each for each in mine if each.num_rows]
    if not rows:
        return Written()
    whole, window = pa.concat_tables(rows), wanted.product.window
    if window.session:
        whole = sessions_of(whole, micros(window.size))
    found = aggregated(whole, wanted.product, wanted.updated_at)
    return write_batches(found.combine_chunks().to_batches(), wanted.target, wanted.s3)
