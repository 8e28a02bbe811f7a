"""Rows of the state database, copied between databases of any kind."""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Column, Connection, Engine, Table, select, text

from lakeproof.state.database import transaction
from lakeproof.state.schema import (
    BEGUN,
    BREAKER_TRIPS,
    CONTRACT_TEXTS,
    CURRENT_CONTRACTS,
    FILES,
    GIVEN_UP,
    GIVEN_UP_OFFSETS,
    LOGS,
    PASSED_FILES,
    PROOFS,
    PROVEN_FILES,
    SINK_POSITIONS,
)
from lakeproof.state.sink_positions import NO_MARKER

OF_STREAMS = (LOGS, FILES, PASSED_FILES, GIVEN_UP, CURRENT_CONTRACTS, BEGUN, GIVEN_UP_OFFSETS, BREAKER_TRIPS)
"""Tables whose rows belong to a stream. Leases and errors of queries belong to running programs, and are not copied."""
BOOK = (PROOFS, PROVEN_FILES)
"""The book of proofs is a record of the past: it is restored only if it was lost."""
_AT_ONCE = 10_000


def save_rows(source: Engine, target: Engine, tables: Iterable[Table]) -> None:
    """Copy all rows of tables, as of one instant, into a database where these tables are empty.

    Examples of bad units are left out: the copy is kept for long, and no erasure reaches it.
    """
    is_sqlite = source.dialect.name == "sqlite"
    isolation = "SERIALIZABLE" if is_sqlite else "REPEATABLE READ"
    with source.connect().execution_options(isolation_level=isolation) as reading, transaction(target) as writing:
        if is_sqlite:
            reading.execute(text("BEGIN"))  # Python's driver begins no transaction for a query
        for table in tables:
            _copy(reading, writing, table)


def put_back_rows(source: Engine, target: Engine, kept: Collection[str]) -> None:
    """Replace the rows of all streams, except those of `kept`, in one transaction."""
    with source.connect() as reading, transaction(target) as writing:
        for table in OF_STREAMS:
            _replace(reading, writing, table, table.c.stream, kept)
        if writing.scalar(select(PROOFS.c.number).limit(1)) is None:
            for table in BOOK:
                _copy(reading, writing, table)


def put_back_sinks(source: Engine, target: Engine, kept: Collection[str]) -> None:
    """Replace the positions of all sinks, except those of the tables `kept`; add the texts of contracts.

    A sink that is not in the source keeps its row without a position: an erasure searches all topics of a table.
    """
    sink = SINK_POSITIONS.c.sink
    with source.connect() as reading, transaction(target) as writing:
        others = SINK_POSITIONS.c.table_name.not_in(kept) & sink.not_in(reading.scalars(select(sink)).all())
        later = [dict(row) for row in writing.execute(select(SINK_POSITIONS).where(others)).mappings()]
        _replace(reading, writing, SINK_POSITIONS, SINK_POSITIONS.c.table_name, kept)
        if later:
            writing.execute(SINK_POSITIONS.insert(), [{**row, "marker": NO_MARKER} for row in later])
        known = set(writing.scalars(select(CONTRACT_TEXTS.c.digest)))
        rows = [dict(row) for row in reading.execute(select(CONTRACT_TEXTS)).mappings() if row["digest"] not in known]
        if rows:
            writing.execute(CONTRACT_TEXTS.insert(), rows)


def _replace(reading: Connection, writing: Connection, table: Table, key: Column[Any], kept: Collection[str]) -> None:
    writing.execute(table.delete().where(key.not_in(kept)))
    _copy(reading, writing, table, key, kept)


def _copy(
    reading: Connection, writing: Connection, table: Table, key: Column[Any] | None = None, kept: Collection[str] = ()
) -> None:
    query = select(table) if key is None else select(table).where(key.not_in(kept))
    for rows in reading.execute(query.execution_options(yield_per=_AT_ONCE)).mappings().partitions():
        writing.execute(table.insert(), [_row(table, row) for row in rows])


def _row(table: Table, row: Mapping[Any, Any]) -> dict[str, Any]:
    copied = {str(name): _value(value) for name, value in row.items()}
    if table is BREAKER_TRIPS and "examples" in (found := json.loads(copied["found"])):
        copied["found"] = json.dumps({**found, "examples": []})
    return copied


def _value(value: Any) -> Any:
    """Convert a value for any database: SQLite stores times in UTC without a zone."""
    if not isinstance(value, datetime):
        return value
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
