"""Rows of bronze and of the dead letters, from judged units."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from consumer.commit.ledger import MicroBatch
from consumer.judge.judged import ArrowColumn, Bad, Good
from consumer.sources.envelope import Envelope
from lakeproof.tables import names as tables

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Origins:
    """Which envelope each of some units came in.

    Parameters
    ----------
    envelopes
        The envelopes.
    of
        For each unit, which of them; None where there is only one.
    """

    envelopes: Sequence[Envelope]
    of: Sequence[int] | None = None

    def names(self, rows: int) -> list[str]:
        """What the ledger calls the parts that `rows` units are in."""
        if self.of is None:
            return [self.envelopes[0].booked_as] * rows
        return [self.envelopes[index].booked_as for index in self.of]

    def column(self, get: Callable[[Envelope], Any], kind: pa.DataType, rows: ArrowColumn) -> Any:
        """A column with what `get` returns of the envelope of each unit."""
        if self.of is None:
            return _repeat(get(self.envelopes[0]), kind, rows)
        return pa.array([get(self.envelopes[index]) for index in self.of], kind)


def bronze_rows(good: Good, origins: Origins, batch: MicroBatch) -> pa.RecordBatch:
    """Rows of ``bronze.<stream>``: good records."""
    columns: dict[str, Any] = dict(zip(good.values.schema.names, good.values.columns, strict=True))
    if good.rescued is not None:
        columns[tables.RESCUED] = good.rescued
    return pa.RecordBatch.from_pydict(columns | _provenance(origins, batch, good.positions))


def dead_letter_rows(bad: Bad, origins: Origins, batch: MicroBatch) -> pa.RecordBatch:
    """Rows of ``dead_letters.<stream>``: bad units."""
    columns = {
        tables.REASONS: bad.reasons,
        tables.RAW: bad.raw,
        **_provenance(origins, batch, bad.positions),
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


def drift_sets(good: Good) -> list[list[str]]:
    """The sets of reasons of the values that were rescued or discarded, as the ledger writes them, by record."""
    if good.drift is None or good.drift.null_count == len(good):
        return [[]] * len(good)
    return [codes or [] for codes in good.drift.to_pylist()]


def _provenance(origins: Origins, batch: MicroBatch, positions: ArrowColumn) -> dict[str, Any]:
    columns = {
        tables.SOURCE: origins.column(_source, pa.string(), positions),
        tables.POSITION: positions,
        tables.MICRO_BATCH_ID: _repeat(batch.id, pa.int64(), positions),
        tables.LANDED_AT: origins.column(_landed_at, _TIMESTAMP, positions),
        tables.INGESTED_AT: _repeat(batch.ingested_at, _TIMESTAMP, positions),
        tables.CONTRACT_VERSION: _repeat(batch.contract.version, pa.string(), positions),
    }
    if origins.envelopes[0].message:
        columns[tables.KEY] = origins.column(_key, pa.binary(), positions)
        columns[tables.HEADERS] = origins.column(_headers, _HEADERS, positions)
    return columns


def _source(envelope: Envelope) -> str:
    return envelope.source


def _landed_at(envelope: Envelope) -> datetime | None:
    return envelope.landed_at


def _key(envelope: Envelope) -> bytes | None:
    return envelope.message.key if envelope.message else None


def _headers(envelope: Envelope) -> list[dict[str, Any]] | None:
    if not envelope.message or not envelope.message.headers:
        return None
    return [{"key": name, "value": value} for name, value in envelope.message.headers]


def _repeat(value: object, kind: pa.DataType, rows: ArrowColumn) -> Any:
    scalar: Any = pa.scalar(value, kind)
    return pa.repeat(scalar, len(rows))
