"""Rows of the ledger: the units of each source of a micro-batch, by outcome."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import pyarrow as pa

from consumer.row_hashes import signed
from consumer.sources.source import Part
from lakeproof.contracts import Contract, DriftPolicy
from lakeproof.tables import names as tables

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_COUNTS = pa.map_(pa.string(), pa.int64())
_COLUMNS: list[tuple[str, pa.DataType]] = [
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
    (tables.REPLAY, pa.int64()),
    (tables.CLOSED, _COUNTS),
    (f"bronze{tables.HASH_OF}", pa.int64()),
    (f"dead_letters{tables.HASH_OF}", pa.int64()),
]

Outcome = tuple[str, str | None]
"""A source, and a set of reasons of its units; None for units in bronze."""
Drift = tuple[str, str]
"""A source, and a set of reasons why values of its rows in bronze were rescued or discarded."""

ReasonsT = TypeVar("ReasonsT")

DRIFT_COUNTS = {DriftPolicy.RESCUE: "rescued", DriftPolicy.DISCARD: "discarded"}
"""The ledger's column that counts values that did not fit, by policy."""


@dataclass(frozen=True)
class MicroBatch:
    """Properties that all rows of a micro-batch share."""

    id: int  # its number within the checkpoint
    checkpoint_id: str  # the checkpoint's unique id
    contract: Contract  # the contract that judges it
    ingested_at: datetime  # when it was judged, UTC
    schema_id: int | None = None  # id of the contract in the schema registry; None if unknown


@dataclass
class Sums:
    """Sums of the row hashes of each part of a source, by table."""

    bronze: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Sums") -> None:
        """Add the hashes of other rows."""
        self.bronze.update(other.bronze)
        self.dead_letters.update(other.dead_letters)

    def of(self, part: str) -> dict[str, int]:
        """Return the hash columns of the ledger for a part."""
        by_table = {"bronze": self.bronze, "dead_letters": self.dead_letters}
        return {f"{table}{tables.HASH_OF}": signed(sums[part]) for table, sums in by_table.items()}


def ledger_rows(
    parts: Iterable[Part],
    outcomes: Mapping[Outcome, int],
    drift: Mapping[Drift, int],
    hashes: Mapping[str, str],
    batch: MicroBatch,
    sums: Sums,
) -> pa.RecordBatch:
    """Return rows of ``ledger.<stream>``: one per source, including sources without units."""
    by_source, drift_by_source = _by_source(outcomes), _by_source(drift)
    rows = []
    for part in parts:
        counts = by_source.get(part.name, {})
        drifted = sorted(drift_by_source.get(part.name, {}).items())
        rows.append(
            {
                "source": part.name,
                "size": part.size,
                "etag": part.etag,
                "content_hash": hashes.get(part.name),
                "micro_batch_id": batch.id,
                "checkpoint_id": batch.checkpoint_id,
                "units": sum(counts.values()),
                "bronze": counts.get(None, 0),
                "dead_letters": sorted((key, count) for key, count in counts.items() if key is not None),
                **{name: drifted if policy is batch.contract.drift else [] for policy, name in DRIFT_COUNTS.items()},
                "landed_at": part.landed_at,
                tables.INGESTED_AT: batch.ingested_at,
                tables.CONTRACT_VERSION: batch.contract.version,
                **sums.of(part.name),
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(_COLUMNS))


def replay_rows(
    sources: Mapping[str, str],
    outcomes: Mapping[Outcome, int],
    drift: Mapping[Drift, int],
    closed: Mapping[tuple[str, str], int],
    number: int,
    batch: MicroBatch,
    sums: Sums,
) -> pa.RecordBatch:
    """Return rows of ``ledger.<stream>`` for a replay: one per part, named by the smallest source in the part."""
    by_part, drift_by_part, closed_by_part = _by_source(outcomes), _by_source(drift), _by_source(closed)
    rows = []
    for part, source in sorted(sources.items()):
        counts = by_part.get(part, {})
        drifted = sorted(drift_by_part.get(part, {}).items())
        rows.append(
            {
                "source": source,
                "size": 0,
                "micro_batch_id": batch.id,
                "checkpoint_id": batch.checkpoint_id,
                "units": sum(counts.values()),
                "bronze": counts.get(None, 0),
                "dead_letters": sorted((key, count) for key, count in counts.items() if key is not None),
                **{name: drifted if policy is batch.contract.drift else [] for policy, name in DRIFT_COUNTS.items()},
                tables.INGESTED_AT: batch.ingested_at,
                tables.CONTRACT_VERSION: batch.contract.version,
                tables.REPLAY: number,
                tables.CLOSED: sorted(closed_by_part.get(part, {}).items()),
                **sums.of(part),
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(_COLUMNS))


def _by_source(counts: Mapping[tuple[str, ReasonsT], int]) -> dict[str, dict[ReasonsT, int]]:
    found: dict[str, dict[ReasonsT, int]] = {}
    for (source, reasons), count in counts.items():
        found.setdefault(source, {})[reasons] = count
    return found
