"""Rebuildable index in RocksDB of the ids that can still meet a duplicate: the checkpoint has them in files."""

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from consumer.layers.buckets import Buckets
from consumer.modes.plan import Micros

_TIME = struct.Struct(">q")


class Progress(NamedTuple):
    """Which commit of a checkpoint the ids belong to."""

    number: int
    id: str


class Keys(Buckets):
    """Ids with the times of their events."""

    def __init__(self, folder: Path, watermark: Micros) -> None:
        super().__init__(folder, "LAKE_HOME", 2 * watermark)

    @property
    def progress(self) -> Progress | None:
        """Which commit they belong to; None if there are none."""
        recorded = self.recorded
        return Progress(*recorded) if recorded else None

    def known(self, keys: Sequence[bytes], oldest: Micros | None) -> list[bool]:
        """Whether an event with each id was kept, whose time is not before `oldest`."""
        found = [False] * len(keys)
        for bucket in self.names:
            for index, value in enumerate(self.values(bucket, keys)):
                if value is not None and (oldest is None or _TIME.unpack(value)[0] >= oldest):
                    found[index] = True
        return found

    def add(self, rows: Iterable[tuple[bytes, Micros]], progress: Progress, oldest: Micros | None) -> None:
        """Add ids, and remove those of events from before `oldest`."""
        live = ((key, time, _TIME.pack(time)) for key, time in rows if oldest is None or time >= oldest)
        self.put(live, progress, oldest)
