"""The newest markers of tables, in a table state read by Spark or PyIceberg."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consumer.iceberg.marker import (
    Committed,
    Marker,
    Snapshot,
    check_attempts,
    check_history,
    check_marked,
    committed,
    property_of,
    unfinished,
)
from lakeproof.errors import UnavailableError
from lakeproof.tables.names import StreamTables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot as TableSnapshot

_ROWS = "total-records"


@dataclass(frozen=True)
class TableState:
    """A state of a table; `find` returns None for an expired snapshot."""

    property: Callable[[str], str | None]
    properties: Callable[[], Mapping[str, str]]
    current: Snapshot | None
    find: Callable[[int], Snapshot | None]


def spark_state(loaded: Any) -> TableState:
    """Return the state of a table, or of its metadata, from Iceberg's library in the JVM."""

    def snapshot(found: Any) -> Snapshot | None:
        if found is None:
            return None
        entry: Callable[[str], str | None] = lambda key: found.summary().get(key)  # noqa: E731 - for its type
        return Snapshot(found.snapshotId(), found.parentId(), found.sequenceNumber(), entry)

    return TableState(
        property=lambda name: loaded.properties().get(name),
        properties=lambda: dict(loaded.properties()),  # several calls to the JVM per property
        current=snapshot(loaded.currentSnapshot()),
        find=lambda number: snapshot(loaded.snapshot(number)),
    )


def python_state(table: "Table") -> TableState:
    """Return the state of a table from PyIceberg."""

    def snapshot(found: "TableSnapshot | None") -> Snapshot | None:
        if found is None:
            return None
        summary = found.summary
        entry: Callable[[str], str | None] = lambda key: summary.get(key) if summary else None  # noqa: E731 - see above
        return Snapshot(found.snapshot_id, found.parent_snapshot_id, found.sequence_number or 0, entry)

    known = {each.snapshot_id: each for each in table.snapshots()}
    return TableState(
        property=table.properties.get,
        properties=lambda: table.properties,
        current=snapshot(table.current_snapshot()),
        find=lambda number: snapshot(known.get(number)),
    )


def newest_marker(state: TableState, query: str, table: str) -> Committed | None:
    """Return the newest marker of a query in a table state: from a property, or from a snapshot if that was removed."""
    key = property_of(query)
    newest = committed({key: state.property(key) or ""}, query) or _marked(state, key)
    if newest:
        check_history(newest, state.current, state.find, table)
    elif state.current is not None:
        check_marked(state.properties(), int(state.current.entry(_ROWS) or 0), table)
    return newest


def _marked(state: TableState, key: str) -> Committed | None:
    snapshot = state.current
    while snapshot is not None:
        if text := snapshot.entry(key):
            return Committed(Committed.parse(text).marker, snapshot.id, snapshot.sequence_number)
        snapshot = None if snapshot.parent_id is None else state.find(snapshot.parent_id)
    return None


def check_shows(table: "Table", query: str, name: str, end: int) -> None:
    """Check that a table, read by PyIceberg, shows what is known: the micro-batches of a query before `end`."""
    newest = newest_marker(python_state(table), query, name)
    if end > (newest.next_number if newest else 0):
        raise outdated(name)


def outdated(name: str) -> UnavailableError:
    """Return the error for a catalog that answers with an older state of a table."""
    return UnavailableError(f"The catalog does not show the newest state of {name} yet.", "Run the consumer again.")


@dataclass(frozen=True)
class Standing:
    """The position of a stream's tables."""

    accounted: str | None  # the position up to which the ledger has everything; None if nothing was ever taken
    unfinished: Marker | None  # the micro-batch of the source that bronze has and the ledger lacks
    replays: int = 0  # number of micro-batches of replays in the ledger
    is_replaying: bool = False  # whether there is an unfinished micro-batch of a replay


def standing(catalog: "Catalog", names: StreamTables, query: str, is_origin: Callable[[str], bool]) -> Standing:
    """Read the position of a stream's tables."""
    bronze, dead_letters, ledger = (
        newest_marker(python_state(catalog.load_table(name)), query, name)
        for name in (names.bronze, names.dead_letters, names.ledger)
    )
    stream = names.bronze.partition(".")[2]
    begun = unfinished(stream, bronze, dead_letters, ledger, is_origin)
    replays = ledger.marker.replays if ledger else 0
    attempts = None
    if catalog.table_exists(names.attempts):
        attempts = newest_marker(python_state(catalog.load_table(names.attempts)), query, names.attempts)
    return Standing(
        ledger.marker.end if ledger else None,
        None if begun and begun.is_replay else begun,
        replays,
        check_attempts(stream, attempts, replays),
    )
