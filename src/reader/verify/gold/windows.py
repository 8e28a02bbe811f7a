"""Recompute the windows of a product from silver, slice by slice, so that memory does not grow with silver."""

from dataclasses import dataclass

from lakeproof.contracts import Contract
from lakeproof.gold.model import Product
from lakeproof.tables.names import MICRO_BATCH_ID
from reader.connect import Session
from reader.verify.gold.sql import aggregate_of, value_of
from reader.verify.silver.content import event_time, micros
from reader.verify.spans import Span
from reader.views import MEMORY, identifier

START, END = "_start", "_end"
"""Columns of the start and the end of a window, in microseconds since 1970."""
EXPECTED = f"{MEMORY}.main.verify_expected_windows"
"""Windows of a slice: ``_start``, ``_end``, the columns of :func:`key_columns` and :func:`measure_columns`."""

_DAY = 86_400_000_000
_SLICE_ROWS = 1_000_000
"""Maximum number of rows in a slice; each row of silver counts once for every window that contains it."""


@dataclass(frozen=True)
class Taken:
    """The rows of `silver` (SQL) in a gold table: those of micro-batches before `end`.

    Windows that end after `horizon`, in microseconds since 1970, are not published yet; None if all are published.
    """

    silver: str
    end: int
    horizon: int | None = None


class Windows:
    """Recomputes the windows of a product from the rows of silver in the gold table."""

    def __init__(self, session: Session, product: Product, contract: Contract, taken: Taken) -> None:
        self._session = session
        self._product = product
        self._taken = taken
        self._size, self._every = micros(product.window.size), micros(product.window.every)
        at = event_time(contract, "_silver")
        # The start of the newest window that contains a record. % has the sign of the time, which may be before 1970.
        self._newest = f"({at} - (({at} % {self._every}) + {self._every}) % {self._every})"
        self._time = ".".join(["_silver", *map(identifier, contract.event_time.split("."))])

    def slices(self, within: Span) -> list[Span]:
        """Return spans of window starts that together make up `within`."""
        return slices(self._session, self._newest, self._rows(within), self._product.window.overlap, within)

    def spans_since(self, start: int) -> list[Span]:
        """Return spans of the starts of windows with rows of micro-batches from `start` on: one span for each day."""
        rows = f"{self._rows(Span())} AND _silver.{MICRO_BATCH_ID} >= {start}"
        return [
            Span(first - (self._size - self._every), last + 1)
            for first, last in self._session.fetch(
                f"SELECT min(start), max(start) FROM (SELECT {self._newest} AS start FROM {rows}) "
                f"GROUP BY start // {_DAY}"
            )
        ]

    def expect(self, part: Span) -> int:
        """Put the windows of a slice into :data:`EXPECTED`; return their number."""
        keys = key_columns(self._product)
        selected, measures = selected_of(self._product), measures_of(self._product)
        end = f"{START} + {self._size} AS {END}"
        published = Span(end=None if self._taken.horizon is None else self._taken.horizon - self._size + 1)
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {EXPECTED} AS SELECT {', '.join([START, end, *keys, *measures])} FROM ("
            f"SELECT {', '.join([f'{self._starts(part)} AS {START}', *selected])} FROM {self._rows(part)}) "
            f"WHERE {part.holds(START)} AND {published.holds(START)} GROUP BY {', '.join([START, *keys])}"
        )
        return self._session.count(EXPECTED)

    def rows_since(self, start: int) -> int:
        """Return the number of silver rows that are in windows, in micro-batches from `start` on."""
        return self._count(f"_silver.{MICRO_BATCH_ID} >= {start}")

    def rows_that_close(self, horizon: int, before: int | None) -> int:
        """Return the number of silver rows in windows that end by a horizon and after the previous one, if any."""
        # Windows end at multiples of their distance. This is the last window of a row that the horizon has passed.
        end = f"least({self._newest} + {self._size}, {horizon - horizon % self._every})"
        return self._count(f"{end} > {self._newest} AND {'true' if before is None else f'{end} > {before}'}")

    def _count(self, condition: str) -> int:
        return self._session.count(f"{self._rows(Span())} AND {condition}")

    def _starts(self, part: Span) -> str:
        """Return SQL of the starts of the windows that contain a row, limited to a slice."""
        if self._size == self._every:
            return self._newest
        first, last = f"{self._newest} - {self._size - self._every}", self._newest
        # A slice may begin between two starts; `range` counts from its first value, which must be a start.
        first = first if part.start is None else f"greatest({first}, {part.start // self._every * self._every})"
        last = last if part.end is None else f"least({last}, {part.end - 1})"
        return f"unnest(range({first}, {last} + 1, {self._every}))"

    def _rows(self, part: Span) -> str:
        """Return SQL of silver rows that may be in windows of a slice; it compares timestamps, to prune files."""
        limits = [f"_silver.{MICRO_BATCH_ID} < {self._taken.end}", f"{self._time} IS NOT NULL"]
        if part.start is not None:
            limits.append(f"{self._time} >= make_timestamptz({part.start})")
        if part.end is not None:
            limits.append(f"{self._time} < make_timestamptz({part.end + self._size})")
        return f"{self._taken.silver} AS _silver WHERE {' AND '.join(limits)}"


def slices(session: Session, newest: str, rows: str, overlap: int, within: Span) -> list[Span]:
    """Return spans of window starts that together make up `within`, with about the same number of rows each.

    `newest` is SQL of the start of the newest window that contains a row; `rows` is SQL of the rows, without ``FROM``;
    `overlap` is the number of windows that contain a row.
    """
    starts = session.fetch(
        f"SELECT min(start) FROM (SELECT start, (sum(rows) OVER (ORDER BY start) - 1) // {_SLICE_ROWS} AS part "
        f"FROM (SELECT {newest} AS start, count(*) * {overlap} AS rows FROM {rows} GROUP BY ALL)) "
        "GROUP BY part ORDER BY 1"
    )
    cuts = [
        start
        for (start,) in starts[1:]
        if (within.start is None or start > within.start) and (within.end is None or start < within.end)
    ]
    return [Span(start, end) for start, end in zip([within.start, *cuts], [*cuts, within.end], strict=True)]


def slice_count(rows: int) -> int:
    """Return the number of slices for a number of rows."""
    return 1 + rows // _SLICE_ROWS


def selected_of(product: Product) -> list[str]:
    """Return SQL of the columns of keys and of the arguments and orders of measures, for a row of silver."""
    selected = [
        f"{'.'.join(['_silver', *map(identifier, key.path)])} AS {column}"
        for column, key in zip(key_columns(product), product.keys, strict=True)
    ]
    for column, measure in zip(measure_columns(product), product.measures, strict=True):
        if measure.argument:
            selected.append(f"{value_of(measure.argument, '_silver')} AS {column}")
        if measure.order:
            selected.append(f"{value_of(measure.order, '_silver')} AS {_order_of(column)}")
    return selected


def measures_of(product: Product) -> list[str]:
    """Return SQL of the measures over rows with the columns of :func:`selected_of`."""
    return [
        f"{aggregate_of(measure, column, _order_of(column))} AS {column}"
        for column, measure in zip(measure_columns(product), product.measures, strict=True)
    ]


def _order_of(column: str) -> str:
    return f"_order{column}"


def key_columns(product: Product) -> list[str]:
    """Return the names of key columns in comparisons."""
    return [f"_key_{index}" for index in range(len(product.keys))]


def measure_columns(product: Product) -> list[str]:
    """Return the names of measure columns in comparisons."""
    return [f"_measure_{index}" for index in range(len(product.measures))]
