"""A rebuildable key index in RocksDB, on the driver's disk, in buckets."""

import json
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import structlog
from rocksdict import BlockBasedOptions, Cache, ColumnFamily, DBCompressionType, Options, Rdict, WriteBatch

from lakeproof.errors import LakeproofError

log = structlog.get_logger()

_BLOCK_CACHE_BYTES = 64 << 20
_WRITE_BUFFER_BYTES = 16 << 20
# RocksDB errors have no types or codes, only texts: these are for a lock held by another process, and by this one.
# Testing the lock itself would release it if this process holds it, as POSIX locks do.
_LOCKED = ("IO error: While lock file", "IO error: lock hold by current process")
_LOG_BLOCK_BYTES = 32 << 10
_RECORD_HEADER = struct.Struct("<IHB")
_LAST_RECORD_TYPE = 4
_HOUR = 3_600_000_000  # in microseconds; narrower buckets would be too many
# Buckets ahead of the oldest one; keys of later times are never removed. Enough for a day in buckets of an hour, as
# where devices send local times as UTC.
_AHEAD = 26
_RECORDED = b"progress"
_REST = "rest"  # the bucket of keys without a usable time

ResultT = TypeVar("ResultT")


class InUseError(LakeproofError):
    """Another process has a database open."""


class DamagedError(LakeproofError):
    """A database cannot be read or written: clear it, and fill it again."""


def mended(work: Callable[[], ResultT], clear: Callable[[], None]) -> ResultT:
    """Call `work` with a database; if the database is damaged, clear it and call `work` again."""
    try:
        return work()
    except DamagedError as error:
        log.warning("key index is damaged: it is filled again", error=error.message)
    clear()  # not in the handler: frames of the error would keep the database open
    return work()


class Buckets:
    """Keys in buckets by time, in microseconds since 1970; old keys are removed with their bucket.

    A bucket is as wide as `length`, the time for which a key counts, so a lookup reads two or three buckets. None keeps
    all keys. A database that cannot be opened is replaced by an empty one. Damage inside its files is found only when
    they are read: any method may raise :class:`DamagedError`.
    """

    def __init__(self, folder: Path, setting: str, length: int | None = None) -> None:
        self.width = None if length is None else max(length, _HOUR)
        self._folder = folder
        self._hint = f"Check the folder's permissions and free space, or set {setting} to another one."
        self._buckets: dict[str, Rdict] = {}
        self._open()

    @property
    def names(self) -> list[str]:
        """Names of the buckets."""
        return list(self._buckets)

    @property
    def recorded(self) -> Any:
        """The record stored with the newest keys; None if the database is empty."""
        with self._damage():
            text = self._database.get(_RECORDED)
        return json.loads(text) if text else None

    def values(self, name: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys in a bucket; None for each missing key."""
        with self._damage():
            return self._buckets[name][list(keys)] or []

    def put(self, rows: Iterable[tuple[bytes, int | None, bytes]], record: object, oldest: int | None) -> None:
        """Add keys with their times and values, except passed ones, and remove the buckets in which no key counts."""
        with self._damage():
            batch = WriteBatch(raw_mode=True)
            handles: dict[str, ColumnFamily] = {}
            for key, time, value in rows:
                if self._is_passed(time, oldest):  # a bucket takes RocksDB a tenth of a second, and would go again
                    continue
                name = self._bucket(time, oldest)
                if name not in handles:
                    handles[name] = self._handle(name)
                batch.put(key, value, handles[name])
            batch.put(_RECORDED, json.dumps(record).encode())
            self._database.write(batch)
            for name in self._passed(oldest):
                del self._buckets[name]
                self._database.drop_column_family(name)

    def clear(self) -> None:
        """Remove everything."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._open()

    def close(self) -> None:
        """Close the database. Data that cannot be flushed is missing at the next open, as after a crash."""
        for each in (*self._buckets.values(), self._database):
            with suppress(Exception):
                each.close()
        self._buckets = {}

    def _bucket(self, time: int | None, oldest: int | None) -> str:
        """Return the bucket for the time of a key, when no key from before `oldest` counts."""
        if self.width is not None and time is not None and oldest is not None:
            number = time // self.width
            if number <= oldest // self.width + _AHEAD:
                return str(number)
        return _REST

    def _handle(self, name: str) -> ColumnFamily:
        """Return the handle of a bucket for a batch; create the bucket if it is missing."""
        if name not in self._buckets:
            self._buckets[name] = self._database.create_column_family(name, _options())
        return self._database.get_column_family_handle(name)

    def _is_passed(self, time: int | None, oldest: int | None) -> bool:
        """Return whether the bucket of a time has no key that counts."""
        if self.width is None or time is None or oldest is None:
            return False
        return time // self.width < oldest // self.width

    def _passed(self, oldest: int | None) -> list[str]:
        """Return the buckets in which no key counts."""
        if self.width is None or oldest is None:
            return []
        return [name for name in self._buckets if name != _REST and int(name) < oldest // self.width]

    def _open(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LakeproofError(f"Cannot write {self._folder}: {error.strerror}.", self._hint) from error
        try:
            self._database, names = _database(self._folder)
        except Exception as error:
            if str(error).startswith(_LOCKED):
                raise InUseError(
                    f"The key index {self._folder} is in use by another process.", "End the other consumer first."
                ) from error
            log.warning("key index is damaged: it is filled again", folder=str(self._folder), error=str(error))
            shutil.rmtree(self._folder, ignore_errors=True)
            try:
                self._database, names = _database(self._folder)
            except Exception as again:
                raise LakeproofError(f"Cannot write {self._folder}: {again}.", self._hint) from again
        self._buckets = {name: self._database.get_column_family(name) for name in names}

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Turn any error of RocksDB into a :class:`DamagedError`."""
        try:
            yield
        except Exception as error:
            raise DamagedError(f"Cannot use the key index {self._folder}: {error}.", self._hint) from error


def _database(folder: Path) -> tuple[Rdict, list[str]]:
    """Open or create the database; return it with the names of its buckets."""
    folder.mkdir(parents=True, exist_ok=True)
    _check_logs(folder)
    names = Rdict.list_cf(str(folder), _options()) if (folder / "CURRENT").exists() else []
    buckets = [name for name in names if name != "default"]
    return Rdict(str(folder), _options(), {name: _options() for name in buckets}), buckets


def _check_logs(folder: Path) -> None:
    """Find damage that RocksDB does not report: it would read forever, or skip the rest of its manifest.

    A record is a checksum, a length and a type, followed by its content. RocksDB treats a record that is longer than
    the rest of the file as unfinished, and never returns if the type belongs to another kind of log.
    """
    for file in (*folder.glob("MANIFEST-*"), *folder.glob("*.log")):
        content, at = file.read_bytes(), 0
        while at + _RECORD_HEADER.size <= len(content):
            left = _LOG_BLOCK_BYTES - at % _LOG_BLOCK_BYTES
            _, length, kind = _RECORD_HEADER.unpack_from(content, at)
            if left < _RECORD_HEADER.size or kind == length == 0:  # padding
                at += left
            elif kind > _LAST_RECORD_TYPE:
                raise ValueError(f"{file.name} has a record of the type {kind} at {at}")
            else:
                at += _RECORD_HEADER.size + length
        if at != len(content) and file.suffix != ".log":  # the last write of a killed process may be truncated
            raise ValueError(f"{file.name} ends within a record")


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)  # most keys are new: nothing is read for them
    blocks.set_block_cache(_CACHE)
    options.set_block_based_table_factory(blocks)
    return options


_CACHE = Cache(_BLOCK_CACHE_BYTES)
