"""The envelope: what every source yields for a batch, whatever it came from."""

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
    """What a Kafka message has beside its value.

    Parameters
    ----------
    part
        What the ledger calls the range of offsets that it is in.
    key
        Its key; None for none.
    headers
        Its headers, in their order; a name may come more than once.
    """

    part: str
    key: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Envelope:
    """A landed batch, or the news that it cannot be had.

    Parameters
    ----------
    value
        The batch's bytes as landed, decompressed where its name says that it is compressed; None where they
        are too many to be had, and stay in the file.
    source
        Name of the file below the landing folder, or ``topic/partition/offset``.
    landed_at
        When it landed, UTC; None for a message without a time that a table can have.
    failure
        Why it could not be read, as (reason code, detail); then `value` is the part that could be read.
    content_hash
        Hash of its bytes as they lie there, see :func:`lakeproof.landing.zone.content_hash`; None
        where they were not read.
    message
        What else there is of it if it is a Kafka message.
    """

    value: bytes | None
    source: str
    landed_at: datetime | None
    failure: tuple[str, str] | None = None
    content_hash: str | None = None
    message: Message | None = None

    @property
    def part(self) -> str:
        """What the ledger calls the part that it is in."""
        return self.message.part if self.message else self.source


@dataclass(frozen=True, slots=True)
class Messages:
    """Small Kafka messages of a partition, by columns: an envelope for each would take longer than judging it.

    Parameters
    ----------
    part
        What the ledger calls the range of offsets that they are in.
    prefix
        What their names begin with, before the offset: ``topic/partition/``.
    offsets
        Offset of each.
    landed_at
        When each landed, in milliseconds since 1970; None for a message without a time that a table can have.
    values, keys, headers
        Value, key and headers of each.
    """

    part: str
    prefix: str
    offsets: Sequence[int]
    landed_at: Sequence[int | None]
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
