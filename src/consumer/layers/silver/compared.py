"""The inputs of verdicts: key, place, time and hash of each row of bronze, and of silver's rows with the same keys."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from consumer.iceberg.data_files import field_at
from consumer.iceberg.derivation import Derivation
from consumer.iceberg.marker import MarkerLostError
from consumer.iceberg.memory import MEMORY
from consumer.iceberg.newest import check_shows
from consumer.iceberg.scan import (
    Scan,
    derivation_of,
    derived,
    derived_once,
    of_micro_batches,
    plan,
    read,
    spread,
    whole_files,
)
from consumer.layers.silver.content import content_hashes, keys
from consumer.layers.silver.progress import Range
from consumer.layers.silver.verdicts import COMPARED, COUNTS_AS, EVENT_TIME, IN_SILVER, KEY, Micros
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract, DriftPolicy
from lakeproof.errors import LakeproofError
from lakeproof.tables.evolution import renamed_columns
from lakeproof.tables.names import (
    CONTENT_HASH,
    CONTRACT_VERSION,
    INGESTED_AT,
    LANDED_AT,
    MICRO_BATCH_ID,
    POSITION,
    RESCUED,
    SOURCE,
    silver_query,
    stream_tables,
)

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)

_PROVENANCE = (SOURCE, POSITION, MICRO_BATCH_ID, LANDED_AT, INGESTED_AT, CONTRACT_VERSION)


def bronze_scan(catalog: Catalog, contract: Contract, taken: Range) -> Scan:
    """Plan a scan of the rows of bronze in a range of micro-batches, with the columns that silver has."""
    name = stream_tables(contract.stream).bronze
    table = catalog.load_table(name)
    try:
        check_shows(table, bronze_query(contract.stream), name, taken.end)
    except MarkerLostError as error:  # nothing that a rebuild of silver would help against
        raise LakeproofError(error.message, error.hint) from error
    return plan(table, name, _bronze_columns(table, contract), of_micro_batches(taken.start, taken.end))


def announce(catalog: Catalog, contract: Contract, kept: str | None) -> None:
    """Announce what silver derives from the rows of bronze and of the table `kept`, before the first micro-batch.

    A table that does not exist yet is left out: the first micro-batch that reads it announces it.
    """
    derive, kind = _comparing(contract)
    columns_of = {stream_tables(contract.stream).bronze: _bronze_columns}
    if kept:
        columns_of[kept] = _compared_columns
    for name, columns in columns_of.items():
        with suppress(NoSuchTableError):
            table = catalog.load_table(name)
            MEMORY.want(name, Derivation(columns(table, contract), table.metadata.current_schema_id, kind, derive))


def kept_scan(catalog: Catalog, contract: Contract, name: str, end: int, oldest: Micros | None) -> Scan:
    """Plan a scan of the inputs of verdicts from a silver table's rows of all micro-batches, not before `oldest`.

    `end` is the number of the next micro-batch.
    """
    table = catalog.load_table(name)
    check_shows(table, silver_query(contract.stream), name, end)
    return plan(table, name, _compared_columns(table, contract), within=_since(contract, oldest))


def kept_before(
    spark: SparkSession,
    catalog: Catalog,
    contract: Contract,
    name: str,
    start: int,
    end: int,
    oldest: Micros | None,
) -> pa.Table:
    """Collect the inputs of verdicts from a silver table's rows of some micro-batches, not before `oldest`."""
    table = catalog.load_table(name)
    check_shows(table, silver_query(contract.stream), name, end)
    numbers, columns = of_micro_batches(start, end), _compared_columns(table, contract)
    scan = plan(table, name, columns, numbers, within=_since(contract, oldest))
    return _collected(spark, scan, lambda rows: _live(compared_of(rows, contract), oldest))


def compared(spark: SparkSession, bronze: Scan, parts: Sequence[Scan], contract: Contract) -> list[pa.Table]:
    """Collect the inputs of verdicts on rows of bronze, from the parts of a scan."""
    return derived_once(spark, bronze, parts, derivation_of(bronze, *_comparing(contract)), COMPARED)


def with_keys(spark: SparkSession, kept: Scan, contract: Contract, wanted: Any, oldest: Micros | None) -> pa.Table:
    """Collect the inputs of verdicts from silver's rows with one of the wanted keys; see :func:`as_kept`."""
    fits, rest = whole_files(kept)

    def find(rows: pa.RecordBatch) -> pa.RecordBatch:
        return compared_of(rows.filter(pc.is_in(keys(rows, contract), value_set=wanted)), contract)

    known = pa.concat_tables([COMPARED.empty_table(), *derived(spark, fits, *_comparing(contract))])
    same = known.filter(pc.is_in(known[KEY], value_set=wanted))
    return as_kept(pa.concat_tables([same, _collected(spark, rest, find)]), oldest)


def as_kept(rows: RowsT, oldest: Micros | None) -> RowsT:
    """Return silver's rows whose event time is not before `oldest`, with -1 as the number of their micro-batch."""
    found = _live(rows, oldest)
    number = pa.repeat(pa.scalar(IN_SILVER, pa.int64()), found.num_rows)
    return found.set_column(COMPARED.get_field_index(MICRO_BATCH_ID), COMPARED.field(MICRO_BATCH_ID), number)


def compared_of(rows: pa.RecordBatch, contract: Contract) -> pa.RecordBatch:
    """Return the inputs of verdicts for rows of bronze or silver.

    Rows of silver already have their hash, and do not count for the watermark, which has seen them.
    """
    event_time = _micros(field_at(rows, contract.event_time))
    is_kept = CONTENT_HASH in rows.schema.names
    nothing = pa.nulls(rows.num_rows, pa.int64())
    columns: dict[str, Any] = {
        KEY: keys(rows, contract),
        MICRO_BATCH_ID: rows.column(MICRO_BATCH_ID),
        SOURCE: rows.column(SOURCE),
        POSITION: rows.column(POSITION),
        EVENT_TIME: event_time,
        COUNTS_AS: nothing if is_kept else counts_as(rows, contract),
        CONTENT_HASH: rows.column(CONTENT_HASH) if is_kept else content_hashes(rows, contract),
    }
    arrays = [columns[field.name].cast(field.type) for field in COMPARED]
    return pa.RecordBatch.from_arrays(arrays, schema=COMPARED)


def _comparing(contract: Contract) -> tuple[Callable[[pa.RecordBatch], pa.Table], Hashable]:
    """Return the function that derives the inputs of verdicts from a data file, and what identifies it."""
    return lambda rows: pa.Table.from_batches([compared_of(rows, contract)]), ("compared", contract.digest)


def _collected(spark: SparkSession, scan: Scan, take: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.Table:
    return pa.concat_tables([COMPARED.empty_table(), *spread(spark, scan, _each(take))])


def _each(take: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Callable[[Scan], pa.Table]:
    """Return a function that applies `take` to each batch of a part."""
    return lambda part: pa.Table.from_batches(map(take, read(part)), COMPARED)


def _live(rows: RowsT, oldest: Micros | None) -> RowsT:
    """Return rows whose event time is null or not before the horizon."""
    if oldest is None:
        return rows
    return rows.filter(pc.fill_null(pc.greater_equal(rows.column(EVENT_TIME), oldest), True))


def counts_as(rows: pa.RecordBatch, contract: Contract) -> Any:
    """Return the time that each row of bronze counts as for the watermark; null without event time."""
    event_time = _micros(field_at(rows, contract.event_time))
    earlier = pc.min_element_wise(event_time, _micros(rows.column(INGESTED_AT)))
    return pc.if_else(event_time.is_valid(), earlier, pa.scalar(None, pa.int64()))


def _micros(times: Any) -> Any:
    return times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _bronze_columns(table: Table, contract: Contract) -> dict[str, str]:
    rescued = [RESCUED] if contract.drift is DriftPolicy.RESCUE else []
    columns = _current(table, [field.name for field in contract])
    return columns | {each: each for each in (*rescued, *_PROVENANCE)}


def _compared_columns(table: Table, contract: Contract) -> dict[str, str]:
    top = contract.event_time.partition(".")[0]
    columns = _current(table, [*contract.primary_key, top])
    return columns | {each: each for each in (SOURCE, POSITION, MICRO_BATCH_ID, CONTENT_HASH)}


def _current(table: Table, names: list[str]) -> dict[str, str]:
    """Map the field names of a contract to the columns of a table: a newer contract may have renamed some."""
    renamed = renamed_columns(table.properties)
    return {name: renamed.get(name, name) for name in names}


def _since(contract: Contract, oldest: Micros | None) -> BooleanExpression | None:
    from pyiceberg import expressions

    if oldest is None:
        return None
    compare: Any = expressions  # its type hints do not match the arguments that it takes
    return expressions.Or(compare.GreaterThanOrEqual(contract.event_time, oldest), compare.IsNull(contract.event_time))
