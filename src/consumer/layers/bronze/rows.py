"""Rows of bronze and of the dead letters, from judged units."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumer.layers.bronze.derived import derived_columns
from consumer.layers.bronze.ledger import MicroBatch
from consumer.sources.envelope import Envelope, Messages, header_column
from lakeproof.judge.judged import ArrowColumn, Bad, Good
from lakeproof.kafka.offsets import OFFSET_DIGITS
from lakeproof.tables import names as tables

_TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Origins:
    """Origins of units: one batch, or several that were judged together."""

    parts: Sequence[str]  # the ledger's name for the part of each batch; a single name if all are in the same part
    columns: dict[str, Any]  # columns of provenance, with a row for each batch

    @classmethod
    def of_envelopes(cls, envelopes: Sequence[Envelope]) -> "Origins":
        """Return the origins of units of envelopes, which are all messages or all files."""
        columns: dict[str, Any] = {
            tables.SOURCE: pa.array([each.source for each in envelopes], pa.string()),
            tables.LANDED_AT: pa.array([each.landed_at for each in envelopes], _TIMESTAMP),
        }
        messages = [each.message for each in envelopes if each.message]
        if messages:
            columns[tables.KEY] = pa.array([message.key for message in messages], pa.binary())
            columns[tables.HEADERS] = header_column([message.headers for message in messages])
        return cls([each.part for each in envelopes], columns)

    @classmethod
    def of_messages(cls, messages: Messages) -> "Origins":
        """Return the origins of units of messages."""
        offsets = pa.array(messages.offsets, pa.int64()).cast(pa.string())
        names = pc.utf8_lpad(offsets, OFFSET_DIGITS, "0")
        return cls(
            [messages.part],
            {
                tables.SOURCE: pc.binary_join_element_wise(messages.prefix, names, ""),
                tables.LANDED_AT: pa.array(messages.landed_at, pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP),
                tables.KEY: pa.array(messages.keys, pa.binary()),
                tables.HEADERS: header_column(messages.headers),
            },
        )

    def parts_of(self, of: Any, units: int) -> list[str]:
        """Return the ledger's name for the part of each unit; `of` is each unit's batch, None for a single batch."""
        if of is None or len(self.parts) == 1:
            return [self.parts[0]] * units
        return [self.parts[index] for index in np.asarray(of).tolist()]

    def counts_of(self, of: Any, units: int) -> Counter[str]:
        """Return the number of units of each part; `of` is each unit's batch, None for a single batch."""
        if of is None or len(self.parts) == 1:
            return Counter({self.parts[0]: units})
        found = Counter[str]()
        for part, count in zip(self.parts, np.bincount(of, minlength=len(self.parts)).tolist(), strict=True):
            if count:
                found[part] += count
        return found

    def sums_of(self, of: Any, hashes: Any) -> Counter[str]:
        """Return the sum of the unit hashes of each part; `of` is each unit's batch, None for a single batch."""
        if of is None or len(self.parts) == 1:
            return Counter({self.parts[0]: int(hashes.sum())})
        sums = np.zeros(len(self.parts), np.uint64)
        np.add.at(sums, of, hashes)
        found = Counter[str]()
        for part, value in zip(self.parts, sums.tolist(), strict=True):
            found[part] += value
        return found

    def columns_of(self, of: Any, units: int) -> dict[str, Any]:
        """Return the columns of provenance of units; `of` is each unit's batch, None for a single batch."""
        if of is None:
            return {name: pa.repeat(column[0], units) for name, column in self.columns.items()}
        indexes = pa.array(of, pa.int64())
        return {name: column.take(indexes) for name, column in self.columns.items()}


def bronze_rows(good: Good, origins: dict[str, Any], batch: MicroBatch) -> pa.RecordBatch:
    """Return rows of ``bronze.<stream>``: good records, derived columns, and columns of their origins."""
    columns: dict[str, Any] = dict(zip(good.values.schema.names, good.values.columns, strict=True))
    if good.rescued is not None:
        columns[tables.RESCUED] = good.rescued
    columns |= derived_columns(good.values, origins, batch)
    return pa.RecordBatch.from_pydict(columns | _provenance(origins, batch, good.positions))


def dead_letter_rows(bad: Bad, origins: dict[str, Any], batch: MicroBatch, attempt: int = 1) -> pa.RecordBatch:
    """Return rows of ``dead_letters.<stream>``: bad units, with columns of their origins."""
    columns = {
        tables.REASONS: bad.reasons,
        tables.RAW: bad.raw,
        **_provenance(origins, batch, bad.positions),
        tables.ATTEMPT: _repeat(attempt, pa.int32(), bad.positions),
    }
    return pa.RecordBatch.from_pydict(columns)


def drift_sets(good: Good) -> list[list[str]]:
    """Return, for each record, the sets of reasons of its rescued or discarded values, as the ledger writes them."""
    if good.drift is None or good.drift.null_count == len(good):
        return []
    return [codes or [] for codes in good.drift.to_pylist()]


def _provenance(origins: dict[str, Any], batch: MicroBatch, positions: ArrowColumn) -> dict[str, Any]:
    return origins | {
        tables.POSITION: positions,
        tables.MICRO_BATCH_ID: _repeat(batch.id, pa.int64(), positions),
        tables.INGESTED_AT: _repeat(batch.ingested_at, _TIMESTAMP, positions),
        tables.CONTRACT_VERSION: _repeat(batch.contract.version, pa.string(), positions),
    }


def _repeat(value: object, kind: pa.DataType, rows: ArrowColumn) -> Any:
    scalar: Any = pa.scalar(value, kind)
    return pa.repeat(scalar, len(rows))
