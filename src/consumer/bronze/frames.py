"""The three frames that a judged micro-batch becomes: bronze rows, dead letters and ledger rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.sources.landing_log import LandedFile
from lakeproof import tables
from lakeproof.contracts import Contract

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_LEDGER_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("stream", pa.string()),
    ("source", pa.string()),
    ("size", pa.int64()),
    ("etag", pa.string()),
    ("micro_batch_id", pa.int64()),
    ("checkpoint_id", pa.string()),
    ("units", pa.int64()),
    ("bronze", pa.int64()),
    ("dead_letters", pa.map_(pa.string(), pa.int64())),
    ("landed_at", _TIMESTAMP),
    (tables.INGESTED_AT, _TIMESTAMP),
    (tables.CONTRACT_VERSION, pa.string()),
]

Outcome = tuple[str, str | None]
"""A source, and the set of reasons of some of its units; None for those that went to bronze."""


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


def bronze_rows(judged: DataFrame, batch: MicroBatch) -> DataFrame:
    """Columns of ``bronze.<stream>`` from the judged rows that have no reason against them."""
    return judged.where(F.col(tables.REASONS).isNull()).select(
        *(F.col(field.name) for field in batch.contract),
        tables.SOURCE,
        tables.POSITION,
        *_of(batch),
    )


def dead_letter_rows(judged: DataFrame, batch: MicroBatch) -> DataFrame:
    """Columns of ``dead_letters.<stream>`` from the judged rows that have one."""
    return judged.where(F.col(tables.REASONS).isNotNull()).select(
        tables.REASONS,
        tables.RAW,
        tables.SOURCE,
        tables.POSITION,
        *_of(batch),
        F.lit(1).alias(tables.ATTEMPT),
    )


def count_outcomes(judged: DataFrame) -> dict[Outcome, int]:
    """Count the units of each source by their set of reasons."""
    codes = F.array_sort(F.array_distinct(F.transform(tables.REASONS, lambda reason: reason["code"])))
    counted = judged.groupBy(tables.SOURCE, F.array_join(codes, "+").alias(tables.REASONS)).count().collect()
    return {(row[tables.SOURCE], row[tables.REASONS]): row["count"] for row in counted}


def ledger_rows(
    spark: SparkSession, files: Iterable[LandedFile], outcomes: Mapping[Outcome, int], batch: MicroBatch
) -> DataFrame:
    """Rows of ``ops.ledger``: one per source, also for a source without units."""
    by_source: dict[str, dict[str | None, int]] = {}
    for (source, reasons), count in outcomes.items():
        by_source.setdefault(source, {})[reasons] = count
    rows = []
    for file in files:
        counts = by_source.get(file.uri, {})
        rows.append(
            {
                "stream": batch.contract.stream,
                "source": file.uri,
                "size": file.size,
                "etag": file.etag,
                "micro_batch_id": batch.id,
                "checkpoint_id": batch.checkpoint_id,
                "units": sum(counts.values()),
                "bronze": counts.get(None, 0),
                "dead_letters": sorted((key, count) for key, count in counts.items() if key is not None),
                "landed_at": file.landed_at,
                tables.INGESTED_AT: batch.ingested_at,
                tables.CONTRACT_VERSION: batch.contract.version,
            }
        )
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=pa.schema(_LEDGER_COLUMNS))).coalesce(1)


def _of(batch: MicroBatch) -> list[Column]:
    return [
        F.lit(batch.id).cast("long").alias(tables.MICRO_BATCH_ID),
        F.col(tables.LANDED_AT),
        F.lit(batch.ingested_at).alias(tables.INGESTED_AT),
        F.lit(batch.contract.version).alias(tables.CONTRACT_VERSION),
    ]
