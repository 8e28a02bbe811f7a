"""The storage protocol."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class StoredFile:
    """A file in a listing."""

    # Local paths are percent-encoded, so that every name has a URI.
    uri: str
    size: int
    etag: str  # S3's ETag; locally, modification time and size
    modified_at: datetime


class Storage(Protocol):
    """Files below a root URI."""

    shows_whole_files: bool  # whether files appear only when complete (S3), or may be seen while they grow (local)

    def list(self) -> Iterator[StoredFile]:
        """List every file below the root, including sub-folders."""
        ...

    def list_recent(self, after: str | None) -> Iterator[StoredFile]:
        """List files that may be new, at a cost independent of the number of old files.

        On S3: keys that sort after the URI `after`. Locally: files of folders that changed since the last call. Files
        that this misses are found by :meth:`list`, which callers use less often.
        """
        ...

    def names(self, folder: str) -> Iterator[str]:
        """List the names of the files in a folder, spelled as in URIs, without those of its sub-folders."""
        ...

    def stat(self, uri: str) -> StoredFile | None:
        """Return the metadata of one file; None if it does not exist."""
        ...

    def read(self, uri: str, etag: str | None = None) -> bytes:
        """Read a file; with `etag`, raise FileChangedError if it differs from the listed one."""
        ...

    def now(self) -> datetime:
        """Return the time by the clock that modification times come from."""
        ...

    def write_new(self, uri: str, data: bytes) -> None:
        """Write a new file atomically; raise FileExistsError if it exists."""
        ...

    def replace(self, uri: str, data: bytes) -> None:
        """Write or replace a file atomically."""
        ...

    def remove(self, uri: str) -> None:
        """Remove a file if it exists."""
        ...
