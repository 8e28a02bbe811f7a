"""Messages as rows of the Parquet sinks, and as messages of the Kafka sinks."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from consumer.sources.envelope import Headers

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIME = pa.timestamp("us", "UTC")
_OF_MESSAGE: dict[str, pa.DataType] = {
    "_key": pa.binary(),
    "_headers": HEADERS,
    "_source": pa.string(),
    "_landed_at": _TIME,
}
_OF_EVENT: dict[str, pa.DataType] = {"event_id": pa.string(), "event_time": _TIME, "value": pa.string()}
_OF_REASON: dict[str, pa.DataType] = {"reason": pa.string(), "detail": pa.string(), "value": pa.binary()}
KEPT = pa.schema(_OF_EVENT | _OF_MESSAGE)
"""An event that was kept, with the value of its message as it was."""
ASIDE = pa.schema(_OF_REASON | _OF_MESSAGE)
"""A bad or late message; a value of any bytes, or none."""

REASON_HEADER, DETAIL_HEADER = "lakeproof-reason", "lakeproof-detail"
LATE = "late"
"""The reason of a message that is set aside although it is an event."""


def header_column(headers: Sequence[Headers | None]) -> Any:
    """Headers as a column."""
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    return pa.array(
        [[{"key": name, "value": value} for name, value in each] if each else None for each in headers], HEADERS
    )


def times_of(milliseconds: Sequence[int | None]) -> Any:
    """Times of messages, in milliseconds since 1970, as a column."""
    return pa.array(milliseconds, pa.timestamp("ms", "UTC")).cast(_TIME)


def headers_of(column: Any) -> list[list[tuple[str, str | bytes | None]]]:
    """The headers in a column, as Kafka's client takes them."""
    return [[(each["key"], each["value"]) for each in found or ()] for found in column.to_pylist()]


def to_bytes(table: pa.Table) -> bytes:
    """A table in Arrow's format of streams."""
    output = pa.BufferOutputStream()
    with pa.ipc.new_stream(output, table.schema) as writer:
        writer.write_table(table)
    return output.getvalue().to_pybytes()


def from_bytes(data: bytes) -> pa.Table:
    """Read what :func:`to_bytes` wrote."""
    return pa.ipc.open_stream(data).read_all()
