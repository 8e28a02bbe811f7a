"""Silver in plain Python: verdicts on rows, one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Row:
    """A row of bronze: its place, its key, its event time and its other content."""

    micro_batch: int
    source: str
    position: int
    key: str
    event_time: datetime
    content: str
    ingested_at: datetime

    @property
    def place(self) -> tuple[str, int]:
        """Source and position."""
        return self.source, self.position


Decided = dict[tuple[str, int], tuple[str, tuple[str, int] | None]]
"""The verdict on each row by its place, and the place of the row that won over it."""


def decide(rows: Iterable[Row], horizon: timedelta | None) -> Decided:
    """Decide rows in order."""
    found: Decided = {}
    kept: dict[str, Row] = {}
    watermark: datetime | None = None
    newest: datetime | None = None
    number = -1
    for row in sorted(rows, key=lambda each: (each.micro_batch, each.source, each.position)):
        if row.micro_batch != number:
            number, watermark = row.micro_batch, newest
        oldest = watermark - horizon if watermark and horizon is not None else None
        winner = kept.get(row.key)
        if winner and (oldest is None or winner.event_time >= oldest):
            same = (winner.event_time, winner.content) == (row.event_time, row.content)
            found[row.place] = ("duplicates" if same else "conflicts", winner.place)
        elif oldest and row.event_time < oldest:
            found[row.place] = ("late", None)
        else:
            found[row.place] = ("kept", None)
            kept[row.key] = row
        counted = min(row.event_time, row.ingested_at)
        newest = max(newest, counted) if newest else counted
    return found
