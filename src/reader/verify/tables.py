"""What verify finds in a table, kind by kind with a few examples, and up to where the table is filled."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeproof.tables.names import MARKER

if TYPE_CHECKING:
    from pyiceberg.table import Table

SHOWN_EXAMPLES = 5


@dataclass(frozen=True)
class TableFinding:
    """A kind of fault in a table.

    Parameters
    ----------
    table
        Name of the table.
    what
        The fault.
    rows
        How many rows have it.
    examples
        A few of them.
    """

    table: str
    what: str
    rows: int
    examples: tuple[str, ...]


@dataclass
class Findings:
    """Collects findings, with the first examples of each kind."""

    _rows: dict[tuple[str, str], int] = field(default_factory=dict)
    _examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, table: str, what: str, rows: int, examples: Sequence[str]) -> None:
        """Add rows of a table."""
        kind = (table, what)
        self._rows[kind] = self._rows.get(kind, 0) + rows
        found = self._examples.setdefault(kind, [])
        found += examples[: SHOWN_EXAMPLES - len(found)]

    def whole(self) -> tuple[TableFinding, ...]:
        """All findings, by table."""
        return tuple(
            TableFinding(table, what, rows, tuple(self._examples[table, what]))
            for (table, what), rows in sorted(self._rows.items())
        )


def newest_marker(table: "Table", query: str) -> Mapping[str, str]:
    """The newest marker of a query in a table; empty before its first micro-batch.

    It is in a property. If that was removed, the newest snapshot that has a marker tells.
    """
    text, snapshot = table.properties.get(MARKER + query), table.current_snapshot()
    while not text and snapshot:
        text = snapshot.summary[MARKER + query] if snapshot.summary else None
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return json.loads(text)["marker"] if text else {}


def marker_end(marker: Mapping[str, str]) -> int:
    """The number behind the last micro-batch that a table has."""
    return int(marker.get("end", 0))
