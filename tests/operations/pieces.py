"""The pieces of an embedded lake, copied and restored as by ``cp -a`` while nothing uses the lake."""

import shutil
from enum import StrEnum
from pathlib import Path

from lakeproof.settings import Settings


class Piece(StrEnum):
    """A part of a lake that can be restored separately; the value is the name of its files in the lake's folder."""

    CATALOG = "catalog.db"
    CHECKPOINTS = "checkpoints"
    LANDING = "landing"
    LANDING_LOG = "landing-log.db"
    WAREHOUSE = "warehouse"


def back_up(settings: Settings, folder: Path, *pieces: Piece) -> None:
    """Copy pieces, by default all, into `folder`, in place of earlier copies."""
    for piece in pieces or Piece:
        _copy(settings.home, folder, piece)


def restore(settings: Settings, folder: Path, *pieces: Piece) -> None:
    """Replace pieces, by default all, with their copies. A piece that did not exist when copied is removed."""
    for piece in pieces or Piece:
        _copy(folder, settings.home, piece)


def lose(settings: Settings, *pieces: Piece) -> None:
    """Remove pieces."""
    for piece in pieces:
        _remove(settings.home, piece)


def _copy(source: Path, target: Path, piece: Piece) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _remove(target, piece)
    for path in _files(source, piece):
        if path.is_dir():
            shutil.copytree(path, target / path.name, symlinks=True)
        else:
            shutil.copy2(path, target / path.name)


def _remove(folder: Path, piece: Piece) -> None:
    for path in _files(folder, piece):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _files(folder: Path, piece: Piece) -> list[Path]:
    """Return a folder, or a database with its write-ahead log: an older log would corrupt another database."""
    return [path for suffix in ("", "-wal", "-shm") if (path := folder / f"{piece}{suffix}").exists()]
