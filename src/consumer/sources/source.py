"""The interface of sources: the content of a micro-batch, and how a task reads it.

A source derives from :class:`Source`, and a reader implements :class:`Reader`; see
:mod:`consumer.sources.files.source`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from consumer.sources.envelope import Envelope, Messages, Recovered
from lakeproof.settings import Limits


class Part(Protocol):
    """A piece of a micro-batch that has a row in the ledger: a file, a range of offsets."""

    @property
    def name(self) -> str:
        """Name in the ledger: the ``_source`` of its units, or the beginning of it."""

    @property
    def size(self) -> int:
        """Number of bytes or offsets."""

    @property
    def etag(self) -> str:
        """Identifies the content at the time of listing."""

    @property
    def landed_at(self) -> datetime | None:
        """When it landed, UTC; None for a part of messages that landed at various times."""

    @property
    def given_up(self) -> bool:
        """Whether its absence is accepted: in this case it becomes a dead letter."""


PartT = TypeVar("PartT", bound=Part)


@dataclass(frozen=True)
class Held(Generic[PartT]):
    """The content of a micro-batch: parts between two positions of the source, and the digest of their contract.

    `more` is whether more has come than one micro-batch may hold.
    """

    parts: Sequence[PartT]
    start: str
    end: str
    contract: str
    more: bool = False


class Reader(Protocol[PartT]):
    """Reads parts within a task. Can be pickled."""

    def groups(self, parts: Sequence[PartT], cores: int) -> list[list[PartT]]:
        """Divide parts among tasks for a number of cores: a group for each task. Large parts may be split."""

    def envelopes(
        self, parts: Iterable[PartT], limits: Limits, touched: Callable[[PartT], None] | None
    ) -> Iterator[Envelope | Messages]:
        """Read the batches of `parts`, one after the other.

        `touched` is called with a part whose tag is not the listed one, and which was read as it is now; None means
        that only the listed content may be read.
        """

    def read_again(self, source: str, etag: str, limits: Limits) -> Envelope:
        """Read a batch for a dead letter without bytes.

        `source` is the ``_source`` of the batch, and `etag` is the tag in the ledger. The envelope has a failure if the
        batch cannot be read, or has changed since it landed. If it is read but cannot be unpacked, it also has bytes.
        """

    def recover(self, source: str, value: bytes, limits: Limits) -> Recovered | None:
        """Return the sound beginning of a batch that cannot be unpacked, from its landed bytes; None for others."""


class Source(ABC, Generic[PartT]):
    """The source of a stream's batches. Members with a default fit most sources.

    It is asked for the next micro-batch after each position; what a micro-batch holds is recorded before it is judged.
    """

    @property
    @abstractmethod
    def root(self) -> str:
        """Address of the source, for people."""

    @property
    @abstractmethod
    def reader(self) -> Reader[PartT]:
        """The reader for tasks."""

    @abstractmethod
    def prepare(self, catalog: Catalog) -> None:
        """Check that the stream's tables were filled from this source. The tables exist."""

    def recall(self, catalog: Catalog) -> None:
        """Read the source from the stream's tables, if nothing new is read."""

    @abstractmethod
    def check_without_tables(self) -> None:
        """Refuse to start from the beginning if a checkpoint shows that there were tables."""

    @abstractmethod
    def resume(self, ledger: Table, accounted: str | None) -> str:
        """Return the position to resume from: `accounted`, up to which the ledger has everything, or the beginning.

        With `available_now`, also find what is available by now.
        """

    @abstractmethod
    def next(self, after: str, cores: int) -> Held[PartT] | None:
        """Return the micro-batch after a position, as large as allowed for a number of cores; None if nothing came."""

    @abstractmethod
    def held_between(self, start: str, end: str, names: Callable[[], Iterable[str]]) -> list[PartT]:
        """Return the parts between two positions.

        A source without a record of them calls `names` for the parts in the tables, and takes these as they are now.
        """

    @abstractmethod
    def size_of(self, parts: Sequence[PartT]) -> dict[str, int]:
        """Return the total size of parts, by unit, for the log."""

    @abstractmethod
    def is_origin(self, position: str) -> bool:
        """Return whether a position is the beginning of the source."""

    def offset(self, position: str, contract: str) -> str:  # noqa: ARG002 - for a source whose offsets have it
        """Return the offset of a position for the checkpoint; `contract` judges the micro-batch that ends there."""
        return json.dumps({"position": position})

    def parse_offset(self, offset: str) -> object:
        """Parse an offset, to compare it with others."""
        return json.loads(offset)

    def waiting(self) -> dict[str, int]:
        """Return the amount of waiting data, by a unit of `size_of`; empty for an endless run. Call after `resume`."""
        return {}

    def still_next(self, start: str, end: str, accounted: str | None) -> tuple[str, str] | None:
        """Return the current range of a paused micro-batch if it is next after `accounted`; otherwise None."""
        return (start, end) if start == accounted or (accounted is None and self.is_origin(start)) else None

    def look_again(self, parts: Iterable[PartT]) -> None:
        """Remember the new tags of parts for which the reader called `touched`."""

    def check(self) -> None:
        """Check that the source can be read and is the same. Called after a failure to find the reason."""
