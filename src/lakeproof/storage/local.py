"""Storage in a local folder."""

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from lakeproof.errors import UnavailableError
from lakeproof.settings import S3Settings
from lakeproof.storage.base import StoredFile
from lakeproof.storage.disk import full_disk
from lakeproof.storage.errors import FileAbsentError, FileChangedError

# Longer than the clock resolution of any file system.
_TICK_NS = 2_000_000_000
# A trigger checks folders that changed within this time, and some of the others: hourly folders are 8,760 a year.
_RECENT_NS = 2 * 86_400 * 10**9
_OLDER_AT_ONCE = 200
# Python's first and last years, with room to add a time zone or a duration.
_EARLIEST, _LATEST = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2, 9999))


def connect(root: str, _s3: S3Settings) -> "LocalStorage":
    """Open the folder at the ``file://`` URI `root`, which need not exist yet."""
    return LocalStorage(local_path(root))


def local_path(uri: str) -> Path:
    """Return the path of a ``file://`` URI, also for names that are not UTF-8."""
    return Path(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))


class LocalStorage:
    """See :class:`lakeproof.storage.base.Storage`."""

    shows_whole_files = False

    def __init__(self, folder: Path) -> None:
        # Resolved, so that a file has only one address.
        self._folder = folder.resolve()
        # Modification times of folders at their last listing by list_recent.
        self._listed: dict[str, int] = {}
        self._turn = 0  # index of the next folder among those that have not changed for long

    def list(self) -> Iterator[StoredFile]:
        """List every file; a folder that does not exist yet has none."""
        folders = [str(self._folder)] if self._folder.exists() else []
        seen = set(folders)
        while folders:
            files, inner = _scan(folders.pop(), self._folder)
            new = [folder for folder in inner if folder not in seen]
            seen.update(new)
            folders += new
            yield from files

    def list_recent(self, after: str | None) -> Iterator[StoredFile]:  # noqa: ARG002 - names tell nothing here
        """List the files of folders that changed since the last call; changes of old folders show some calls later."""
        if self._folder.exists():
            self._listed.setdefault(str(self._folder), 0)
        pending = [*self._to_look_at(time.time_ns())]
        while pending:
            folder = pending.pop()
            looked_at = time.time_ns()
            try:
                modified = Path(folder).stat().st_mtime_ns
            except (FileNotFoundError, NotADirectoryError):
                del self._listed[folder]
                continue
            except OSError as error:
                raise UnavailableError(
                    f"Cannot list {folder}: {error.strerror}.", "Check the folder's permissions, and its disk."
                ) from error
            if modified == self._listed[folder]:
                continue
            files, inner = _scan(folder, self._folder)
            # A file added within the same clock tick does not change the folder's modification time.
            self._listed[folder] = modified if looked_at - modified > _TICK_NS else 0
            new = [name for name in inner if name not in self._listed]
            self._listed.update(dict.fromkeys(new, 0))
            pending += new
            yield from files

    def _to_look_at(self, now: int) -> Iterator[str]:
        older = []
        for folder, modified in self._listed.items():
            if 0 < modified < now - _RECENT_NS and folder != str(self._folder):
                older.append(folder)
            else:
                yield folder
        start = self._turn if self._turn < len(older) else 0
        self._turn = start + _OLDER_AT_ONCE
        yield from older[start : self._turn]

    def names(self, folder: str) -> Iterator[str]:
        """List the names in one folder; see the protocol."""
        files, _ = _scan(str(local_path(folder)), self._folder)
        return (file.uri.rpartition("/")[2] for file in files)

    def stat(self, uri: str) -> StoredFile | None:
        """Look at one file; see the protocol."""
        path = local_path(uri)
        try:
            return _stored_file(_uri_of(str(path)), path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnavailableError(
                f"Cannot read the metadata of {path}: {error.strerror}.", "Check its permissions."
            ) from error

    def read(self, uri: str, etag: str | None = None) -> bytes:
        """Read a file; see the protocol."""
        path = local_path(uri)
        try:
            with path.open("rb") as file:
                data = file.read()
                status = os.fstat(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            raise FileAbsentError(uri) from None
        except OSError as error:
            raise UnavailableError(f"Cannot read {path}: {error.strerror}.", "Check its permissions.") from error
        if etag is not None and _etag(status) != etag:
            raise FileChangedError(uri, "it was written to after it was listed")
        return data

    def now(self) -> datetime:
        """Return the time of this machine."""
        return datetime.now(UTC)

    def write_new(self, uri: str, data: bytes) -> None:
        """Write beside the final name under a name that readers skip, then link it into place."""
        path = local_path(uri)
        taken = False
        with _written_beside(path, data) as part:
            try:
                os.link(part, path)
            except FileExistsError:
                taken = True
        if taken:
            raise FileExistsError(uri)

    def replace(self, uri: str, data: bytes) -> None:
        """Write beside the final name under a name that readers skip, then rename it; see the protocol."""
        path = local_path(uri)
        with _written_beside(path, data) as part:
            part.replace(path)

    def remove(self, uri: str) -> None:
        """Remove a file; see the protocol."""
        path = local_path(uri)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(f"Cannot remove {path}: {error.strerror}.", "Check its permissions.") from error


@contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[Path]:
    """Write a synced temporary file beside `path`, which is removed at the end unless it was renamed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{secrets.token_hex(8)}.tmp")
        with part.open("xb") as file:  # unlike tempfile, with the mode that the umask sets
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                yield part
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise full_disk(error, path) or UnavailableError(
            f"Cannot write {path}: {error.strerror}.", "Check the folder, its permissions and the disk."
        ) from error


def _scan(folder: str, root: Path) -> tuple[list[StoredFile], list[str]]:
    """List files and sub-folders of a folder, with links to folders resolved."""
    files, folders = [], []
    above = _uri_of(folder.rstrip("/") + "/")  # quoted once for all files
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda item: item.name):
                try:
                    status = entry.stat()
                except (FileNotFoundError, NotADirectoryError):
                    continue  # renamed or removed meanwhile, or a broken link
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise
                    continue  # a link to itself
                if stat.S_ISDIR(status.st_mode):
                    if not entry.is_symlink():
                        folders.append(entry.path)
                    elif not root.is_relative_to(target := Path(entry.path).resolve()):
                        folders.append(str(target))  # otherwise the link leads to the landing folder or above
                elif stat.S_ISREG(status.st_mode):  # reading a pipe would block
                    files.append(_stored_file(above + _quoted(entry.name), status))
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        raise UnavailableError(
            f"Cannot list {error.filename}: {error.strerror}.", "Check the folder's permissions."
        ) from error
    return files, folders


def _uri_of(path: str) -> str:
    return f"file://{_quoted(path)}"


def _quoted(path: str) -> str:
    return quote_from_bytes(os.fsencode(path))  # like Path.as_uri, in a fifth of the time


def _stored_file(uri: str, status: os.stat_result) -> StoredFile:
    return StoredFile(
        uri=uri,
        size=status.st_size,
        etag=_etag(status),
        # File systems can store times that Python cannot: milliseconds taken for seconds are after the year 9999.
        modified_at=datetime.fromtimestamp(min(max(status.st_mtime, _EARLIEST), _LATEST), UTC),
    )


def _etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"
