"""What a storage can do, and what its failures mean."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class StoredFile:
    """A file as a listing shows it."""

    # Local paths are percent-encoded, so that every name has a URI.
    uri: str
    size: int
    etag: str  # S3's ETag; locally, modification time and size
    modified_at: datetime


class Storage(Protocol):
    """Files below a root URI."""

    shows_whole_files: bool
    """Whether a file appears only once it is whole (S3), or grows before everybody's eyes (a local folder)."""

    def list(self) -> Iterator[StoredFile]:
        """List every file below the root, in sub-folders too."""
        ...

    def list_recent(self, after: str | None) -> Iterator[StoredFile]:
        """List the files that may be new, at a cost that does not grow with the number of files that are not.

        On S3: those whose key sorts behind the URI `after`. In a local folder: those in folders that changed since
        the last call. A caller finds the rest by :meth:`list`, more seldom.
        """
        ...

    def stat(self, uri: str) -> StoredFile | None:
        """Look at one file; None where it is gone."""
        ...

    def read(self, uri: str, etag: str | None = None) -> bytes:
        """Read a whole file; with `etag`, only if it is still the one listed."""
        ...

    def write_new(self, uri: str, data: bytes) -> None:
        """Write a file whole or not at all, and never over an existing one."""
        ...

    def replace(self, uri: str, data: bytes) -> None:
        """Write a file whole or not at all, also over an existing one: a reader sees one of them."""
        ...

    def remove(self, uri: str) -> None:
        """Remove a file, if it is there."""
        ...
