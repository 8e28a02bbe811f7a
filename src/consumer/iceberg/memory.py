"""What the driver remembers of manifests and data files, which never change.

A query that follows a table by small commits would read all of its small files again in each micro-batch.
"""

from collections.abc import Callable, Hashable
from contextlib import suppress
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile

FoundT = TypeVar("FoundT")

ROWS = 1_000_000
"""Deleted rows, and rows of one scan, that are remembered at most."""
_BYTES = 256 << 20
_ENTRIES = 10_000


class Memory:
    """Several queries share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        # One without entries takes room, too.
        self._entries: LRUCache[Hashable, list[ManifestEntry]] = LRUCache(
            _ENTRIES, getsizeof=lambda entries: 1 + len(entries)
        )
        self._vectors: LRUCache[Hashable, dict[str, Any]] = LRUCache(
            ROWS, getsizeof=lambda vectors: 1 + sum(map(len, vectors.values()))
        )
        self._tables: LRUCache[Hashable, pa.Table] = LRUCache(_BYTES, getsizeof=lambda table: table.nbytes)

    def entries(self, file: ManifestFile, io: FileIO, discard_deleted: bool) -> list[ManifestEntry]:
        """The entries of a manifest."""
        key = file.manifest_path, discard_deleted
        return _found(self._entries, self._lock, key, lambda: file.fetch_manifest_entry(io, discard_deleted))

    def vectors(self, path: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The deletion vectors of a file."""
        return _found(self._vectors, self._lock, path, read)

    def table(self, key: Hashable) -> pa.Table | None:
        """What was kept."""
        with self._lock:
            return self._tables.get(key)

    def keep(self, key: Hashable, table: pa.Table) -> None:
        """Remember what was made of a data file, if there is room."""
        with self._lock, suppress(ValueError):
            self._tables[key] = table

    def forget(self) -> None:
        """Forget everything."""
        with self._lock:
            for each in (self._entries, self._vectors, self._tables):
                each.clear()


def _found(cache: LRUCache[Hashable, FoundT], lock: Lock, key: Hashable, read: Callable[[], FoundT]) -> FoundT:
    with lock:
        found = cache.get(key)
    if found is None:
        found = read()
        with lock, suppress(ValueError):  # larger than the cache
            cache[key] = found
    return found


MEMORY = Memory()
"""Of this process. The end of the session empties it."""
