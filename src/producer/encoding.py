"""JSON encoding of records and batches."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class JsonStyle(StrEnum):
    """JSON format of a batch."""

    COMPACT = "compact"  # an array, without spaces
    SPACED = "spaced"  # an array with a space after each comma and colon, as by Python's ``json.dumps``
    NDJSON = "ndjson"  # one record per line


def encode_record(record: Mapping[str, Any], style: JsonStyle) -> bytes:
    """Encode a record."""
    data = msgspec.json.encode(record)
    return msgspec.json.format(data, indent=0) if style is JsonStyle.SPACED else data


def join_records(records: Sequence[bytes], style: JsonStyle) -> bytes:
    """Join encoded records to a batch."""
    match style:
        case JsonStyle.COMPACT:
            return b"[" + b",".join(records) + b"]"
        case JsonStyle.SPACED:
            return b"[" + b", ".join(records) + b"]"
        case JsonStyle.NDJSON:
            return b"".join(record + b"\n" for record in records)
