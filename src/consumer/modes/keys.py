"""The ids of kept events that can still meet a duplicate, in RocksDB on the local disk.

It is a copy: the checkpoint has the same ids in files. A copy that is lost, damaged, or of another point in time is
filled again from there.
"""

import json
import shutil
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog
from rocksdict import BlockBasedOptions, Cache, ColumnFamily, DBCompressionType, Options, Rdict, WriteBatch

from consumer.modes.plan import Micros
from lakeproof.errors import LakeproofError

log = structlog.get_logger()

_TIME = struct.Struct(">q")
_PROGRESS = b"progress"
_HOUR = 3_600_000_000
_REST = "rest"
_HINT = "Check the folder's permissions and free space, or set LAKE_HOME to another one."


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

    They are in buckets by time. What cannot meet a duplicate any more is removed with its bucket.

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
        self._folder = folder
        self._width = max(2 * watermark, _HOUR)
        self._buckets: dict[str, Rdict] = {}
        self._open()

    @property
    def progress(self) -> Progress | None:
        """Which commit they belong to; None if there are none."""
        text = self._database.get(_PROGRESS)
        return Progress(*json.loads(text)) if text else None

    def known(self, keys: Sequence[bytes], oldest: Micros | None) -> list[bool]:
        """Whether an event with each id was kept, whose time is not before `oldest`."""
        found = [False] * len(keys)
        for bucket in self._buckets.values():
            values: list[bytes | None] = bucket[list(keys)] or []
            for index, value in enumerate(values):
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
                    buckets[place] = self._bucket(_REST if place is None else str(place))
                batch.put(key, _TIME.pack(time), buckets[place])
        batch.put(_PROGRESS, json.dumps(progress).encode())
        self._database.write(batch)
        if oldest is not None:
            for name in [name for name in self._buckets if name != _REST and int(name) < oldest // self._width]:
                del self._buckets[name]
                self._database.drop_column_family(name)

    def clear(self) -> None:
        """Remove everything."""
        self.close()
        shutil.rmtree(self._folder)
        self._open()

    def close(self) -> None:
        """Close it."""
        self._buckets = {}
        self._database.close()

    def _open(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._database = _database(self._folder)
        except OSError as error:
            raise LakeproofError(f"Cannot write {self._folder}: {error.strerror}.", _HINT) from error
        except Exception as error:
            if "lock" in str(error).lower():
                raise LakeproofError(
                    f"The ids in {self._folder} are in use by another process.", "End the other consumer first."
                ) from error
            log.warning("the copy of the ids is damaged, and is made again", folder=str(self._folder), error=str(error))
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._database = _database(self._folder)
        names = Rdict.list_cf(str(self._folder), _options())
        self._buckets = {name: self._database.get_column_family(name) for name in names if name != "default"}

    def _bucket(self, name: str) -> ColumnFamily:
        if name not in self._buckets:
            self._buckets[name] = self._database.create_column_family(name, _options())
        return self._database.get_column_family_handle(name)


def _database(folder: Path) -> Rdict:
    names = Rdict.list_cf(str(folder), _options()) if (folder / "CURRENT").exists() else []
    return Rdict(str(folder), _options(), {name: _options() for name in names if name != "default"})


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(16 << 20)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)  # most ids are new: nothing is read for them
    blocks.set_block_cache(_CACHE)
    options.set_block_based_table_factory(blocks)
    return options


_CACHE = Cache(64 << 20)
