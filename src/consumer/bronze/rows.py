"""Rows of bronze and of the dead letters, from judged units."""

from typing import Any

import pyarrow as pa

from consumer.commit.ledger import MicroBatch
from consumer.judge.judged import ArrowColumn, Bad, Good
from consumer.sources.envelope import Envelope
from lakeproof.tables import names as tables

_TIMESTAMP = pa.timestamp("us", tz="UTC")


def bronze_rows(good: Good, envelope: Envelope, batch: MicroBatch) -> pa.RecordBatch:
    """Rows of ``bronze.<stream>``: the good records of an envelope."""
    columns: dict[str, Any] = dict(zip(good.values.schema.names, good.values.columns, strict=True))
    if good.rescued is not None:
        columns[tables.RESCUED] = good.rescued
    return pa.RecordBatch.from_pydict(columns | _provenance(envelope, batch, good.positions))


def dead_letter_rows(bad: Bad, envelope: Envelope, batch: MicroBatch) -> pa.RecordBatch:
    """Rows of ``dead_letters.<stream>``: the bad units of an envelope."""
    columns = {
        tables.REASONS: bad.reasons,
        tables.RAW: bad.raw,
        **_provenance(envelope, batch, bad.positions),
        tables.ATTEMPT: _repeat(1, pa.int32(), bad.positions),
    }
    return pa.RecordBatch.from_pydict(columns)


def reason_sets(bad: Bad) -> list[str]:
    """The set of reasons of each bad unit, as the ledger writes it: sorted, joined by ``+``."""
    reasons: Any = bad.reasons
    codes = reasons.flatten().field("code").to_pylist()
    sets, begin = [], 0
    for length in reasons.value_lengths().to_pylist():
        sets.append("+".join(sorted(set(codes[begin : begin + length]))))
        begin += length
    return sets


def drift_sets(good: Good) -> list[str]:
    """The set of reasons of each value that was rescued or discarded, as the ledger writes it."""
    if good.drift is None:
        return []
    drift: Any = good.drift
    found: list[str] = drift.flatten().to_pylist()
    return found


def _provenance(envelope: Envelope, batch: MicroBatch, positions: ArrowColumn) -> dict[str, Any]:
    return {
        tables.SOURCE: _repeat(envelope.source, pa.string(), positions),
        tables.POSITION: positions,
        tables.MICRO_BATCH_ID: _repeat(batch.id, pa.int64(), positions),
        tables.LANDED_AT: _repeat(envelope.landed_at, _TIMESTAMP, positions),
        tables.INGESTED_AT: _repeat(batch.ingested_at, _TIMESTAMP, positions),
        tables.CONTRACT_VERSION: _repeat(batch.contract.version, pa.string(), positions),
    }


def _repeat(value: object, kind: pa.DataType, rows: ArrowColumn) -> Any:
    scalar: Any = pa.scalar(value, kind)
    return pa.repeat(scalar, len(rows))
