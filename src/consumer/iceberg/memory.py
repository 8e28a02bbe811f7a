"""The driver's cache of manifests and data files, which never change.

Without it, a query that follows a table with small commits would read all its small files again in each micro-batch.
"""

from collections.abc import Callable, Container, Hashable
from contextlib import suppress
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
from cachetools import TTLCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile

FoundT = TypeVar("FoundT")
KeyT = TypeVar("KeyT", bound=Hashable)

ROWS = 1_000_000
"""Maximum number of deleted rows, and of rows of one scan, that are cached."""
_BYTES = 256 << 20
_ENTRIES = 10_000
# An unused entry expires after this time: files that a compaction has replaced are never read again, and would fill the
# cache of a stream up to its limits.
_IDLE_SECONDS = 120.0


class Memory:
    """A thread-safe cache that several queries share."""

    def __init__(self) -> None:
        self._lock = Lock()
        # A manifest without entries takes space, too.
        self._entries: TTLCache[Hashable, list[ManifestEntry]] = TTLCache(
            _ENTRIES, _IDLE_SECONDS, getsizeof=lambda entries: 1 + len(entries)
        )
        self._vectors: TTLCache[Hashable, dict[str, Any]] = TTLCache(
            ROWS, _IDLE_SECONDS, getsizeof=lambda vectors: 1 + sum(map(len, vectors.values()))
        )
        self._tables: TTLCache[tuple[str, Hashable], pa.Table] = TTLCache(
            _BYTES, _IDLE_SECONDS, getsizeof=lambda table: table.nbytes
        )

    def entries(self, file: ManifestFile, io: FileIO, discard_deleted: bool) -> list[ManifestEntry]:
        """Return the entries of a manifest."""
        key = file.manifest_path, discard_deleted
        return _found(self._entries, self._lock, key, lambda: file.fetch_manifest_entry(io, discard_deleted))

    def vectors(self, path: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the deletion vectors of a file."""
        return _found(self._vectors, self._lock, path, read)

    def table(self, path: str, kind: Hashable) -> pa.Table | None:
        """Return a cached table; None if it is not in the cache."""
        with self._lock:
            return _used(self._tables, (path, kind))

    def keep(self, path: str, kind: Hashable, table: pa.Table) -> None:
        """Cache a table that was derived from a data file, unless it is larger than the cache."""
        with self._lock, suppress(ValueError):
            self._tables[path, kind] = table

    def forget_files(self, paths: Container[str]) -> None:
        """Forget tables that were derived from data files which a compaction has replaced."""
        with self._lock:
            for key in [each for each in self._tables if each[0] in paths]:
                self._tables.pop(key, None)

    def forget(self) -> None:
        """Forget everything."""
        with self._lock:
            for each in (self._entries, self._vectors, self._tables):
                each.clear()


def _used(cache: TTLCache[KeyT, FoundT], key: KeyT) -> FoundT | None:
    """Return the cached value, and restart its time; None if there is no value."""
    found: FoundT | None = cache.get(key)
    if found is not None:
        cache[key] = found
    return found


def _found(cache: TTLCache[KeyT, FoundT], lock: Lock, key: KeyT, read: Callable[[], FoundT]) -> FoundT:
    with lock:
        found = _used(cache, key)
    if found is None:
        found = read()
        with lock, suppress(ValueError):  # larger than the cache
            cache[key] = found
    return found


MEMORY = Memory()
"""The cache of this process. The end of the session empties it."""
