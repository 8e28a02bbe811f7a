"""Missing values of bronze rows, counted by what the ledger counts, and compared with its number of discarded values.

For a file, the ledger counts the discarded values of one source. For a topic, it counts those of a range of offsets; of
replays, those of a file or a partition: the missing values of many messages together must not exceed them.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reader.verify.findings import SHOWN_EXAMPLES
from reader.verify.landed.values import Differences, excess
from reader.verify.tables.topic import DiscardingRange


@dataclass
class Missing:
    """The number of compared rows, the number of their missing values, and texts about the first of these."""

    rows: int = 0
    values: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, found: Differences, of: str) -> None:
        """Add the differences of a message or a file; `of` begins each text."""
        self.rows += found.rows
        self.values += len(found.missing)
        self.first += [of + text for text in found.missing[: SHOWN_EXAMPLES - len(self.first)]]

    def excess(self, of: str, discarded: int, rows: int) -> Iterator[str]:
        """Yield texts about missing values that are not the discarded ones of the ledger, which counts `rows` rows."""
        yield from excess(self.values, self.first, discarded, is_whole=self.rows == rows, of=of)


class MissingOfRanges:
    """The missing values of a partition by range of the ledger; its messages are added in the order of their offsets.

    `ranges` are those with discarded values, sorted: elsewhere, no value may be missing.
    """

    def __init__(self, ranges: Sequence[DiscardingRange] = ()) -> None:
        self._ranges = ranges
        self._at = 0  # index of the first range that has not ended yet
        self._missing = Missing()

    def add(self, offset: int, found: Differences) -> Iterator[str]:
        """Add the differences of a message; yield texts about earlier ranges, and about a message outside of all."""
        yield from self._end_before(offset)
        of = f"offset {offset:,}: "
        if self._at < len(self._ranges) and self._ranges[self._at].first <= offset:
            self._missing.add(found, of)
        else:
            yield from (of + text for text in found.missing)

    def end(self) -> Iterator[str]:
        """Yield texts about the ranges that are left."""
        yield from self._end_before(sys.maxsize)

    def _end_before(self, offset: int) -> Iterator[str]:
        while self._at < len(self._ranges) and self._ranges[self._at].end <= offset:
            booked = self._ranges[self._at]
            yield from self._missing.excess(f"offsets from {booked.first:,}: ", booked.discarded, booked.bronze)
            self._at += 1
            self._missing = Missing()
