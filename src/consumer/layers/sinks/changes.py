"""The rows that a table has committed since a sink last read it.

They are found by numbers of micro-batches in columns or markers, never by snapshots: compaction and expiry of snapshots
have no effect.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.iceberg.append import open_table
from consumer.iceberg.marker import Committed
from consumer.layers.gold.table import read_as_silver_has_it
from consumer.layers.gold.times import timestamp
from consumer.layers.gold.touched import ALL_WINDOWS, Windows, closed_between, rows_of, silver_rows, touched_windows
from consumer.layers.sinks.messages import of_dead_letters, of_gold, of_silver
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract
from lakeproof.gold.model import WINDOW_START, Product, Publish
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
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
    """Messages to send."""

    messages: DataFrame  # key, value and headers of each message
    committed: Committed  # the marker up to which the messages cover the table


Changes = Callable[[SparkSession, Settings, Committed | None, Committed], Change]
"""Finds the rows of a table after one marker (None for the start) up to another one, or up to one in between."""


@dataclass(frozen=True)
class Followed:
    """A table that a sink follows."""

    table: str  # its name
    query: str  # the query that fills it
    stream: str  # the stream that its rows come from
    changes: Changes  # finds its new rows
    may_cut: bool = False  # whether a message that is too large for the topic is sent without its bytes


def silver_followed(contract: Contract) -> Followed:
    """Follow the silver table of a stream."""
    table, query = silver_tables(contract.stream).kept, silver_query(contract.stream)
    changes = partial(_appended, table, query, partial(of_silver, primary_key=contract.primary_key))
    return Followed(table, query, contract.stream, changes)


def dead_letters_followed(stream: str) -> Followed:
    """Follow the dead letters of a stream."""
    table, query = stream_tables(stream).dead_letters, bronze_query(stream)
    changes = partial(_appended, table, query, of_dead_letters)
    return Followed(table, query, stream, changes, may_cut=True)


def gold_followed(product: Product, contract: Contract) -> Followed:
    """Follow the table of a data product."""
    changes = partial(_computed, product, contract.event_time)
    return Followed(gold_table(product.name), gold_query(product.name), product.stream, changes)


def _appended(
    name: str,
    query: str,
    to_messages: Callable[[DataFrame], DataFrame],
    spark: SparkSession,
    settings: Settings,  # noqa: ARG001 - of windows, which are looked for with PyIceberg
    since: Committed | None,
    newest: Committed,
) -> Change:
    """Return new rows of an append-only table."""
    start = since.next_number if since else 0
    end = min(newest.next_number, start + _MAX_MICRO_BATCHES)
    number = F.col(MICRO_BATCH_ID)
    rows = open_table(spark, name, query).rows(end).where((number >= start) & (number < end))
    return Change(to_messages(rows), replace(newest, marker=replace(newest.marker, micro_batch_id=end - 1)))


def _computed(
    product: Product,
    event_time: str,
    spark: SparkSession,
    settings: Settings,
    since: Committed | None,
    newest: Committed,
) -> Change:
    """Return windows that became final; or those that new rows of silver touch: only these were computed again."""
    if product.publish is Publish.FINAL:
        before = int(since.marker.contents) if since else None
        windows = closed_between(product, before, int(newest.marker.contents))
    elif since is None:
        windows = ALL_WINDOWS
    else:
        now = read_as_silver_has_it(product, ContractLog(settings.state.database))
        with catalog_errors():
            catalog = open_catalog(settings)
            new = silver_rows(catalog, now, event_time, since.next_number, newest.next_number)
        windows = touched_windows(spark, new, now, event_time)
    return Change(of_gold(_rows(spark, settings, product, windows, int(newest.marker.end)), product), newest)


def _rows(spark: SparkSession, settings: Settings, product: Product, windows: Windows, end: int) -> DataFrame:
    """Return the rows of windows. Windows with keys are few enough for the driver."""
    if windows.texts is not None:
        return spark.createDataFrame(rows_of(spark, settings, product, windows, end))
    start = F.col(WINDOW_START)
    inside = ((start >= timestamp(first)) & (start < timestamp(last)) for first, last in windows.starts)
    table = open_table(spark, gold_table(product.name), gold_query(product.name))
    return table.rows(end).where(reduce(Column.__or__, inside, F.lit(False)))
