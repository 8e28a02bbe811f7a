"""The envelope: the form in which every source yields a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

SMALL_BYTES = 4 << 10
"""Messages up to this size come as columns (:class:`Messages`)."""

Headers = Sequence[tuple[str, bytes | None]]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Arrow type of the headers of a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """A Kafka message without its value."""

    part: str  # the ledger's name for its range of offsets
    key: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Recovered:
    """The beginning of a batch that cannot be unpacked; it may be empty."""

    value: bytes
    detail: str  # why the rest cannot be unpacked


@dataclass(frozen=True, slots=True)
class Envelope:
    """A landed batch, or why it could not be read."""

    value: bytes | None
    """The bytes, decompressed if the name marks them as compressed; None if they are too many, and stay there."""
    source: str  # name of the file below the landing folder, or ``topic/partition/offset``
    landed_at: datetime | None  # UTC; None for a message without a time that a table can have
    failure: tuple[str, str] | None = None
    """Code of the reason, and detail; in this case `value` is the part that could be read."""
    content_hash: str | None = None  # see :func:`lakeproof.landing.zone.content_hash`; None if it was not read
    message: Message | None = None

    @property
    def part(self) -> str:
        """The ledger's name for the part that has the batch."""
        return self.message.part if self.message else self.source


@dataclass(frozen=True, slots=True)
class Messages:
    """Small Kafka messages of a partition as columns: an envelope for each would take longer than judging it."""

    part: str  # the ledger's name for their range of offsets
    prefix: str  # the beginning of their names, before the offset: ``topic/partition/``
    offsets: Sequence[int]
    landed_at: Sequence[int | None]
    """In milliseconds since 1970; None for a message without a time that a table can have."""
    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    headers: Sequence[Headers | None]


def header_column(headers: Sequence[Headers | None]) -> Any:
    """Return headers as a column."""
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    return pa.array(
        [[{"key": name, "value": value} for name, value in each] if each else None for each in headers], HEADERS
    )
