"""Recognize errors that are caused by a full disk."""

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from lakeproof.addresses import sqlite_path
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings, load_settings

_CODES = (errno.ENOSPC, errno.EDQUOT)
# Errors from a JVM or another process have no errno.
_WORDS = (*map(os.strerror, _CODES), "database or disk is full")
_POSTGRES = ("psycopg", "org.postgresql")  # marks of an error of Postgres, whose disk is on its server


class DiskFullError(UnavailableError):
    """No space is left on a disk."""

    def __init__(self, place: Path) -> None:
        super().__init__(
            f"No space is left on the disk {_mount(place)}, which has {place}.",
            "Free some space, then run the command again.",
        )


def full_disk(error: BaseException, *places: Path) -> DiskFullError | None:
    """Return a DiskFullError if a full disk caused `error`; otherwise None."""
    if any(sign in f"{type(each)} {each}" for each in _chain(error) for sign in _POSTGRES):
        return None
    for each in _chain(error):
        if isinstance(each, DiskFullError):
            return each
        if isinstance(each, OSError) and each.errno in _CODES and isinstance(each.filename, str | bytes):
            return DiskFullError(Path(os.fsdecode(each.filename)))
    if any(_says_full(each) for each in _chain(error)):
        return DiskFullError(min(places or _local_places(), key=_free_bytes))
    return None


def local_places(settings: Settings) -> list[Path]:
    """Return all local folders of a lake, and the folder for temporary files."""
    uris = (unquote(settings.landing.uri), settings.catalog.warehouse_uri, settings.state.checkpoints)
    databases = (sqlite_path(uri) for uri in (settings.catalog.uri, settings.state.database))
    return [
        settings.home.absolute(),
        *(Path(uri.removeprefix("file://")) for uri in uris if uri.startswith("file://")),
        *(path for path in databases if path),
        settings.logs,
        settings.silver.index.absolute(),
        Path(tempfile.gettempdir()),
    ]


def _local_places() -> list[Path]:
    try:
        return local_places(load_settings())
    except LakeproofError:
        return [Path.cwd(), Path(tempfile.gettempdir())]


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _CODES
    if isinstance(error, sqlite3.Error) and hasattr(error, "sqlite_errorcode"):
        return error.sqlite_errorcode == sqlite3.SQLITE_FULL
    return any(words in str(error) for words in _WORDS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _mount(place: Path) -> Path:
    """Mount point of an existing or future file."""
    found = _existing(place).resolve()
    return next(folder for folder in (found, *found.parents) if folder.is_mount())


def _free_bytes(place: Path) -> int:
    status = os.statvfs(_existing(place))
    return status.f_bavail * status.f_frsize


def _existing(place: Path) -> Path:
    return next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
