"""Storage in a local folder."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import unquote_to_bytes, urlsplit

from lakeproof.errors import UnavailableError
from lakeproof.settings import S3Settings
from lakeproof.storage.base import StoredFile
from lakeproof.storage.errors import FileChangedError


def connect(root: str, _s3: S3Settings) -> "LocalStorage":
    """Open the folder at the ``file://`` URI `root`, which need not exist yet."""
    return LocalStorage(local_path(root))


def local_path(uri: str) -> Path:
    """Path of a ``file://`` URI; names that are not UTF-8 come back as they were."""
    return Path(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))


class LocalStorage:
    """See :class:`lakeproof.storage.base.Storage`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list(self, start_after: str | None = None) -> Iterator[StoredFile]:  # noqa: ARG002 - nothing to skip to
        """List every file; a folder that does not exist yet has none."""
        if not self._folder.exists():
            return
        folders = [str(self._folder)]
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in sorted(entries, key=lambda item: item.name):
                        if entry.is_dir():
                            folders.append(entry.path)
                        elif (found := _stored_file(entry)) is not None:
                            yield found
            except OSError as error:
                raise UnavailableError(
                    f"{error.filename} cannot be listed: {error.strerror}.", "Check the folder's permissions."
                ) from error

    def read(self, uri: str, etag: str | None = None) -> bytes:
        """Read a file; see the protocol."""
        path = local_path(uri)
        try:
            with path.open("rb") as file:
                data = file.read()
                status = os.fstat(file.fileno())
        except FileNotFoundError:
            raise FileChangedError(uri, "it is gone") from None
        except OSError as error:
            raise UnavailableError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
        if etag is not None and _etag(status) != etag:
            raise FileChangedError(uri, "it was written to after it was listed")
        return data

    def write_new(self, uri: str, data: bytes) -> None:
        """Write beside the final name under a name that readers skip, then link it into place."""
        path = local_path(uri)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".tmp") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).chmod(0o644)
                os.link(file.name, path)
        except FileExistsError:
            raise
        except OSError as error:
            raise UnavailableError(
                f"{path} cannot be written: {error.strerror}.", "Check the folder, its permissions and the disk."
            ) from error


def _stored_file(entry: "os.DirEntry[str]") -> StoredFile | None:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None  # renamed or removed since the listing began
    return StoredFile(
        uri=Path(entry.path).as_uri(),
        size=status.st_size,
        etag=_etag(status),
        modified_at=datetime.fromtimestamp(status.st_mtime, UTC),
    )


def _etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"
