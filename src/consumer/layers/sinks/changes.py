"""What a table has committed since a sink was there.

Each kind of table says so by numbers of micro-batches that are columns or markers, never by snapshots: whoever compacts
the table or expires its snapshots changes nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.marker import Committed
from consumer.layers.gold.columns import START, key_names
from consumer.layers.gold.times import timestamp, window_starts
from consumer.layers.sinks.messages import of_dead_letters, of_gold, of_silver
from lakeproof.catalog import CATALOG
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Key, Product, Publish
from lakeproof.tables.names import (
    MICRO_BATCH_ID,
    gold_query,
    gold_table,
    silver_query,
    silver_tables,
    stream_tables,
)

_MAX_MICRO_BATCHES = 100


@dataclass(frozen=True)
class Change:
    """What is to be sent."""

    messages: DataFrame  # Key, value and headers of each message
    committed: Committed  # the marker up to which they are what the table has


class Changes(Protocol):
    """Finds what a table has behind one marker, up to another one or a bit less. It is valid within its context."""

    def __call__(
        self, spark: SparkSession, table: OpenTable, since: Committed | None, newest: Committed
    ) -> AbstractContextManager[Change]:
        """Find it."""


@dataclass(frozen=True)
class Followed:
    """A table that a sink follows."""

    table: str  # its name
    query: str  # the query that fills it
    stream: str  # the stream that its rows come from
    changes: Changes  # finds what is new in it


def silver_followed(contract: Contract) -> Followed:
    """The silver table of a stream."""
    to_messages = partial(of_silver, primary_key=contract.primary_key)

    @contextmanager
    def changes(spark: SparkSession, table: OpenTable, since: Committed | None, newest: Committed) -> Iterator[Change]:
        rows, committed = _appended(spark, table, since, newest)
        yield Change(to_messages(rows), committed)

    return Followed(silver_tables(contract.stream).kept, silver_query(contract.stream), contract.stream, changes)


def dead_letters_followed(stream: str) -> Followed:
    """The dead letters of a stream."""

    @contextmanager
    def changes(spark: SparkSession, table: OpenTable, since: Committed | None, newest: Committed) -> Iterator[Change]:
        rows, committed = _appended(spark, table, since, newest)
        yield Change(of_dead_letters(rows), committed)

    return Followed(stream_tables(stream).dead_letters, bronze_query(stream), stream, changes)


def gold_followed(product: Product, contract: Contract) -> Followed:
    """The table of a data product."""
    changes = _closed if product.publish is Publish.FINAL else _corrected
    return Followed(
        gold_table(product.name), gold_query(product.name), product.stream, partial(changes, product, contract)
    )


def closed_since(rows: DataFrame, before: int | None, horizon: int) -> DataFrame:
    """The final windows whose end one horizon had not passed and another one has."""
    end = F.unix_micros(WINDOW_END)
    closed = rows.where(end <= horizon)
    return closed if before is None else closed.where(end > before)


def _appended(
    spark: SparkSession, table: OpenTable, since: Committed | None, newest: Committed
) -> tuple[DataFrame, Committed]:
    """Rows of a table to which rows are only appended."""
    start = since.next_number if since else 0
    end = min(newest.next_number, start + _MAX_MICRO_BATCHES)
    number = F.col(MICRO_BATCH_ID)
    rows = _rows(spark, table.name).where((number >= start) & (number < end))
    return rows, replace(newest, marker=replace(newest.marker, micro_batch_id=end - 1))


@contextmanager
def _corrected(
    product: Product,
    contract: Contract,
    spark: SparkSession,
    table: OpenTable,
    since: Committed | None,
    newest: Committed,
) -> Iterator[Change]:
    """Windows with a row of silver that came since then: these, and no others, were computed again."""
    rows = _rows(spark, table.name)
    if since is None:
        yield Change(of_gold(rows, product), newest)
        return
    name = silver_tables(product.stream).kept
    silver, renamed = _rows(spark, name), open_table(spark, name, silver_query(product.stream)).renamed()
    number = F.col(MICRO_BATCH_ID)
    new = silver.where((number >= since.next_number) & (number < newest.next_number))
    touched = _windows_of(new, product, contract.event_time, renamed).persist()
    try:
        edges = touched.agg(F.min(START).alias("first"), F.max(START).alias("last")).first()
        if edges is None or edges.first is None:
            yield Change(of_gold(rows.limit(0), product), newest)
            return
        start = F.col(WINDOW_START)
        near = rows.where((start >= timestamp(edges.first)) & (start <= timestamp(edges.last)))
        same = (F.unix_micros(WINDOW_START).eqNullSafe(F.col(START)), *_same_keys(product))
        yield Change(of_gold(near.join(touched, reduce(Column.__and__, same), "left_semi"), product), newest)
    finally:
        touched.unpersist()


@contextmanager
def _closed(
    product: Product,
    contract: Contract,  # noqa: ARG001 - the table says it
    spark: SparkSession,
    table: OpenTable,
    since: Committed | None,
    newest: Committed,
) -> Iterator[Change]:
    """Windows that became final since then."""
    before = int(since.marker.contents) if since else None
    rows = closed_since(_rows(spark, table.name), before, int(newest.marker.contents))
    yield Change(of_gold(rows, product), newest)


def _rows(spark: SparkSession, table: str) -> DataFrame:
    return spark.table(f"{CATALOG}.{table}")


def _windows_of(rows: DataFrame, product: Product, event_time: str, renamed: Mapping[str, str]) -> DataFrame:
    """Start and keys of the windows that rows of silver are in."""
    starts = window_starts(F.unix_micros(F.col(event_time)), product.window)
    keys = [F.col(_path(key, renamed)).alias(name) for key, name in zip(product.keys, key_names(product), strict=True)]
    return rows.where(F.col(event_time).isNotNull()).select(starts.alias(START), *keys).distinct()


def _path(key: Key, renamed: Mapping[str, str]) -> str:
    top, *within = key.path
    return ".".join(f"`{name}`" for name in (renamed.get(top, top), *within))


def _same_keys(product: Product) -> list[Column]:
    return [
        F.col(f"`{key.name}`").eqNullSafe(F.col(name))
        for key, name in zip(product.keys, key_names(product), strict=True)
    ]
