"""Which windows new rows touch, and which rows of a product's table are theirs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.commit.upsert import OldRows, Span
from consumer.gold.columns import START, key_names, micros, timestamp
from lakeproof.catalog import CATALOG
from lakeproof.gold.model import WINDOW_START, Product

_DAY = 86_400_000_000
_MAX_SPANS = 100
_MAX_BROADCAST = 1_000_000
"""Windows that are sent to every task, at most; more are joined by a shuffle."""


@dataclass(frozen=True)
class Touched:
    """Windows with a key each.

    Parameters
    ----------
    windows
        Start and keys of each.
    count
        How many.
    spans
        What they cover: times that do not overlap, ascending.
    """

    windows: DataFrame
    count: int
    spans: Sequence[Span]

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows that are in one of the windows, from rows with its start and its keys."""
        names = self.windows.columns
        renamed = self.windows.toDF(*(f"_of{name}" for name in names))
        same = reduce(Column.__and__, (F.col(name).eqNullSafe(F.col(f"_of{name}")) for name in names))
        return rows.join(F.broadcast(renamed) if self.count <= _MAX_BROADCAST else renamed, same, "left_semi")


@contextmanager
def touched_windows(rows: DataFrame, product: Product) -> Iterator[Touched]:
    """Find the windows of rows that :func:`consumer.gold.columns.in_windows` returned; they are cached meanwhile."""
    windows = rows.select(START, *key_names(product)).distinct().persist()
    try:
        day = F.floor(F.col(START) / F.lit(_DAY))
        days = windows.groupBy(day).agg(
            F.min(START).alias("first"), F.max(START).alias("last"), F.count("*").alias("n")
        )
        found = days.collect()
        size = micros(product.window.size)
        spans = merged([(row.first, row.last + size) for row in found])
        yield Touched(windows, sum(row.n for row in found), spans)
    finally:
        windows.unpersist()


def merged(spans: Sequence[Span]) -> list[Span]:
    """The same times in ascending order, without overlaps, in a few spans."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found if len(found) <= _MAX_SPANS else [(found[0][0], found[-1][1])]


def within(column: str, spans: Sequence[Span]) -> Column:
    """Whether a time is in one of the spans, such that Iceberg can leave out files by it."""
    at = F.col(column)
    each = [(at >= timestamp(start)) & (at < timestamp(end)) for start, end in spans]
    return reduce(Column.__or__, each, F.lit(False))


def old_rows(spark: SparkSession, table: str, snapshot_id: int, product: Product, touched: Touched) -> OldRows:
    """The rows of a snapshot of a product's table that are of touched windows."""
    keys = zip(product.keys, key_names(product), strict=True)
    rows = (
        spark.read.option("versionAsOf", snapshot_id)
        .table(f"{CATALOG}.{table}")
        .where(within(WINDOW_START, touched.spans))
        .select(
            F.unix_micros(WINDOW_START).alias(START),
            *(F.col(f"`{key.name}`").alias(name) for key, name in keys),
            F.col("_file"),
            F.col("_pos"),
        )
    )
    found = touched.of(rows).groupBy("_file").agg(F.collect_list("_pos").alias("positions")).collect()
    return OldRows({row["_file"]: row.positions for row in found}, WINDOW_START, touched.spans)
