"""What a stream's batches come from: what a micro-batch holds, and how a task reads it.

A source derives from :class:`Source`, and a reader fills :class:`Reader`; see :mod:`consumer.sources.files.source`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from consumer.bulletin import Bulletin
from consumer.sources.envelope import Envelope, Messages, Recovered
from lakeproof.errors import LakeproofError
from lakeproof.settings import Limits


class Part(Protocol):
    """A piece of a micro-batch that has a row in the ledger: a file, a range of offsets."""

    @property
    def name(self) -> str:
        """What the ledger calls it: the ``_source`` of its units, or what that begins with."""

    @property
    def size(self) -> int:
        """Bytes, or offsets."""

    @property
    def etag(self) -> str:
        """Which content it had when it was listed."""

    @property
    def landed_at(self) -> datetime | None:
        """When it landed, UTC; None for a part of messages that landed at various times."""

    @property
    def given_up(self) -> bool:
        """Whether its absence is accepted: then it becomes a dead letter."""


PartT = TypeVar("PartT", bound=Part)


@dataclass(frozen=True)
class Held(Generic[PartT]):
    """What a micro-batch holds: parts between two positions of the source, and the digest of the contract for them."""

    parts: Sequence[PartT]
    start: str
    end: str
    contract: str


class Reader(Protocol[PartT]):
    """Reads parts within a task. Can be pickled."""

    def groups(self, parts: Sequence[PartT], cores: int) -> list[list[PartT]]:
        """Divide parts among tasks, for so many cores: a group for each task. Large parts may be cut."""

    def envelopes(
        self, parts: Iterable[PartT], limits: Limits, touched: Callable[[PartT], None] | None
    ) -> Iterator[Envelope | Messages]:
        """Read the batches of `parts`, one after the other.

        `touched` is called with a part that has another tag than was listed, and was read as it is now; None means that
        only what was listed may be read.
        """

    def read_again(self, source: str, etag: str, limits: Limits) -> Envelope:
        """Read one batch of which a dead letter does not have the bytes.

        `source` is its ``_source``, and `etag` is that of its row in the ledger. The envelope says why if it cannot be
        read, or is not what landed. One that is read and cannot be unpacked has its bytes, too.
        """

    def recover(self, source: str, value: bytes, limits: Limits) -> Recovered | None:
        """What can be relied on of a batch that cannot be unpacked, by its bytes as they landed; None of any other."""


class DeclinedError(LakeproofError):
    """A micro-batch was not begun, since the application ends."""


class Source(ABC, Generic[PartT]):
    """Where a stream's batches come from. Members with a default fit most sources."""

    @property
    @abstractmethod
    def root(self) -> str:
        """Where that is, for a person."""

    @property
    @abstractmethod
    def reader(self) -> Reader[PartT]:
        """Reads it within tasks."""

    @abstractmethod
    def prepare(self, catalog: Catalog) -> None:
        """Check that it is the one that the stream's tables were filled from. The tables exist."""

    def recall(self, catalog: Catalog) -> None:
        """Take from the stream's tables what they were filled from, where nothing new is read."""

    @abstractmethod
    def check_without_tables(self) -> None:
        """Refuse to start from the beginning if a checkpoint says that there were tables."""

    @abstractmethod
    def resume(self, ledger: Table, accounted: str | None) -> None:
        """Resume behind `accounted`, up to which the ledger has everything; None for the beginning."""

    @abstractmethod
    def rows(self, spark: SparkSession, bulletin: Bulletin) -> DataFrame:
        """Return the streaming rows that say what each micro-batch holds."""

    @abstractmethod
    def held(self, rows: DataFrame, micro_batch_id: int) -> Held[PartT] | None:
        """Read what the micro-batch with this number in the checkpoint holds, by its rows; None for nothing."""

    @abstractmethod
    def held_between(self, start: str, end: str, names: Callable[[], Iterable[str]]) -> list[PartT]:
        """What lies between two positions.

        A source that has forgotten asks for the names that the tables have of it, and takes those parts as they are.
        """

    @abstractmethod
    def size_of(self, parts: Sequence[PartT]) -> dict[str, int]:
        """How large parts are together, by unit, for the log."""

    @abstractmethod
    def is_origin(self, position: str) -> bool:
        """Whether nothing comes before a position."""

    @property
    def knows_its_end(self) -> bool:
        """Whether Spark itself can end the query once it has taken what was there when it started."""
        return False

    def waiting(self) -> dict[str, int]:
        """How much there is to take, by a unit of `size_of`; empty for a run without an end. It was resumed."""
        return {}

    def still_next(self, start: str, end: str, accounted: str | None) -> tuple[str, str] | None:
        """What a paused micro-batch from `start` to `end` is by now, if it is next behind `accounted`; None if not."""
        return (start, end) if start == accounted or (accounted is None and self.is_origin(start)) else None

    def look_again(self, parts: Iterable[PartT]) -> None:
        """Remember the new tags of parts that its reader called `touched` with."""

    def check(self) -> None:
        """Make sure that it can be read, and is the one it was. Called after a failure, to say why."""
