"""Select the files of a landing zone that are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from urllib.parse import unquote_to_bytes

from lakeproof.storage.base import StoredFile

_IN_PROGRESS = (".tmp", "._COPYING_")
_OTHER_FORMATS = (
    *(".7z", ".avro", ".br", ".bz2", ".csv", ".deflate", ".lz4", ".lzo", ".orc", ".parquet", ".pdf", ".snappy"),
    *(".tar", ".tar.gz", ".tgz", ".tsv", ".xlsx", ".xml", ".xz", ".zip", ".zst"),
)


class Ignored(StrEnum):
    """Why a file is not read."""

    HIDDEN = "hidden"
    FORMAT = "other formats"
    EXCLUDED = "excluded"
    EARLIER = "earlier"


@dataclass(frozen=True)
class Selection:
    """Which files of a landing zone are read."""

    include: tuple[str, ...] = ()  # globs; empty for all files
    exclude: tuple[str, ...] = ()
    start: datetime | None = None  # files modified before this time are not read; in whole seconds, like in S3
    of_others: bool = False  # whether others fill the zone, also with files whose names show other formats

    def ignores(self, name: str, file: StoredFile, *, is_local: bool = True) -> Ignored | None:
        """Return why a file is not read; None if it is read."""
        if ignored := self.ignores_name(name, is_local=is_local):
            return ignored
        if self.start and file.modified_at.replace(microsecond=0) < self.start:
            return Ignored.EARLIER
        return None

    def ignores_name(self, name: str, *, is_local: bool = True) -> Ignored | None:
        """Return why no file with a name is read."""
        if is_hidden(name, is_local=is_local):
            return Ignored.HIDDEN
        if self.include or self.exclude:
            parts = unquote_to_bytes(name).decode(errors="surrogateescape").split("/")
            if self.include and not _matches_any(parts, self.include):
                return Ignored.EXCLUDED
            if _matches_any(parts, self.exclude):
                return Ignored.EXCLUDED
        if self.of_others and not self.include and name.lower().endswith(_OTHER_FORMATS):
            return Ignored.FORMAT
        return None


EVERYTHING = Selection()


def is_hidden(name: str, *, is_local: bool = True) -> bool:
    """Whether a file is ignored, as in Hadoop: unfinished, or its name or a folder's name begins with ``_`` or ``.``.

    Folders above a linked folder do not count, which only a local file can have: names of S3 begin with ``/`` for keys
    with an empty part. A partition folder may begin with ``_``: ``_day=1``.
    """
    parts = name.split("/")[-1:] if is_local and name.startswith("/") else name.split("/")
    return name.endswith(_IN_PROGRESS) or any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts
    )


def _matches_any(parts: Sequence[str], globs: Sequence[str]) -> bool:
    return any(_matches(parts if "/" in glob else parts[-1:], glob.split("/")) for glob in globs)


def _matches(parts: Sequence[str], glob: Sequence[str]) -> bool:
    """Whether a path matches a glob, folder by folder; ``**`` is any number of folders."""
    if not glob:
        return not parts
    if glob[0] == "**":
        return any(_matches(parts[index:], glob[1:]) for index in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], glob[0]) and _matches(parts[1:], glob[1:])
