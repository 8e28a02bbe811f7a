"""Rebuildable index in RocksDB of the ids that can still meet a duplicate: the checkpoint has them in files."""

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rocksdict import ColumnFamily, WriteBatch

from consumer.layers.buckets import TimedBuckets
from consumer.modes.plan import Micros

_TIME = struct.Struct(">q")
_PROGRESS = b"progress"


class Progress(NamedTuple):
    """Which commit of a checkpoint the ids belong to."""

    number: int
    id: str


class Keys:
    """Ids with the times of their events. Each method may raise :class:`consumer.layers.buckets.DamagedError`."""

    def __init__(self, folder: Path, watermark: Micros) -> None:
        self._buckets = TimedBuckets(folder, "LAKE_HOME", 2 * watermark)

    @property
    def progress(self) -> Progress | None:
        """Which commit they belong to; None if there are none."""
        text = self._buckets.property(_PROGRESS)
        return Progress(*json.loads(text)) if text else None

    def known(self, keys: Sequence[bytes], oldest: Micros | None) -> list[bool]:
        """Whether an event with each id was kept, whose time is not before `oldest`."""
        found = [False] * len(keys)
        for bucket in self._buckets.names:
            for index, value in enumerate(self._buckets.find(bucket, keys)):
                if value is not None and (oldest is None or _TIME.unpack(value)[0] >= oldest):
                    found[index] = True
        return found

    def add(self, rows: Iterable[tuple[bytes, Micros]], progress: Progress, oldest: Micros | None) -> None:
        """Add ids, and remove those of events from before `oldest`, at once."""
        batch = WriteBatch(raw_mode=True)
        buckets: dict[str, ColumnFamily] = {}
        for key, time in rows:
            if oldest is None or time >= oldest:
                name = self._buckets.bucket(time, oldest)
                if name not in buckets:
                    buckets[name] = self._buckets.handle(name)
                batch.put(key, _TIME.pack(time), buckets[name])
        batch.put(_PROGRESS, json.dumps(progress).encode())
        self._buckets.write(batch)
        self._buckets.drop_before(oldest)

    def clear(self) -> None:
        """Remove everything."""
        self._buckets.clear()

    def close(self) -> None:
        """Close it."""
        self._buckets.close()
