"""Recount landed files, a few at a time: DuckDB counts arrays, :mod:`reader.verify.landed.units` everything else."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from lakeproof.landing.zone import LandingZone
from lakeproof.settings import Limits
from lakeproof.storage import Storage, StoredFile
from lakeproof.storage.errors import FileAbsentError, FileChangedError
from reader.verify.landed.parsed import as_units
from reader.verify.landed.units import TOO_LARGE, Units, find_units, whole_batch
from reader.verify.landed.unpack import DamagedError, unpack

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_PACKED_SUFFIX = ".gz"
_MAX_THREADS = 4
_GROUP_BYTES = 8 << 20
# Files above this size, packed or unpacked, are in memory one at a time; smaller ones are counted in groups up to it.
_LARGE_BYTES = 32 << 20
# Minimum size of files to compare: two empty arrays are not worth a report.
_MIN_TWIN_BYTES = 3


@dataclass(frozen=True)
class RecountedFile:
    """The recount of a landed file, as it was listed.

    `units` is None if they were not requested, or if the file has changed since it was listed. `content_hash` is None
    if it was not requested, or if the file cannot be read or is larger than the limit.
    """

    name: str
    file: StoredFile
    units: Units | None
    content_hash: str | None


def same_size(files: Mapping[str, StoredFile]) -> set[str]:
    """Return the names of files with the same size as another file, and so perhaps the same bytes."""
    by_size: dict[int, list[str]] = {}
    for name, file in files.items():
        by_size.setdefault(file.size, []).append(name)
    return {name for size, names in by_size.items() if len(names) > 1 and size >= _MIN_TWIN_BYTES for name in names}


def recount(
    zone: LandingZone,
    files: Mapping[str, StoredFile],
    wanted: Mapping[str, AbstractSet[int]],
    hashed: AbstractSet[str],
    limits: Limits,
) -> Iterator[RecountedFile]:
    """Read files, none of which is larger than the limit, and count their units.

    `wanted` has, by name, the positions of the units whose bytes are needed; other files are not counted. `hashed` has
    the names of the files to hash.
    """
    import duckdb

    storage = zone.storage
    large = Lock()

    def recount_group(group: list[tuple[str, StoredFile]]) -> list[RecountedFile]:
        with large if group[0][1].size > _LARGE_BYTES else nullcontext():
            return read_group(group)

    def read_group(group: list[tuple[str, StoredFile]]) -> list[RecountedFile]:
        contents = {name: content for name, file in group if (content := _read(storage, file)) is not None}
        hashes = {name: _hash(contents[name]) for name in hashed & contents.keys()}
        with database.cursor() as connection:
            asked = {name: contents[name] for name in contents if name in wanted}
            counted = _Counter(connection, wanted, limits, large).count(asked)
        return [RecountedFile(name, file, counted.get(name), hashes.get(name)) for name, file in group]

    # Threads help despite the GIL: storage and DuckDB's parser release it.
    pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_THREADS))
    with duckdb.connect() as database:
        try:
            for recounts in pool.map(recount_group, _grouped(files)):
                yield from recounts
        finally:
            pool.shutdown(cancel_futures=True)


def _read(storage: Storage, file: StoredFile) -> bytes | None:
    """Return the content of a file; None if it was changed or removed since it was listed."""
    try:
        return storage.read(file.uri, file.etag)
    except (FileChangedError, FileAbsentError):
        return None


def _hash(content: bytes) -> str:
    """Return the hash of the content, as the ledger has it."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _grouped(files: Mapping[str, StoredFile]) -> Iterator[list[tuple[str, StoredFile]]]:
    group: list[tuple[str, StoredFile]] = []
    size = 0
    for name, file in files.items():
        if group and size + file.size > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append((name, file))
        size += file.size
    if group:
        yield group


class _Counter:
    """Counts the units of files that were read; `large` is held while the content of a large file is in memory."""

    def __init__(
        self, connection: "DuckDBPyConnection", wanted: Mapping[str, AbstractSet[int]], limits: Limits, large: Lock
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._limits = limits
        self._large = large

    def count(self, contents: Mapping[str, bytes]) -> dict[str, Units]:
        counted: dict[str, Units] = {}
        waiting: dict[str, bytes] = {}
        size = 0
        for uri, content in contents.items():
            if uri.endswith(_PACKED_SUFFIX):
                found = self._unpacked(uri, content)
                if isinstance(found, Units):
                    counted[uri] = found
                    continue
            else:
                found = content
            if waiting and size + len(found) > _LARGE_BYTES:
                counted |= self._count(waiting)
                waiting, size = {}, 0
            waiting[uri] = found
            size += len(found)
        return counted | self._count(waiting)

    def _unpacked(self, uri: str, content: bytes) -> bytes | Units:
        """Return the content of a packed file, or the units if it is large or cannot be unpacked."""
        most = self._limits.unpacked_bytes
        try:
            found = unpack(content, min(most, _LARGE_BYTES))
            if found is not None or most <= _LARGE_BYTES:
                return TOO_LARGE if found is None else found
            with nullcontext() if len(content) > _LARGE_BYTES else self._large:
                found = unpack(content, most)
                if found is None:
                    return TOO_LARGE
                return find_units(found, self._wanted[uri], self._limits.record_bytes)
        except DamagedError:
            return whole_batch(content, self._limits.record_bytes)

    def _count(self, contents: Mapping[str, bytes]) -> dict[str, Units]:
        most = self._limits.record_bytes
        counted = {
            uri: Units(units.count, picked={at: raw for at, raw in units.picked.items() if len(raw) <= most})
            for uri, units in as_units(self._connection, contents, self._wanted).items()
        }
        for uri in contents.keys() - counted.keys():
            counted[uri] = find_units(contents[uri], self._wanted[uri], most)
        return counted
