"""The plan of a mode's micro-batch: it fixes the content before any of it is read, so that a repetition is the same."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from consumer.sources.kafka.read import OffsetRange
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.topic import Extent

Micros = int
"""A time in microseconds since 1970, UTC."""

# Minimum for each task but the last: each task makes its own file in the sinks.
_OFFSETS_PER_TASK = 10_000


@dataclass(frozen=True)
class ModePlan:
    """The content of a micro-batch."""

    number: int  # starts at 0
    start: Offsets
    end: Offsets
    tasks: tuple[tuple[OffsetRange, ...], ...]  # by partition and offset: decides which of two events is first
    watermark: Micros | None  # earlier events are late; None until an event has been seen
    at: Micros  # time of planning: an event of a later time does not move the watermark beyond it

    def as_json(self) -> bytes:
        """Return the plan as JSON."""
        return json.dumps(
            {
                "number": self.number,
                "start": str(self.start),
                "end": str(self.end),
                "tasks": [[[part.partition, part.start, part.end] for part in task] for task in self.tasks],
                "watermark": self.watermark,
                "at": self.at,
            }
        ).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Parse the result of :meth:`as_json`."""
        found = json.loads(text)
        topic = Offsets.parse(found["end"]).topic
        return cls(
            number=found["number"],
            start=Offsets.parse(found["start"]),
            end=Offsets.parse(found["end"]),
            tasks=tuple(
                tuple(OffsetRange(topic, partition, start, end, start) for partition, start, end in task)
                for task in found["tasks"]
            ),
            watermark=found["watermark"],
            at=found["at"],
        )


def next_end(start: Offsets, extents: Mapping[int, Extent], most: int) -> Offsets:
    """Return the end of a micro-batch of about `most` offsets, with each partition's share of the available offsets."""
    left = {partition: max(extent.end - start.next(partition), 0) for partition, extent in extents.items()}
    total = sum(left.values())
    ends = {}
    for partition, count in left.items():
        share = count if total <= most else -(-count * most // total)
        ends[partition] = start.next(partition) + min(count, share)
    return Offsets.of(start.topic, ends)


def tasks_between(start: Offsets, end: Offsets, pieces: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Split the offsets between two positions among about `pieces` tasks, or fewer if there are few offsets."""
    ranges = [
        (partition, start.next(partition), behind)
        for partition, behind in end.entries
        if behind > start.next(partition)
    ]
    size = max(_OFFSETS_PER_TASK, -(-sum(behind - first for _, first, behind in ranges) // max(pieces, 1)))
    tasks: list[tuple[OffsetRange, ...]] = []
    task: list[OffsetRange] = []
    room = size
    for partition, first, behind in ranges:
        while first < behind:
            until = min(behind, first + room)
            task.append(OffsetRange(end.topic, partition, first, until, first))
            room -= until - first
            first = until
            if not room:
                tasks.append(tuple(task))
                task, room = [], size
    return (*tasks, tuple(task)) if task else tuple(tasks)
