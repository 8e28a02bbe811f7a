"""The newest marker of a table, in a state of it as Spark or PyIceberg has read it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from consumer.iceberg.marker import (
    Committed,
    Snapshot,
    check_history,
    check_marked,
    committed,
    property_of,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot as TableSnapshot

_ROWS = "total-records"


class State(Protocol):
    """One state of a table."""

    def properties(self) -> Mapping[str, str]:
        """All of its properties."""

    def property(self, name: str) -> str | None:
        """One of its properties."""

    def current(self) -> Snapshot | None:
        """Its current snapshot."""

    def snapshot(self, number: int) -> Snapshot | None:
        """The snapshot with an id; None if it has expired."""


class SparkState:
    """Of Iceberg's own library in the JVM: a table, or metadata of it."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded

    def properties(self) -> Mapping[str, str]:
        """Several calls to the JVM for each."""
        return dict(self._loaded.properties())

    def property(self, name: str) -> str | None:
        """One call to the JVM."""
        value: str | None = self._loaded.properties().get(name)
        return value

    def current(self) -> Snapshot | None:
        """Its current snapshot."""
        return self._snapshot(self._loaded.currentSnapshot())

    def snapshot(self, number: int) -> Snapshot | None:
        """The snapshot with an id."""
        return self._snapshot(self._loaded.snapshot(number))

    def _snapshot(self, found: Any) -> Snapshot | None:
        if found is None:
            return None
        return Snapshot(
            found.snapshotId(), found.parentId(), found.sequenceNumber(), lambda key: found.summary().get(key)
        )


class PythonState:
    """Of PyIceberg."""

    def __init__(self, table: "Table") -> None:
        self._table = table
        self._snapshots = {each.snapshot_id: each for each in table.snapshots()}

    def properties(self) -> Mapping[str, str]:
        """All of its properties."""
        return self._table.properties

    def property(self, name: str) -> str | None:
        """One of its properties."""
        return self._table.properties.get(name)

    def current(self) -> Snapshot | None:
        """Its current snapshot."""
        return self._snapshot(self._table.current_snapshot())

    def snapshot(self, number: int) -> Snapshot | None:
        """The snapshot with an id."""
        return self._snapshot(self._snapshots.get(number))

    def _snapshot(self, found: "TableSnapshot | None") -> Snapshot | None:
        if found is None:
            return None
        summary = found.summary
        number = found.sequence_number or 0
        return Snapshot(
            found.snapshot_id, found.parent_snapshot_id, number, lambda key: summary.get(key) if summary else None
        )


def newest_marker(state: State, query: str, table: str) -> Committed | None:
    """The newest marker of a query in one state of a table: in a property, or in a snapshot if somebody removed that.

    Raises
    ------
    MarkerLostError
        The table was rolled back to before that, or replaced, or has rows and no marker.
    """
    key = property_of(query)
    current = state.current()
    newest = committed({key: state.property(key) or ""}, query) or _marked(state, current, key)
    if newest:
        check_history(newest, current, state.snapshot, table)
    elif current is not None:
        check_marked(state.properties(), int(current.entry(_ROWS) or 0), table)
    return newest


def _marked(state: State, snapshot: Snapshot | None, key: str) -> Committed | None:
    while snapshot is not None:
        if text := snapshot.entry(key):
            return Committed(Committed.parse(text).marker, snapshot.id, snapshot.sequence_number)
        snapshot = None if snapshot.parent_id is None else state.snapshot(snapshot.parent_id)
    return None
