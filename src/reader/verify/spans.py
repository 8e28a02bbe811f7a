"""Parts of a table that are compared one after the other, so that memory does not grow with the table."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Micro-batches, or times in microseconds since 1970, from a start to before an end; None for no limit."""

    start: int | None = None
    end: int | None = None

    def holds(self, value: str) -> str:
        """SQL of whether a value is in the span."""
        return self._between(value, "{}")

    def holds_row(self, value: str) -> str:
        """SQL of whether a row is in the span; one without a value is in the first."""
        return self._or_null(value, self.holds(value))

    def holds_time(self, column: str) -> str:
        """The same for a column of timestamps, which are compared as such, to prune files."""
        return self._or_null(column, self._between(column, "make_timestamptz({})"))

    def _between(self, value: str, limit: str) -> str:
        limits = [f"{value} >= {limit.format(self.start)}"] * (self.start is not None)
        limits += [f"{value} < {limit.format(self.end)}"] * (self.end is not None)
        return " AND ".join(limits) or "true"

    def _or_null(self, value: str, within: str) -> str:
        return within if self.start is not None else f"({value} IS NULL OR {within})"


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans that have the same values, none of which overlap, in their order."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start is not None, each.start or 0)):
        last = found[-1] if found else None
        if last and (last.end is None or (span.start is None or span.start <= last.end)):
            end = None if last.end is None or span.end is None else max(last.end, span.end)
            found[-1] = Span(last.start, end)
        else:
            found.append(span)
    return found
