"""Which data files a table has, and what storage says of each: a file with the same tag need not be read again."""

import hashlib
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_LOCAL = "file:"
_PATH = 2147483546  # id of the column of a file of deletes that has the path of the data file


def data_files(table: "Table", snapshot: "Snapshot | None", s3: S3Settings) -> dict[str, str | None]:
    """Tags of the data files of a snapshot, by location; None for one that storage does not have.

    A tag is of the data file and of the files that may delete rows of it.
    """
    from pyiceberg.manifest import DataFileContent

    found: dict[str, tuple[int, Hashable]] = {}
    deletes: dict[Hashable, list[str]] = {}
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            if file.content == DataFileContent.DATA:
                found[file.file_path] = (file.file_size_in_bytes, _partition(file))
            else:
                deletes.setdefault(_deletes_of(file), []).append(file.file_path)
    stored = _Stored(table.location(), s3)
    # An equality delete may be of another partition than the rows.
    return {
        location: _tag(stored, location, size, deletes, (None, partition, location))
        for location, (size, partition) in found.items()
    }


def _partition(file: "DataFile") -> Hashable:
    return (file.spec_id, tuple(map(str, (file.partition[index] for index in range(len(file.partition))))))


def _deletes_of(file: "DataFile") -> Hashable:
    """Of which data files it may delete rows: of one, of a partition, or of all."""
    from pyiceberg.manifest import DataFileContent

    if file.content == DataFileContent.EQUALITY_DELETES:
        return None
    low, high = ((bounds or {}).get(_PATH) for bounds in (file.lower_bounds, file.upper_bounds))
    return low.decode(errors="replace") if low and low == high else _partition(file)


def _tag(
    stored: "_Stored",
    location: str,
    size: int,
    deletes: Mapping[Hashable, list[str]],
    may_be_of: tuple[Hashable, ...],
) -> str | None:
    names = sorted({name for each in may_be_of for name in deletes.get(each, ())})
    tags = [stored.tag(name) for name in (location, *names)]
    if None in tags:
        return None
    return hashlib.sha256("\n".join([str(size), *map(str, tags), *names]).encode()).hexdigest()[:32]


class _Stored:
    """What storage says of the files of a table: locally of one at a time, on S3 in one listing."""

    def __init__(self, root: str, s3: S3Settings) -> None:
        self._root = _as_s3(root)
        self._s3 = s3
        self._listed: dict[str, str] | None = None

    def tag(self, location: str) -> str | None:
        """The tag of a file; None if it does not exist."""
        if location.startswith(_LOCAL):  # not encoded: Iceberg and DuckDB read it as it is written
            try:
                status = Path(location.removeprefix(_LOCAL)).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return f"{status.st_mtime_ns:x}-{status.st_size:x}"
        if self._listed is None:
            files = open_storage(self._root, self._s3).list()
            self._listed = {file.uri: f"{file.etag}-{file.size:x}" for file in files}
        uri = _as_s3(location)
        if uri not in self._listed:  # another program may have put it elsewhere
            file = open_storage(uri.rpartition("/")[0], self._s3).stat(uri)
            return f"{file.etag}-{file.size:x}" if file else None
        return self._listed[uri]


def _as_s3(location: str) -> str:
    return location.replace("s3a://", "s3://", 1)
