"""The envelope: what every source yields for a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

SMALL_BYTES = 4 << 10
"""Batches up to this size are judged together. For larger ones, it makes no difference."""

Headers = Sequence[tuple[str, bytes | None]]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Arrow type of the headers of a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a Kafka message has beside its value."""

    part: str  # what the ledger calls the range of offsets that it is in
    key: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Recovered:
    """The beginning of a batch that cannot be unpacked, which may be nothing."""

    value: bytes
    detail: str  # why the rest cannot be unpacked


@dataclass(frozen=True, slots=True)
class Envelope:
    """A landed batch, or why it could not be read."""

    value: bytes | None
    """Its bytes, decompressed if its name says that it is compressed; None if they are too many, and stay there."""
    source: str  # name of the file below the landing folder, or ``topic/partition/offset``
    landed_at: datetime | None  # UTC; None for a message without a time that a table can have
    failure: tuple[str, str] | None = None
    """Code of the reason, and detail; then `value` is the part that could be read."""
    content_hash: str | None = None  # see :func:`lakeproof.landing.zone.content_hash`; None if it was not read
    message: Message | None = None

    @property
    def part(self) -> str:
        """What the ledger calls the part that it is in."""
        return self.message.part if self.message else self.source


@dataclass(frozen=True, slots=True)
class Messages:
    """Small Kafka messages of a partition, by columns: an envelope for each would take longer than judging it."""

    part: str  # what the ledger calls the range of offsets that they are in
    prefix: str  # what their names begin with, before the offset: ``topic/partition/``
    offsets: Sequence[int]
    landed_at: Sequence[int | None]
    """In milliseconds since 1970; None for a message without a time that a table can have."""
    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    headers: Sequence[Headers | None]


def header_column(headers: Sequence[Headers | None]) -> Any:
    """Headers as a column."""
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    return pa.array(
        [[{"key": name, "value": value} for name, value in each] if each else None for each in headers], HEADERS
    )
