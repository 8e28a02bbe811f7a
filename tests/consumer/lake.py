"""Helpers to fill and read a lake in tests of the consumer."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from pyspark.sql import SparkSession

from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings

SessionOf: TypeAlias = Callable[[Settings], SparkSession]
Invoke: TypeAlias = Callable[..., str]
"""Function that runs a command: lake's settings, Typer application and arguments; see the fixture `invoke`."""


class Drain(Protocol):
    """Function that runs a stream over everything that has landed."""

    def __call__(self, settings: Settings, stream: str = "events") -> None: ...


def rows(settings: Settings, table: str) -> list[dict[str, Any]]:
    """Return all rows of a table, read by PyIceberg."""
    found: list[dict[str, Any]] = open_catalog(settings).load_table(table).scan().to_arrow().to_pylist()
    return found


def mark(settings: Settings, table: str, query: str, number: int) -> int:
    """Append nothing to a table, as micro-batch `number` of a query; return the id of the snapshot."""
    found = open_catalog(settings).load_table(table)
    found.append(found.schema().as_arrow().empty_table())
    snapshot = found.current_snapshot()
    assert snapshot is not None
    marker = Marker("id", number, "digest", str(number), str(number + 1))
    committed = Committed(marker, snapshot.snapshot_id, snapshot.sequence_number or 0)
    with found.transaction() as transaction:
        transaction.set_properties({property_of(query): committed.as_text()})
    return snapshot.snapshot_id
