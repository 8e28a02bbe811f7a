"""The ids of kept events that can still meet a duplicate, in RocksDB on the local disk.

It is a copy: the checkpoint has the same ids in files. A copy that is lost, damaged, or of another point in time is
filled again from there.
"""

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rocksdict import ColumnFamily, WriteBatch

from consumer.layers.buckets import Buckets
from consumer.modes.plan import Micros

_TIME = struct.Struct(">q")
_PROGRESS = b"progress"
_HOUR = 3_600_000_000
_REST = "rest"


class Progress(NamedTuple):
    """Which commit of a checkpoint the ids belong to.

    Parameters
    ----------
    number, id
        Of the commit.
    """

    number: int
    id: str


class Keys:
    """Ids with the times of their events.

    They are in buckets by time. What cannot meet a duplicate any more is removed with its bucket. Each method may raise
    :class:`consumer.layers.buckets.DamagedError`.

    Parameters
    ----------
    folder
        Where they are; made if it is missing.
    watermark
        How much older than the newest event an event may be, in microseconds.

    Raises
    ------
    LakeproofError
        Another process has it open, or the folder cannot be written.
    """

    def __init__(self, folder: Path, watermark: Micros) -> None:
        self._width = max(2 * watermark, _HOUR)
        self._buckets = Buckets(folder, "LAKE_HOME")

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
        newest = None if oldest is None else oldest // self._width + 2
        batch = WriteBatch(raw_mode=True)
        buckets: dict[int | None, ColumnFamily] = {}
        for key, time in rows:
            if oldest is None or time >= oldest:
                number = time // self._width
                # A time that is far ahead would make a bucket of its own.
                place = number if newest is not None and number <= newest else None
                if place not in buckets:
                    buckets[place] = self._buckets.handle(_REST if place is None else str(place))
                batch.put(key, _TIME.pack(time), buckets[place])
        batch.put(_PROGRESS, json.dumps(progress).encode())
        self._buckets.write(batch)
        if oldest is not None:
            for name in [name for name in self._buckets.names if name != _REST and int(name) < oldest // self._width]:
                self._buckets.drop(name)

    def clear(self) -> None:
        """Remove everything."""
        self._buckets.clear()

    def close(self) -> None:
        """Close it."""
        self._buckets.close()
