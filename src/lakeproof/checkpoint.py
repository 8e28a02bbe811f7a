"""Read the checkpoints of Spark queries without Spark."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar, overload
from urllib.parse import urlsplit

from lakeproof.addresses import encoded
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import Position
from lakeproof.storage import open_storage, scheme_of
from lakeproof.storage.local import local_path

PositionT = TypeVar("PositionT")


@dataclass(frozen=True)
class Checkpoint(Generic[PositionT]):
    """The newest micro-batch of a checkpoint."""

    # None for the first micro-batch of the checkpoint, or if Spark has removed its start.
    start: PositionT | None
    end: PositionT
    committed: bool  # whether Spark recorded the commit
    # UTC; None if it is not committed.
    committed_at: datetime | None = field(default=None, compare=False)

    def fits(self, accounted: PositionT) -> bool:
        """Whether a query that resumes from here reads exactly the data after `accounted`.

        An uncommitted micro-batch is repeated: it is already accounted for, or is the next one.
        """
        return accounted == self.end or (not self.committed and self.start in (accounted, None))

    @property
    def passed(self) -> PositionT | None:
        """Position up to which the query will not read again; None at the beginning."""
        return self.end if self.committed else self.start


def bronze_query(stream: str) -> str:
    """Name of the query that fills bronze."""
    return f"bronze-{stream}"


def alerts_queries(product: str) -> tuple[str, str]:
    """Names of the two alert queries of a product: for plain messages, and for all others."""
    return f"alerts-{product}", f"alerts-{product}-others"


def checkpoint_folder(settings: Settings, query: str) -> str:
    """URI of a query's checkpoint."""
    return f"{settings.state.checkpoints}/{query}"


def landing_position(offset: str) -> Position:
    """Parse an offset of the landing log."""
    found = json.loads(offset)
    return Position(int(found["seq"]), str(found["chain"]))


@overload
def read_checkpoint(settings: Settings, query: str) -> Checkpoint[Position] | None: ...
@overload
def read_checkpoint(
    settings: Settings, query: str, parse: Callable[[str], PositionT]
) -> Checkpoint[PositionT] | None: ...
def read_checkpoint(
    settings: Settings, query: str, parse: Callable[[str], object] = landing_position
) -> Checkpoint[Any] | None:
    """Read a query's checkpoint; None without a micro-batch."""
    root = encoded(checkpoint_folder(settings, query))
    storage = open_storage(root, settings.s3)
    numbers: dict[str, dict[int, datetime]] = {"offsets": {}, "commits": {}}
    for file in storage.list():
        *_, folder, name = urlsplit(file.uri).path.split("/")
        if folder in numbers and name.isdecimal():
            numbers[folder][int(name)] = file.modified_at
    if not numbers["offsets"]:
        if numbers["commits"]:
            raise _unusable(root)
        return None
    newest, commits = max(numbers["offsets"]), numbers["commits"]
    before = _offset(settings, root, newest - 1, parse) if newest - 1 in numbers["offsets"] else None
    at = commits[max(commits)] if commits else None
    return Checkpoint(before, _offset(settings, root, newest, parse), newest in commits, at)


def read_offset(settings: Settings, query: str, number: int, parse: Callable[[str], PositionT]) -> PositionT:
    """Read the end offset of a micro-batch."""
    return _offset(settings, encoded(checkpoint_folder(settings, query)), number, parse)


def read_initial_offset(settings: Settings, query: str, parse: Callable[[str], PositionT]) -> PositionT:
    """Read the initial offset that Spark's Kafka source recorded."""
    root = encoded(checkpoint_folder(settings, query))
    return _parsed(settings, root, "sources/0/0", 1, parse)


def _offset(settings: Settings, root: str, number: int, parse: Callable[[str], PositionT]) -> PositionT:
    return _parsed(settings, root, f"offsets/{number}", 2, parse)


def _parsed(settings: Settings, root: str, file: str, line: int, parse: Callable[[str], PositionT]) -> PositionT:
    try:
        return parse(open_storage(root, settings.s3).read(f"{root}/{file}").splitlines()[line].decode())
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise _unusable(root) from error


def _unusable(root: str) -> LakeproofError:
    return LakeproofError(
        f"Cannot resume from the checkpoint {root}: this version cannot read it.",
        "Run `consumer reset` for the stream. It resumes from the position in the tables.",
    )


def remove_checkpoint(settings: Settings, query: str) -> bool:
    """Remove a query's checkpoint; return whether it existed."""
    root = encoded(checkpoint_folder(settings, query))
    if scheme_of(root) == "s3":
        from lakeproof.storage.s3 import remove_prefix

        return remove_prefix(root, settings.s3) > 0
    folder = local_path(root)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnavailableError(f"Cannot remove {folder}: {error.strerror}.", "Check its permissions.") from error
    return True
