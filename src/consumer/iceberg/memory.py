"""The driver's cache of manifests and data files, which never change.

Without it, a query that follows a table with small commits would read all its small files again in each micro-batch.
"""

from collections.abc import Callable, Container, Hashable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
from cachetools import TTLCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile

from consumer.iceberg.derivation import Derivation

FoundT = TypeVar("FoundT")
KeyT = TypeVar("KeyT", bound=Hashable)

ROWS = 1_000_000
"""Maximum number of deleted rows, and of rows of one scan, that are cached."""
_BYTES = 256 << 20
_MOST_WANTED = 0.75  # how full the cache of tables may be for writers to add more
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

        self._wanted: TTLCache[tuple[str, Hashable], Derivation] = TTLCache(_ENTRIES, _IDLE_SECONDS)

    def entries(self, file: ManifestFile, io: FileIO, discard_deleted: bool) -> list[ManifestEntry]:
        """Return the entries of a manifest."""
        key = file.manifest_path, discard_deleted
        return _found(self._entries, self._lock, key, lambda: file.fetch_manifest_entry(io, discard_deleted))

    def vectors(self, path: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the deletion vectors of a file."""
        return _found(self._vectors, self._lock, path, read)

    def table(self, path: str, key: Hashable) -> pa.Table | None:
        """Return a cached table; None if it is not in the cache."""
        with self._lock:
            return _used(self._tables, (path, key))

    def take(self, path: str, key: Hashable) -> pa.Table | None:
        """Return a cached table that is not needed again, and remove it; None if it is not in the cache."""
        with self._lock:
            found: pa.Table | None = self._tables.get((path, key))
            with suppress(KeyError):  # it expires at any moment
                del self._tables[path, key]
            return found

    def keep(self, path: str, derived: Mapping[Hashable, pa.Table]) -> None:
        """Cache tables that were derived from a data file by their keys, unless they are larger than the cache."""
        for key, table in derived.items():
            with self._lock, suppress(ValueError):
                self._tables[path, key] = table

    def want(self, table: str, derivation: Derivation) -> None:
        """Note what a reader derives from each data file of a table, so that writers in this process derive it."""
        with self._lock:
            self._wanted[table, derivation.key] = derivation

    def wanted(self, table: str, schema_id: int) -> list[Derivation]:
        """Return what readers have wanted lately of a table with this schema."""
        with self._lock:
            found = [self._wanted.get(key) for key in list(self._wanted) if key[0] == table]
        return [derivation for derivation in found if derivation and derivation.schema_id == schema_id]

    def room(self) -> int:
        """Return how many bytes writers may add to the cached tables."""
        with self._lock:
            # The results of a writer that is far ahead would displace each other before they are used.
            return max(int(_MOST_WANTED * self._tables.maxsize - self._tables.currsize), 0)

    def forget_files(self, paths: Container[str]) -> None:
        """Forget tables that were derived from data files which a compaction has replaced."""
        with self._lock:
            for key in [each for each in self._tables if each[0] in paths]:
                self._tables.pop(key, None)

    def forget(self) -> None:
        """Forget everything."""
        with self._lock:
            for each in (self._entries, self._vectors, self._tables, self._wanted):
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
