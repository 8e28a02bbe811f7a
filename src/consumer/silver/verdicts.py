"""What becomes of each row of bronze: kept, duplicate, conflict or late.

The rows of a stream have an order: by micro-batch, then source, then position. The horizon of a micro-batch is the
greatest event time of all micro-batches before it, less the time that the contract declares; event times in the future
of their own micro-batch count as its time, so that one wrong clock does not make everything late. A row is decided by
the rows before it:

- a row with its key was kept, and its event time is not before the horizon: **duplicate**, if the content is the same,
  else **conflict**;
- else its own event time is before the horizon: **late**, since what was kept at that time is no longer looked at;
- else it is **kept**.

So a verdict depends on the rows of bronze and their order alone, not on how many micro-batches are decided at once.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from lakeproof.contracts import Contract
from lakeproof.tables.names import (
    CONTENT_HASH,
    HORIZON,
    INGESTED_AT,
    MICRO_BATCH_ID,
    POSITION,
    SOURCE,
    WINNER_POSITION,
    WINNER_SOURCE,
)

VERDICT = "_verdict"
_AT, _EVENT_TIME, _SEEN, _WINNER = "_at", "_event_time", "_seen", "_winner"
_AGAIN = "again"


class Verdict(StrEnum):
    """What becomes of a row of bronze; the names are columns of the silver ledger."""

    KEPT = "kept"
    DUPLICATE = "duplicates"
    CONFLICT = "conflicts"
    LATE = "late"


Micros = int
"""A time in microseconds since 1970: Python has fewer years, and gets times from Spark in its own zone."""


def watermarks(rows: DataFrame, contract: Contract) -> dict[int, Micros]:
    """The greatest event time of each micro-batch, none later than the micro-batch itself."""
    event_time = F.col(contract.event_time)
    # Of a null and a time, Spark's least is the time.
    newest = F.max(F.when(event_time.isNotNull(), F.least(event_time, F.col(INGESTED_AT))))
    found = rows.groupBy(MICRO_BATCH_ID).agg(F.unix_micros(newest).alias("newest")).collect()
    return {row[MICRO_BATCH_ID]: row.newest for row in found if row.newest is not None}


def _with_horizon(rows: DataFrame, horizons: Mapping[int, Micros | None]) -> DataFrame:
    """Add the horizon of each row's micro-batch; null where there is none."""
    values = set(horizons.values())
    if len(values) == 1:
        return rows.withColumn(HORIZON, _time(values.pop()))
    pairs = [(F.lit(number), _time(value)) for number, value in horizons.items()]
    return rows.withColumn(HORIZON, F.create_map(*(part for pair in pairs for part in pair))[F.col(MICRO_BATCH_ID)])


def _time(micros: Micros | None) -> Column:
    return F.timestamp_micros(F.lit(micros).cast("long"))


def content_hash(rows: DataFrame, contract: Contract) -> Column:
    """MD5 of a row's content: the contract's fields that are not null, as JSON, whatever the order within maps.

    A contract can rename fields and list them in another order. That changes no content.
    """
    fields = [
        _comparable(F.col(field.name), rows.schema[field.name].dataType).alias(field.first_name)
        for field in sorted(contract, key=lambda field: field.first_name)
    ]
    text = F.to_json(F.struct(*fields), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"})
    return F.unhex(F.md5(text))


def _comparable(column: Column, kind: DataType) -> Column:
    """A value, such that equal ones have the same JSON: the entries of maps in order, and no -0.0.

    A float is a double, as it is after its column was widened.
    """
    match kind:
        case DoubleType() | FloatType():
            return column.cast("double") + F.lit(0.0)
        case MapType():
            entries = F.transform(
                F.map_entries(column),
                lambda entry: F.struct(entry["key"], _comparable(entry["value"], kind.valueType).alias("value")),
            )
            return F.array_sort(entries)
        case ArrayType():
            return F.transform(column, lambda item: _comparable(item, kind.elementType))
        case StructType():
            inner = [_comparable(column[field.name], field.dataType).alias(field.name) for field in kind.fields]
            return F.when(column.isNotNull(), F.struct(*inner))
        case _:
            return column


def decided(
    rows: DataFrame, kept: DataFrame, contract: Contract, horizons: Mapping[int, Micros | None]
) -> tuple[DataFrame, list[DataFrame]]:
    """Give each row its verdict.

    Parameters
    ----------
    rows
        Rows of bronze.
    kept
        The silver table, as it was before these rows.
    contract
        The contract that decides.
    horizons
        The horizon of each of their micro-batches.

    Returns
    -------
    tuple
        The rows, with their verdict, their hash, and where it was lost to another row, which one that is; and what was
        cached for it.
    """
    rows = _with_horizon(rows, horizons)
    oldest = horizons[min(horizons)]
    moves = len(set(horizons.values())) > 1  # so that what was kept may be before the horizon of a later one
    keys = list(contract.primary_key)
    names = [f"_key{number}" for number in range(len(keys))]
    named = [F.col(key).alias(name) for key, name in zip(keys, names, strict=True)]
    narrow = rows.select(
        *named,
        F.struct(MICRO_BATCH_ID, SOURCE, POSITION).alias(_AT),
        F.col(contract.event_time).alias(_EVENT_TIME),
        F.col(HORIZON),
        content_hash(rows, contract).alias(CONTENT_HASH),
        F.lit(False).alias(_SEEN),
    )
    counts = narrow.groupBy(*names).count()
    event_time = F.col(contract.event_time)
    within = kept if oldest is None else kept.where((event_time >= _time(oldest)) | event_time.isNull())
    seen = (
        within.select(
            *named,
            F.struct(F.lit(-1).cast("long").alias(MICRO_BATCH_ID), SOURCE, POSITION).alias(_AT),
            event_time.alias(_EVENT_TIME),
            _time(oldest).alias(HORIZON),
            F.col(CONTENT_HASH),
            F.lit(True).alias(_SEEN),
        )
        # Broadcast: else all of silver would be shuffled for each micro-batch.
        .join(F.broadcast(counts.select(*names)), names, "left_semi")
        .persist()
    )
    contested = counts.where("count > 1").select(*names).unionByName(seen.select(*names)).distinct()
    found = _verdicts(narrow.join(F.broadcast(contested), names, "left_semi").unionByName(seen), names).persist()
    cached, lost = [seen, found], [found]
    while moves and not (again := lost[-1].where(F.col(VERDICT) == _AGAIN)).isEmpty():
        # What was kept is before the horizon of these rows: they are decided among themselves.
        lost.append(_verdicts(again.select(*narrow.columns), names).persist())
        cached.append(lost[-1])
    others = reduce(DataFrame.unionByName, lost).where(~F.col(VERDICT).isin(Verdict.KEPT, _AGAIN))
    reasons = others.select(
        F.col(f"{_AT}.{SOURCE}").alias(SOURCE),
        F.col(f"{_AT}.{POSITION}").alias(POSITION),
        F.col(VERDICT).alias("_lost"),
        F.col(f"{_WINNER}.{_AT}.{SOURCE}").alias(WINNER_SOURCE),
        F.col(f"{_WINNER}.{_AT}.{POSITION}").alias(WINNER_POSITION),
    )
    late = F.when(event_time < F.col(HORIZON), Verdict.LATE).otherwise(Verdict.KEPT)
    whole = (
        rows.withColumn(CONTENT_HASH, content_hash(rows, contract))
        .join(reasons, [SOURCE, POSITION], "left")
        .withColumn(VERDICT, F.coalesce("_lost", late))
        .drop("_lost")
    )
    return whole, cached


def _verdicts(rows: DataFrame, keys: list[str]) -> DataFrame:
    """Decide rows that share their keys with others; those of silver come first, and are left out of the result."""
    before = Window.partitionBy(*keys).orderBy(_AT).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    in_time = F.coalesce(F.col(_EVENT_TIME) >= F.col(HORIZON), F.lit(True))
    candidate = F.when(F.col(_SEEN) | in_time, F.struct(_AT, _EVENT_TIME, CONTENT_HASH))
    winner = F.col(_WINNER)
    verdict = (
        F.when(winner.isNull(), Verdict.LATE)
        .when(winner[_AT] == F.col(_AT), Verdict.KEPT)
        .when(winner[_EVENT_TIME] < F.col(HORIZON), _AGAIN)
        .when(winner[CONTENT_HASH] == F.col(CONTENT_HASH), Verdict.DUPLICATE)
        .otherwise(Verdict.CONFLICT)
    )
    return (
        rows.withColumn(_WINNER, F.first(candidate, ignorenulls=True).over(before))
        .where(~F.col(_SEEN))
        .withColumn(VERDICT, verdict)
    )
