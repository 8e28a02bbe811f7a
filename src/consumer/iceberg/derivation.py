"""What readers derive from each data file, so that a writer in the same program can derive it from rows in memory.

A layer that follows a table would otherwise read, in a job of Spark, what the layer before it has just written.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

# Maximum number of rows of a result: a row can be in many windows.
_ROWS = 1_000_000


@dataclass(frozen=True)
class Derivation:
    """A function of the rows of a data file.

    `columns` maps the names that the function gets to the columns of the table, whose schema has the id `schema_id`.
    `kind` identifies the function. Its result has each row `repeats` times at most.
    """

    columns: Mapping[str, str]
    schema_id: int
    kind: Hashable
    derive: Callable[[pa.RecordBatch], pa.Table]
    repeats: int = 1

    @property
    def key(self) -> Hashable:
        """What identifies the result for a data file."""
        return tuple(self.columns.items()), self.schema_id, self.kind

    def of(self, rows: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the result for all rows of a data file."""
        return pa.concat_tables(map(self.derive, rows)).combine_chunks()


@dataclass
class Room:
    """The number of bytes that is left for the results of a task; negative if they did not fit."""

    left: int


class Deriving:
    """Derives a result from the rows of a data file as they are written."""

    def __init__(self, derivation: Derivation, room: Room) -> None:
        self._derivation = derivation
        self._room = room
        self._found: list[pa.Table] | None = []
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        """Take the next rows."""
        wanted = self._derivation
        self._rows += rows.num_rows * wanted.repeats
        if self._found is None or self._rows > _ROWS or self._room.left <= 0:
            self._found = None
            return
        try:
            columns: Any = [rows[name].combine_chunks() for name in wanted.columns.values()]
            found = wanted.derive(pa.RecordBatch.from_arrays(columns, names=list(wanted.columns)))
            self._room.left -= found.nbytes
            self._found.append(found)
        except Exception:  # noqa: BLE001 - the reader derives it, too, and explains its error; the rows are written
            self._found = None

    def result(self) -> dict[Hashable, pa.Table]:
        """Return the result by its key; nothing if it is too large, or rows could not be processed."""
        if not self._found:
            return {}
        return {self._derivation.key: pa.concat_tables(self._found).combine_chunks()}
