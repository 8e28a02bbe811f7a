"""How records and batches are written as JSON."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class JsonStyle(StrEnum):
    """How a batch is written."""

    COMPACT = "compact"
    """An array, without spaces."""
    SPACED = "spaced"
    """An array as Python's ``json.dumps`` writes it, with a space behind each comma and colon."""
    NDJSON = "ndjson"
    """A record a line."""


def encode_record(record: Mapping[str, Any], style: JsonStyle) -> bytes:
    """Write a record."""
    data = msgspec.json.encode(record)
    return msgspec.json.format(data, indent=0) if style is JsonStyle.SPACED else data


def join_records(records: Sequence[bytes], style: JsonStyle) -> bytes:
    """Write a batch of records that :func:`encode_record` wrote."""
    match style:
        case JsonStyle.COMPACT:
            return b"[" + b",".join(records) + b"]"
        case JsonStyle.SPACED:
            return b"[" + b", ".join(records) + b"]"
        case JsonStyle.NDJSON:
            return b"".join(record + b"\n" for record in records)
