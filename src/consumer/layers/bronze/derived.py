"""Columns of bronze that records do not have: they are derived on ingestion."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from consumer.layers.bronze.ledger import MicroBatch
from lakeproof.contracts import Derived, DerivedFrom
from lakeproof.judge.judged import arrow_type
from lakeproof.kafka.correlation import CLIENT, IDEMPOTENCY_INDEX, IDEMPOTENCY_KEY, correlation_id
from lakeproof.tables.names import HEADERS


def derived_columns(values: pa.RecordBatch, origins: Mapping[str, Any], batch: MicroBatch) -> dict[str, Any]:
    """Compute the columns that a contract declares as derived."""
    return {
        field.name: pa.array(_values(field.derived, values, origins, batch), arrow_type(field.type))
        for field in batch.contract.derived
        if field.derived
    }


def _values(derived: Derived, values: pa.RecordBatch, origins: Mapping[str, Any], batch: MicroBatch) -> Sequence[Any]:
    match derived.source:
        case DerivedFrom.CORRELATION:
            return _correlation_ids(values.column(derived.field), origins.get(HEADERS))
        case DerivedFrom.SCHEMA:
            return [batch.schema_id] * values.num_rows
        case DerivedFrom.INGESTION:
            return [batch.ingested_at] * values.num_rows


def _correlation_ids(identities: Any, headers: Any) -> list[str]:
    count = len(identities)
    clients, keys, indexes = (_header(headers, name, count) for name in (CLIENT, IDEMPOTENCY_KEY, IDEMPOTENCY_INDEX))
    texts = identities.cast(pa.binary() if pa.types.is_string(identities.type) else pa.string()).to_pylist()
    return [
        correlation_id(client, key, index, text if isinstance(text, bytes) else text.encode())
        for client, key, index, text in zip(clients, keys, indexes, texts, strict=True)
    ]


def _header(headers: Any, name: str, count: int) -> list[bytes | None]:
    """Return the value of a header for each message; of a repeated header, the first value."""
    found: list[bytes | None] = [None] * count
    if headers is None or headers.null_count == count:
        return found
    entries = headers.flatten()
    is_meant = pc.equal(entries.field("key"), name)
    rows = pc.list_parent_indices(headers).filter(is_meant).to_pylist()
    values = entries.field("value").filter(is_meant).to_pylist()
    for row, value in zip(reversed(rows), reversed(values), strict=True):
        found[row] = value
    return found
