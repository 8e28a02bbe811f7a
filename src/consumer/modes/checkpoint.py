"""The checkpoint of a mode: its identity, the content of each micro-batch, and the state after it.

::

    mode.json            its identity; written once
    plans/N.json         the content of micro-batch N; written before any of it is read
    state/…              tables of the state, as Parquet
    commits/N.json       micro-batch N is done: position, watermark, counts, and the valid files of `state`

Plans and commits are created, never replaced: of two consumers with one checkpoint, one gets an error.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from consumer.modes.plan import Micros, ModePlan
from consumer.modes.sinks import as_parquet
from lakeproof.contracts import ISO_8601
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.kafka.modes import Mode
from lakeproof.kafka.offsets import Offsets
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage
from lakeproof.storage.errors import FileAbsentError

FORMAT = 1
_IDENTITY = "mode.json"
# Number of older plans and commits to keep: for the rate in `consumer status`, and for people.
_KEPT = 20


@dataclass(frozen=True)
class Counts:
    """Number of messages by outcome: each message has exactly one."""

    kept: int = 0
    duplicates: int = 0
    late: int = 0
    bad: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Add the counts."""
        return Counts(**{name: count + getattr(other, name) for name, count in asdict(self).items()})

    @property
    def messages(self) -> int:
        """Total number of messages."""
        return sum(asdict(self).values())


@dataclass(frozen=True)
class Commit:
    """The state after a micro-batch."""

    number: int
    id: str  # unique id of this commit: a copy of the state records the commit that it belongs to
    end: Offsets  # where the next micro-batch starts
    watermark: Micros | None  # of the next micro-batch; None until an event has been seen
    keys: tuple[str, ...] = ()  # files of the state with the ids of kept events
    windows: str | None = None  # file of the state with the open windows
    counts: Counts = field(default_factory=Counts)  # of this micro-batch
    totals: Counts = field(default_factory=Counts)  # of all micro-batches so far

    def as_json(self) -> bytes:
        """Return the commit as JSON."""
        return json.dumps(asdict(self) | {"end": str(self.end)}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Parse the result of :meth:`as_json`."""
        found = json.loads(text)
        found |= {"end": Offsets.parse(found["end"]), "keys": tuple(found["keys"])}
        return cls(**found | {name: Counts(**found[name]) for name in ("counts", "totals")})


@dataclass(frozen=True)
class Identity:
    """The identity of a checkpoint: the topic and the mode that it belongs to."""

    id: str  # id of the checkpoint, which sinks record
    topic_id: str  # assigned by the brokers when the topic was created
    start: Offsets
    pinned: Mapping[str, Any]  # fields of the mode that cannot change: the state depends on them


def pinned(mode: Mode) -> dict[str, Any]:
    """Return the fields of a mode that cannot change under a checkpoint; durations are in microseconds."""
    fields = {name: value for name, value in asdict(mode.fields).items() if value}
    fields |= {"event_time_format": str(mode.time)} if mode.time != ISO_8601 else {}
    window = {"window": mode.window} if mode.window else {}
    return {"mode": str(mode.name), "topic": mode.topic, **fields, "watermark": mode.watermark, **window}


class Checkpoint:
    """Reads and writes the files of a checkpoint."""

    def __init__(self, root: str, s3: S3Settings) -> None:
        self.root = root
        self._storage = open_storage(root, s3)

    def identity(self) -> Identity | None:
        """Read the identity; None for a new checkpoint."""
        try:
            found = json.loads(self._storage.read(f"{self.root}/{_IDENTITY}"))
            if found["format"] != FORMAT:
                raise self._unusable()
            return Identity(found["id"], found["topic_id"], Offsets.parse(found["start"]), found["pinned"])
        except FileAbsentError:
            if self._numbers("plans") or self._numbers("commits"):
                raise self._unusable() from None
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise self._unusable() from error

    def create(self, mode: Mode, topic_id: str, start: Offsets) -> Identity:
        """Create the checkpoint, and record its identity.

        Refuse a folder below or above another checkpoint: an older version would remove files of the inner one.
        """
        if other := next(self._nested(), None):
            raise UsageError(
                f"The checkpoints {self.root} and {other} are nested.",
                "Use a folder that is neither below nor above another checkpoint.",
            )
        made = Identity(uuid.uuid4().hex, topic_id, start, pinned(mode))
        text = asdict(made) | {"format": FORMAT, "start": str(start)}
        self._write_new(_IDENTITY, json.dumps(text, indent=2).encode())
        return made

    def check(self, identity: Identity, mode: Mode, topic_id: str) -> None:
        """Check that a mode may resume from this checkpoint."""
        wanted = pinned(mode)
        changed = [name for name in (*identity.pinned, *wanted) if identity.pinned.get(name) != wanted.get(name)]
        if changed:
            name = changed[0]
            was, now = (_shown(name, each.get(name)) for each in (identity.pinned, wanted))
            raise LakeproofError(
                f"The checkpoint {self.root} was made with {name} {was}, not {now}.",
                f"Set {name} back to {was}. Or begin again with a new checkpoint and new sinks.",
            )
        if identity.topic_id != topic_id:
            raise LakeproofError(
                f"The topic {mode.topic} was deleted and created again: its offsets begin again.",
                "Restore the topic. Or begin again with a new checkpoint and new sinks.",
            )

    def newest(self) -> tuple[Commit | None, ModePlan | None]:
        """Return the newest commit, and the plan of an unfinished micro-batch after it, if there is one."""
        commits, plans = self._numbers("commits"), self._numbers("plans")
        done = max(commits, default=-1)
        begun = max(plans, default=-1)
        if begun not in (done, done + 1):
            raise self._unusable()
        try:
            commit = Commit.from_json(self._storage.read(f"{self.root}/commits/{done}.json")) if done >= 0 else None
            plan = ModePlan.from_json(self._storage.read(f"{self.root}/plans/{begun}.json")) if begun > done else None
        except (ValueError, KeyError, TypeError) as error:
            raise self._unusable() from error
        if commit and plan and plan.start != commit.end:
            raise self._unusable()
        return commit, plan

    def commits(self) -> list[tuple[Commit, datetime]]:
        """Return the retained commits with their times (UTC), the newest last."""
        found = []
        for number in sorted(self._numbers("commits")):
            uri = f"{self.root}/commits/{number}.json"
            if file := self._storage.stat(uri):  # a running consumer removes old ones
                found.append((Commit.from_json(self._storage.read(uri)), file.modified_at))
        return found

    def begin(self, plan: ModePlan) -> None:
        """Record the plan of a micro-batch."""
        self._write_new(f"plans/{plan.number}.json", plan.as_json())

    def commit(self, commit: Commit) -> None:
        """Record that a micro-batch is done."""
        self._write_new(f"commits/{commit.number}.json", commit.as_json())

    def write_table(self, name: str, rows: pa.Table) -> None:
        """Write a file of the state; a repeated micro-batch replaces its files."""
        self._storage.replace(f"{self.root}/state/{name}", as_parquet(rows))

    def read_table(self, name: str, schema: pa.Schema) -> pa.Table:
        """Read a file of the state."""
        try:
            return pq.read_table(pa.BufferReader(self._storage.read(f"{self.root}/state/{name}")), schema=schema)
        except FileAbsentError as error:
            raise self._unusable() from error

    def tidy(self, commit: Commit) -> None:
        """Remove files of the state that are not valid after a commit, and old plans and commits."""
        wanted = {*commit.keys, commit.windows}
        names = [name for name in self._names("state") if name.endswith(".parquet") and name not in wanted]
        old = [f"state/{name}" for name in names]
        for folder in ("plans", "commits"):
            old += [f"{folder}/{number}.json" for number in self._numbers(folder) if number < commit.number - _KEPT]
        for name in old:
            self._storage.remove(f"{self.root}/{name}")

    def _names(self, folder: str) -> Iterator[str]:
        """Return the names in a folder of this checkpoint: there may be another checkpoint below it."""
        return self._storage.names(f"{self.root}/{folder}")

    def _numbers(self, folder: str) -> list[int]:
        names = (name.removesuffix(".json") for name in self._names(folder) if name.endswith(".json"))
        return [int(name) for name in names if name.isdecimal()]

    def _nested(self) -> Iterator[str]:
        """Yield checkpoints in folders above and below."""
        scheme, _, path = self.root.partition("://")
        while path := path.rpartition("/")[0]:
            folder = f"{scheme}://{path}"
            with suppress(UnavailableError):  # a key may have access only to the folder of the checkpoint
                if self._storage.stat(f"{folder}/{_IDENTITY}"):
                    yield folder
        for file in self._storage.list():
            folder, _, name = file.uri.rpartition("/")
            if name == _IDENTITY:
                yield folder

    def _write_new(self, name: str, data: bytes) -> None:
        try:
            self._storage.write_new(f"{self.root}/{name}", data)
        except FileExistsError:
            raise LakeproofError(
                f"Another consumer uses the checkpoint {self.root}.", "Stop it, then run this one again."
            ) from None

    def _unusable(self) -> LakeproofError:
        return LakeproofError(
            f"Cannot resume from the checkpoint {self.root}: files of it are missing or damaged.",
            "Restore the whole folder. Or begin again with a new checkpoint and new sinks.",
        )


def _shown(name: str, value: Any) -> str:
    if name in ("watermark", "window") and value:
        return f"{value / 1_000_000:g} seconds"
    return str(value)
