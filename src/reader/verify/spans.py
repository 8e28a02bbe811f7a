"""Parts of a table, compared one after the other so that memory does not grow with the table."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A half-open range of micro-batches, or of times in microseconds since 1970; None for no limit."""

    start: int | None = None
    end: int | None = None

    def holds(self, value: str) -> str:
        """Return SQL that is true if a value is in the span."""
        return self._between(value, "{}")

    def holds_row(self, value: str) -> str:
        """Return SQL that is true if a row is in the span; a null value is in the span without a start."""
        return self._or_null(value, self.holds(value))

    def holds_time(self, column: str) -> str:
        """Return the SQL of :meth:`holds_row` for a timestamp column, compared as timestamps to prune files."""
        return self._or_null(column, self._between(column, "make_timestamptz({})"))

    def _between(self, value: str, limit: str) -> str:
        limits = [f"{value} >= {limit.format(self.start)}"] * (self.start is not None)
        limits += [f"{value} < {limit.format(self.end)}"] * (self.end is not None)
        return " AND ".join(limits) or "true"

    def _or_null(self, value: str, within: str) -> str:
        return within if self.start is not None else f"({value} IS NULL OR {within})"


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans that cover the same values, sorted, without overlaps."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start is not None, each.start or 0)):
        last = found[-1] if found else None
        if last and (last.end is None or (span.start is None or span.start <= last.end)):
            end = None if last.end is None or span.end is None else max(last.end, span.end)
            found[-1] = Span(last.start, end)
        else:
            found.append(span)
    return found
