"""Rows of the three tables that a judged micro-batch goes to: bronze, the dead letters and the ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from consumer.judge.judged import ArrowColumn, Bad, Good
from consumer.sources.envelope import Envelope
from lakeproof.contracts import Contract, DriftPolicy
from lakeproof.state.landing_log import LandedFile
from lakeproof.tables import names as tables

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_COUNTS = pa.map_(pa.string(), pa.int64())
_LEDGER_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("source", pa.string()),
    ("size", pa.int64()),
    ("etag", pa.string()),
    ("content_hash", pa.string()),
    ("micro_batch_id", pa.int64()),
    ("checkpoint_id", pa.string()),
    ("units", pa.int64()),
    ("bronze", pa.int64()),
    ("dead_letters", _COUNTS),
    ("rescued", _COUNTS),
    ("discarded", _COUNTS),
    ("landed_at", _TIMESTAMP),
    (tables.INGESTED_AT, _TIMESTAMP),
    (tables.CONTRACT_VERSION, pa.string()),
]

Outcome = tuple[str, str | None]
"""A source, and the set of reasons of some of its units; None for those that went to bronze."""
Drift = tuple[str, str]
"""A source, and the set of reasons of some values of its rows in bronze that were rescued or discarded."""

DRIFT_COUNTS = {DriftPolicy.RESCUE: "rescued", DriftPolicy.DISCARD: "discarded"}
"""The ledger's column that counts values which did not fit, by policy."""


@dataclass(frozen=True)
class MicroBatch:
    """What the rows of a micro-batch have in common.

    Parameters
    ----------
    id
        Its number within the checkpoint.
    checkpoint_id
        The checkpoint's unique id.
    contract
        The contract that judges it.
    ingested_at
        When it was judged, UTC.
    """

    id: int
    checkpoint_id: str
    contract: Contract
    ingested_at: datetime


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


def ledger_rows(
    files: Iterable[LandedFile],
    outcomes: Mapping[Outcome, int],
    drift: Mapping[Drift, int],
    hashes: Mapping[str, str],
    batch: MicroBatch,
) -> pa.RecordBatch:
    """Rows of ``ledger.<stream>``: one per source, also for a source without units."""
    by_source: dict[str, dict[str | None, int]] = {}
    for (source, reasons), count in outcomes.items():
        by_source.setdefault(source, {})[reasons] = count
    drift_by_source: dict[str, dict[str, int]] = {}
    for (source, reasons), count in drift.items():
        drift_by_source.setdefault(source, {})[reasons] = count
    rows = []
    for file in files:
        counts = by_source.get(file.name, {})
        drifted = sorted(drift_by_source.get(file.name, {}).items())
        rows.append(
            {
                "source": file.name,
                "size": file.size,
                "etag": file.etag,
                "content_hash": hashes.get(file.name),
                "micro_batch_id": batch.id,
                "checkpoint_id": batch.checkpoint_id,
                "units": sum(counts.values()),
                "bronze": counts.get(None, 0),
                "dead_letters": sorted((key, count) for key, count in counts.items() if key is not None),
                **{name: drifted if policy is batch.contract.drift else [] for policy, name in DRIFT_COUNTS.items()},
                "landed_at": file.landed_at,
                tables.INGESTED_AT: batch.ingested_at,
                tables.CONTRACT_VERSION: batch.contract.version,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(_LEDGER_COLUMNS))


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
