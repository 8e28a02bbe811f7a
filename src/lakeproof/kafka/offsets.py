"""Positions in a topic: the next offset of each partition."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from lakeproof.errors import UsageError

OFFSET_DIGITS = 19
"""Digits of an offset in a name, so that names sort as offsets do: an offset is a long."""


@dataclass(frozen=True)
class Offsets:
    """A position in a topic. As text, ``topic/0=42,1=7``; a partition that is not named is at 0.

    Parameters
    ----------
    topic
        Name of the topic.
    entries
        Partitions and their next offsets, sorted; those at 0 are left out, so that a position has one text, whether or
        not a partition that was added is empty.
    """

    topic: str
    entries: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, topic: str, offsets: Mapping[int, int]) -> Self:
        """Make a position from offsets by partition."""
        return cls(topic, tuple(sorted((partition, offset) for partition, offset in offsets.items() if offset)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a position's text.

        Raises
        ------
        ValueError
            It is none.
        """
        topic, _, listed = text.rpartition("/")
        if not topic:
            raise ValueError(f"expected topic/partition=offset,…, got {text!r}")
        pairs = (entry.split("=") for entry in listed.split(",") if entry)
        return cls.of(topic, {int(partition): int(offset) for partition, offset in pairs})

    @classmethod
    def from_spark(cls, text: str) -> Self:
        """Read an offset of Spark's Kafka source: ``{"topic": {"0": 42}}``.

        Raises
        ------
        ValueError
            It is none, or not of one topic.
        """
        ((topic, offsets),) = json.loads(text).items()
        return cls.of(topic, {int(partition): int(offset) for partition, offset in offsets.items()})

    def __str__(self) -> str:
        return f"{self.topic}/{','.join(f'{partition}={offset}' for partition, offset in self.entries)}"

    def as_spark(self, partitions: Iterable[int]) -> str:
        """The position as Spark's Kafka source reads it; it asks for each partition."""
        return json.dumps({self.topic: {str(partition): self.next(partition) for partition in partitions}})

    def next(self, partition: int) -> int:
        """The next offset of a partition."""
        return dict(self.entries).get(partition, 0)


def source_name(topic: str, partition: int, offset: int) -> str:
    """What ``_source`` calls a message: ``topic/partition/offset``."""
    return f"{topic}/{partition}/{offset:0{OFFSET_DIGITS}}"


def partition_name(source: str) -> str:
    """The part of a message's name that names its partition: ``topic/partition``."""
    return source.rpartition("/")[0]


def starting_offsets(text: str) -> str | datetime | dict[int, int]:
    """Read where a stream begins: ``earliest``, ``latest``, a time with its zone, or offsets by partition.

    Raises
    ------
    UsageError
        It is none of these.
    """
    if text in ("earliest", "latest"):
        return text
    try:
        if text.startswith("{"):
            offsets = json.loads(text)
            if all(type(offset) is int and offset >= 0 for offset in offsets.values()):
                return {int(partition): offset for partition, offset in offsets.items()}
        elif (time := datetime.fromisoformat(text)).tzinfo:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise UsageError(
        f"expected earliest, latest, a time or offsets, got {text!r}.",
        'Write a time with its zone, like 2026-11-22T06:00:00Z, or offsets by partition, like {"0": 42, "1": 7}.',
    )
