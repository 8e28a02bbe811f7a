"""Recount landed files, a few at a time: DuckDB counts arrays, :mod:`reader.verify.units` does the rest."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof.settings import S3Settings
from lakeproof.storage import Storage, StoredFile, open_storage
from lakeproof.storage.errors import FileChangedError
from reader.verify.parsed import as_units
from reader.verify.units import Units, find_units, whole_batch

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_UNREAD_SUFFIX = ".tmp"
_PACKED_SUFFIX = ".gz"
_MAX_THREADS = 4
_GROUP_BYTES = 8 << 20
# The shortest file worth comparing: two empty arrays are no news.
_MIN_TWIN_BYTES = 3


@dataclass(frozen=True)
class Recount:
    """A landed file, counted anew.

    Parameters
    ----------
    file
        As it was listed.
    units
        Its units; None where they were not asked for, or it is no longer the file that was listed.
    content_hash
        Hash of its bytes as they lie there; None where it was not asked for, or cannot be had.
    """

    file: StoredFile
    units: Units | None
    content_hash: str | None


@dataclass(frozen=True)
class Landing:
    """Where a stream's batches land: the URI of the folder, and how to reach S3."""

    root: str
    s3: S3Settings

    def open(self) -> Storage:
        """Open the storage."""
        return open_storage(self.root, self.s3)

    def files(self) -> dict[str, StoredFile]:
        """Every landed batch by URI."""
        return {file.uri: file for file in self.open().list() if not file.uri.endswith(_UNREAD_SUFFIX)}


def same_size(files: Iterable[StoredFile]) -> set[str]:
    """URIs of the files of which another one has the same size, and so perhaps the same bytes."""
    by_size: dict[int, list[str]] = {}
    for file in files:
        by_size.setdefault(file.size, []).append(file.uri)
    return {uri for size, uris in by_size.items() if len(uris) > 1 and size >= _MIN_TWIN_BYTES for uri in uris}


def recount(
    landing: Landing,
    files: Sequence[StoredFile],
    wanted: Mapping[str, AbstractSet[int]],
    hashed: AbstractSet[str],
) -> Iterator[Recount]:
    """Read files, and count their units.

    Parameters
    ----------
    landing
        The stream's landing zone.
    files
        What to read.
    wanted
        By URI, the positions of the units whose bytes are needed. A file that is not in it is not counted.
    hashed
        URIs of the files whose bytes are to be hashed.

    Raises
    ------
    UnavailableError
        A file cannot be read.
    """
    import duckdb

    storage = landing.open()

    def recount_group(group: list[StoredFile]) -> list[Recount]:
        contents = {file.uri: content for file in group if (content := _read(storage, file)) is not None}
        hashes = {uri: hashlib.blake2b(contents[uri]).hexdigest() for uri in hashed & contents.keys()}
        with database.cursor() as connection:
            counted = _count(connection, {uri: contents[uri] for uri in wanted.keys() & contents.keys()}, wanted)
        return [Recount(file, counted.get(file.uri), hashes.get(file.uri)) for file in group]

    # Threads help although this is Python: storage and DuckDB's parser run beside it.
    pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_THREADS))
    with duckdb.connect() as database:
        try:
            for recounts in pool.map(recount_group, _grouped(files)):
                yield from recounts
        finally:
            pool.shutdown(cancel_futures=True)


def _read(storage: Storage, file: StoredFile) -> bytes | None:
    """Content of a file, if it is still the one that was listed."""
    try:
        return storage.read(file.uri, file.etag)
    except FileChangedError:
        return None


def _grouped(files: Sequence[StoredFile]) -> Iterator[list[StoredFile]]:
    group: list[StoredFile] = []
    size = 0
    for file in files:
        if group and size + file.size > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group


def _count(
    connection: "DuckDBPyConnection", contents: Mapping[str, bytes], wanted: Mapping[str, AbstractSet[int]]
) -> dict[str, Units]:
    counted: dict[str, Units] = {}
    unpacked: dict[str, bytes] = {}
    for uri, content in contents.items():
        if uri.endswith(_PACKED_SUFFIX):
            try:
                unpacked[uri] = gzip.decompress(content)
            except (OSError, EOFError, zlib.error):
                counted[uri] = whole_batch(content)
        else:
            unpacked[uri] = content
    counted |= as_units(connection, unpacked, wanted)
    for uri in unpacked.keys() - counted.keys():
        counted[uri] = find_units(unpacked[uri], wanted[uri])
    return counted
