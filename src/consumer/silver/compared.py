"""What verdicts depend on: key, place, time and hash of each row of bronze, and of silver's rows with their keys."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from consumer.silver.verdicts import COMPARED, COUNTS_AS, EVENT_TIME, IN_SILVER, KEY, Micros
from lakeproof.contracts import Contract
from lakeproof.tables.names import CONTENT_HASH, INGESTED_AT, MICRO_BATCH_ID, POSITION, SOURCE


def compared(rows: DataFrame, kept: DataFrame | None, contract: Contract, oldest: Micros | None) -> pa.Table:
    """Collect what verdicts depend on.

    Parameters
    ----------
    rows
        Rows of bronze with their :func:`content_hash`.
    kept
        The silver table, as it was before these rows; None while it is empty.
    contract
        The contract that decides.
    oldest
        The horizon of the first of their micro-batches.

    Returns
    -------
    pyarrow.Table
        A row of :data:`consumer.silver.verdicts.COMPARED` for each row; silver's rows have the number -1.
    """
    event_time = F.col(contract.event_time)
    # Of a null and a time, Spark's least is the time.
    counts_as = F.when(event_time.isNotNull(), F.least(event_time, F.col(INGESTED_AT)))
    found = _narrow(rows, contract, F.col(MICRO_BATCH_ID), F.unix_micros(counts_as))
    if kept is not None:
        keys = list(contract.primary_key)
        # Broadcast: else all of silver would be shuffled for each micro-batch.
        same_key = _within(kept, contract, oldest).join(F.broadcast(rows.select(*keys)), keys, "left_semi")
        number, nothing = F.lit(IN_SILVER).cast("long"), F.lit(None).cast("long")
        found = found.unionAll(_narrow(same_key, contract, number, nothing))
    return found.toArrow().cast(COMPARED)


def kept_before(kept: DataFrame, contract: Contract, start: int, end: int, oldest: Micros | None) -> pa.Table:
    """Collect the same of silver's rows from some micro-batches whose event time is not before `oldest`."""
    number = F.col(MICRO_BATCH_ID)
    rows = _within(kept.where((number >= start) & (number < end)), contract, oldest)
    return _narrow(rows, contract, number, F.lit(None).cast("long")).toArrow().cast(COMPARED)


def content_hash(rows: DataFrame, contract: Contract) -> Column:
    """MD5 of a row's content: the contract's fields that are not null, as JSON, whatever the order within maps.

    A contract can rename fields and list them in another order. That changes no content, and neither does what is
    derived: a copy of a record is ingested at another time.
    """
    fields = sorted((field for field in contract if not field.derived), key=lambda field: field.first_name)
    first_names = {field.first_name: field.name for field in fields}
    return F.unhex(F.md5(_json(rows, first_names)))


def at(micros: Micros | None) -> Column:
    """A time as Spark has it."""
    return F.timestamp_micros(F.lit(micros).cast("long"))


def _within(kept: DataFrame, contract: Contract, oldest: Micros | None) -> DataFrame:
    event_time = F.col(contract.event_time)
    return kept if oldest is None else kept.where((event_time >= at(oldest)) | event_time.isNull())


def _narrow(rows: DataFrame, contract: Contract, number: Column, counts_as: Column) -> DataFrame:
    return rows.select(
        _json(rows, {name: name for name in contract.primary_key}).alias(KEY),
        number.alias(MICRO_BATCH_ID),
        F.col(SOURCE),
        F.col(POSITION),
        F.unix_micros(contract.event_time).alias(EVENT_TIME),
        counts_as.alias(COUNTS_AS),
        F.col(CONTENT_HASH),
    )


def _json(rows: DataFrame, columns: Mapping[str, str]) -> Column:
    """Some columns as text, which is the same if they are equal: by the names that they have in the text."""
    fields = [_comparable(F.col(name), rows.schema[name].dataType).alias(key) for key, name in columns.items()]
    return F.to_json(F.struct(*fields), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"})


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
