"""Data files of a table with a tag from storage for each; a file with an unchanged tag need not be read again."""

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
_PATH = 2147483546  # id of the column of a delete file that contains the path of the data file


def data_files(table: "Table", snapshot: "Snapshot | None", s3: S3Settings) -> dict[str, str | None]:
    """Return the tags of the data files of a snapshot, by location; None for a file that is missing in storage.

    A tag covers the data file and the delete files that may apply to it.
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
    # An equality delete may be in another partition than the rows.
    return {
        location: _tag(stored, location, size, deletes, (None, partition, location))
        for location, (size, partition) in found.items()
    }


def _partition(file: "DataFile") -> Hashable:
    return (file.spec_id, tuple(map(str, (file.partition[index] for index in range(len(file.partition))))))


def _deletes_of(file: "DataFile") -> Hashable:
    """Return the data files to which a delete file may apply: the location of one, a partition, or None for all."""
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
    """Tags of the files of a table: read from the local file system one at a time, from S3 in one listing."""

    def __init__(self, root: str, s3: S3Settings) -> None:
        self._root = _as_s3(root)
        self._s3 = s3
        self._listed: dict[str, str] | None = None

    def tag(self, location: str) -> str | None:
        """Return the tag of a file; None if it does not exist."""
        if location.startswith(_LOCAL):  # not URL-encoded: Iceberg and DuckDB use the path literally
            try:
                status = Path(location.removeprefix(_LOCAL)).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return f"{status.st_mtime_ns:x}-{status.st_size:x}"
        if self._listed is None:
            files = open_storage(self._root, self._s3).list()
            self._listed = {file.uri: f"{file.etag}-{file.size:x}" for file in files}
        uri = _as_s3(location)
        if uri not in self._listed:  # another program may have written it to another folder
            file = open_storage(uri.rpartition("/")[0], self._s3).stat(uri)
            return f"{file.etag}-{file.size:x}" if file else None
        return self._listed[uri]


def _as_s3(location: str) -> str:
    return location.replace("s3a://", "s3://", 1)
