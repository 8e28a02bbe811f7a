"""Positions in a topic: the next offset of each partition, and ranges read from the past."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

Range = tuple[int, int, int]  # partition, first offset, end offset (exclusive)

OFFSET_DIGITS = 19  # digits of an offset in a name: padded, so that names sort like offsets


@dataclass(frozen=True)
class Offsets:
    """A position in a topic. As text, ``topic/0=42,1=7``; other partitions are at 0.

    With ranges before the stream's start that were read later: ``topic/0=42,1=7;0=10-20``.
    """

    topic: str
    # Next offset by partition, sorted. Offset 0 is left out, so that an added empty partition does not change the text.
    entries: tuple[tuple[int, int], ...] = ()
    # Ranges before the stream's start that were read later, sorted and merged.
    past: tuple[Range, ...] = ()

    @classmethod
    def of(cls, topic: str, offsets: Mapping[int, int]) -> Self:
        """Create a position from offsets by partition."""
        return cls(topic, tuple(sorted((partition, offset) for partition, offset in offsets.items() if offset)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of a position."""
        topic, _, listed = text.rpartition("/")
        if not topic:
            raise ValueError(f"expected topic/partition=offset,…, got {text!r}")
        next_ones, _, past = listed.partition(";")
        pairs = (entry.split("=") for entry in next_ones.split(",") if entry)
        read = cls.of(topic, {int(partition): int(offset) for partition, offset in pairs})
        ranges = (entry.replace("-", "=").split("=") for entry in past.split(",") if entry)
        return read.with_past((int(partition), int(first), int(end)) for partition, first, end in ranges)

    @classmethod
    def from_spark(cls, text: str) -> Self:
        """Parse an offset of Spark's Kafka source: ``{"topic": {"0": 42}}``."""
        ((topic, offsets),) = json.loads(text).items()
        return cls.of(topic, {int(partition): int(offset) for partition, offset in offsets.items()})

    def __str__(self) -> str:
        entries = ",".join(f"{partition}={offset}" for partition, offset in self.entries)
        past = ",".join(f"{partition}={first}-{end}" for partition, first, end in self.past)
        return f"{self.topic}/{entries}{';' if past else ''}{past}"

    def with_past(self, ranges: Iterable[Range]) -> Self:
        """Return a copy with more ranges of the past."""
        return replace(self, past=_joined([*self.past, *ranges]))

    def past_since(self, before: "Offsets") -> list[Range]:
        """Return ranges of the past that are not in an earlier position."""
        return without(self.past, before.past)

    def as_spark(self, partitions: Iterable[int]) -> str:
        """Format the position for Spark's Kafka source."""
        return json.dumps({self.topic: {str(partition): self.next(partition) for partition in partitions}})

    def next(self, partition: int) -> int:
        """Return the next offset of a partition."""
        return dict(self.entries).get(partition, 0)


def without(wanted: Iterable[Range], known: Iterable[Range]) -> list[Range]:
    """Return sorted ranges without the known ones."""
    known = _joined(known)
    left = []
    for partition, first, end in _joined(wanted):
        at = first
        for other, begin, behind in known:
            if other == partition and begin < end and behind > at:
                if begin > at:
                    left.append((partition, at, begin))
                at = max(at, behind)
        if at < end:
            left.append((partition, at, end))
    return left


def past_between(start: str, end: str) -> list[Range]:
    """Return the ranges from before the beginning of a stream that a micro-batch has, by its start and its end."""
    return Offsets.parse(end).past_since(Offsets.parse(start))


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Sort and merge ranges, without empty ones."""
    found: list[Range] = []
    for partition, first, end in sorted(each for each in ranges if each[1] < each[2]):
        if found and found[-1][0] == partition and first <= found[-1][2]:
            found[-1] = (partition, found[-1][1], max(end, found[-1][2]))
        else:
            found.append((partition, first, end))
    return tuple(found)


def source_name(topic: str, partition: int, offset: int) -> str:
    """``_source`` of a message: ``topic/partition/offset``."""
    return f"{topic}/{partition}/{offset:0{OFFSET_DIGITS}}"


def place_of(source: str) -> tuple[str, int, int]:
    """Topic, partition and offset of a message, from its ``_source``."""
    topic, partition, offset = source.rsplit("/", 2)
    return topic, int(partition), int(offset)


def partition_name(source: str) -> str:
    """Prefix of ``_source`` for a partition: ``topic/partition``."""
    return source.rpartition("/")[0]
