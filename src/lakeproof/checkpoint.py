"""Checkpoints in Spark's format: read them without Spark, and write those of queries in our own loop."""

import json
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, TypeVar, overload
from urllib.parse import urlsplit

from lakeproof.addresses import encoded
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import Position
from lakeproof.storage import open_storage, scheme_of
from lakeproof.storage.errors import FileAbsentError
from lakeproof.storage.local import local_path

PositionT = TypeVar("PositionT")

_KEPT = 100  # number of micro-batches in a checkpoint, as in Spark


@dataclass(frozen=True)
class Checkpoint(Generic[PositionT]):
    """The newest micro-batch of a checkpoint."""

    # None for the first micro-batch of the checkpoint, or if its start was removed.
    start: PositionT | None
    end: PositionT
    committed: bool  # whether the commit was recorded
    # UTC; None if it is not committed.
    committed_at: datetime | None = field(default=None, compare=False)
    number: int = field(default=0, compare=False)  # of the micro-batch

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
    return Checkpoint(before, _offset(settings, root, newest, parse), newest in commits, at, newest)


class CheckpointWriter:
    """Records the micro-batches of a query in its checkpoint: each one before it begins, and once it is done."""

    def __init__(self, settings: Settings, query: str, parse: Callable[[str], object]) -> None:
        self._root = encoded(checkpoint_folder(settings, query))
        self._storage = open_storage(self._root, settings.s3)
        self._parse = parse
        found = read_checkpoint(settings, query, parse)
        self._newest, self._end, self._is_committed = -1, None, True
        if found:
            self._newest, self._end, self._is_committed = found.number, found.end, found.committed

    @cached_property
    def id(self) -> str:
        """Id of the checkpoint, which markers have."""
        address = f"{self._root}/metadata"
        try:
            return str(json.loads(self._storage.read(address))["id"])
        except FileAbsentError:
            new = str(uuid.uuid4())
            self._storage.replace(address, json.dumps({"id": new}).encode())
            return new
        except (ValueError, KeyError, TypeError) as error:
            raise _unusable(self._root) from error

    def begin(self, start: str, end: str) -> int:
        """Record that a micro-batch between two offsets begins; return its number.

        A micro-batch that was begun and is not in the tables is replaced. No other one is: a consumer that was taken
        over while it was suspended would make the checkpoint unlike the tables.
        """
        if not self._is_committed and self._parse(start) == self._end:  # only this commit was missing
            self.commit()
        write = self._storage.write_new if self._is_committed else self._storage.replace
        self._newest += self._is_committed
        self._end, self._is_committed = self._parse(end), False
        notes = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000, "conf": {}}
        try:
            write(*self._file("offsets", json.dumps(notes), end))
        except FileExistsError as error:
            raise LakeproofError(
                f"The checkpoint {self._root} has a micro-batch {self._newest} already: another consumer writes to it.",
                "Run only one consumer of a stream.",
            ) from error
        return self._newest

    def commit(self) -> None:
        """Record that the newest micro-batch is done."""
        self._storage.replace(*self._file("commits", json.dumps({"nextBatchWatermarkMs": 0})))
        self._is_committed = True
        if self._newest % _KEPT == 0:
            self._remove_old()

    def _file(self, folder: str, *lines: str) -> tuple[str, bytes]:
        """Return the address and the content of the newest micro-batch's file in a folder."""
        return f"{self._root}/{folder}/{self._newest}", "\n".join(["v1", *lines]).encode()

    def _remove_old(self) -> None:
        for file in list(self._storage.list()):
            *_, folder, name = urlsplit(file.uri).path.split("/")
            if folder in ("offsets", "commits") and name.isdecimal() and int(name) <= self._newest - _KEPT:
                self._storage.remove(file.uri)


def _offset(settings: Settings, root: str, number: int, parse: Callable[[str], PositionT]) -> PositionT:
    try:
        return parse(open_storage(root, settings.s3).read(f"{root}/offsets/{number}").splitlines()[2].decode())
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
