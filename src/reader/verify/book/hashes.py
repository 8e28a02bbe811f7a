"""Row counts and hashes of the data files of a table by file and micro-batch, computed by DuckDB."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof.contracts import Field
from lakeproof.tables.expired import Expired
from lakeproof.tables.names import MICRO_BATCH_ID
from reader.connect import Session
from reader.verify.tables.row_hash import row_hash_sql, sum_sql
from reader.views import MEMORY, identifier

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

HASHES = f"{MEMORY}.main.verify_hashes"
"""Totals of the table that was read last: ``location``, ``micro_batch``, ``rows`` and ``hash``."""
_WANTED = f"{MEMORY}.main.verify_wanted_files"


@dataclass(frozen=True)
class Total:
    """The number of rows in a set, and the hash of the set."""

    rows: int = 0
    hash: int = 0

    def __add__(self, other: "Total") -> "Total":
        return Total(self.rows + other.rows, _signed(self.hash + other.hash))


def _signed(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def read_hashes(
    session: Session,
    table: "Table",
    snapshot: "Snapshot",
    locations: Collection[str] | None,
    fields: Iterable[Field],
    column: str = MICRO_BATCH_ID,
) -> None:
    """Read the given data files of a table, or all, into :data:`HASHES`; `column` has the micro-batch of a row."""
    # DuckDB reads a snapshot with the columns that the table had then.
    schema = table.schemas().get(-1 if snapshot.schema_id is None else snapshot.schema_id, table.schema())
    hashed = sum_sql(row_hash_sql(schema, fields, "_rows"))
    with _only(session, locations) as wanted:
        session.fetch(
            f"CREATE OR REPLACE TABLE {HASHES} AS SELECT filename AS location, {identifier(column)} AS micro_batch, "
            f"count(*) AS rows, {hashed} AS hash FROM {_at(table, snapshot)} AS _rows WHERE {wanted} GROUP BY ALL"
        )


def read_times(
    session: Session, table: "Table", snapshot: "Snapshot", locations: Collection[str] | None, column: str
) -> dict[str, tuple[int, int | None, int | None]]:
    """Return rows, first and last time of the given data files, or all, by location; no times if a row has none."""
    moment = f"epoch_us({identifier(column)})"
    with _only(session, locations) as wanted:
        rows = session.fetch(
            f"SELECT filename, count(*), count({moment}), min({moment}), max({moment}) FROM {_at(table, snapshot)} "
            f"WHERE {wanted} GROUP BY ALL"
        )
    return {
        location: (count, low, high) if count == with_time else (count, None, None)
        for location, count, with_time, low, high in rows
    }


@contextmanager
def _only(session: Session, locations: Collection[str] | None) -> Iterator[str]:
    """Yield SQL that is true if a row is in one of the given data files."""
    if locations is None:
        yield "true"
        return
    session.fetch(f"CREATE OR REPLACE TABLE {_WANTED} AS SELECT unnest(?::VARCHAR[]) AS location", [list(locations)])
    try:
        yield f"filename IN (FROM {_WANTED})"
    finally:
        session.fetch(f"DROP TABLE IF EXISTS {_WANTED}")


def _at(table: "Table", snapshot: "Snapshot") -> str:
    """Return SQL of the rows of a snapshot, with the column ``filename``."""
    name = ".".join(map(identifier, table.name()))
    return f"(SELECT *, filename FROM {name} AT (VERSION => {snapshot.snapshot_id}))"


def drop_hashes(session: Session) -> None:
    """Free the memory."""
    session.fetch(f"DROP TABLE IF EXISTS {HASHES}")


def total_of(session: Session, condition: str = "true", of: str = HASHES) -> Total:
    """Return the total of the rows in :data:`HASHES`, or a similar table, that meet a condition."""
    ((rows, found),) = session.fetch(
        f"SELECT coalesce(sum(rows), 0)::BIGINT, {sum_sql('hash')} FROM {of} WHERE {condition}"
    )
    return Total(rows, found)


def totals_by_file(session: Session, condition: str = "true") -> Mapping[str, Total]:
    """Return the totals of the data files whose rows all meet a condition, by location."""
    return {
        location: Total(rows, found)
        for location, rows, found in session.fetch(
            f"SELECT location, sum(rows)::BIGINT, {sum_sql('hash')} FROM {HASHES} GROUP BY location "
            f"HAVING bool_and({condition})"
        )
    }


def other_than_booked(
    session: Session, booked: str, condition: str, expired: Expired | None = None
) -> Sequence[tuple[int, int]]:
    """Return the micro-batches whose hash differs from the ledger, with the number of rows in each.

    `booked` is SQL of the ledger's rows: ``micro_batch`` and ``hash``; micro-batches without a recorded hash are
    skipped. Micro-batches from which rows have `expired` are compared together, as number -1: only the total of the
    expired rows is known.
    """
    number = f"CASE WHEN micro_batch < {expired.before} THEN -1 ELSE micro_batch END" if expired else "micro_batch"
    gone = f" UNION ALL SELECT -1, -{_literal(expired.hash)}" if expired else ""
    return [
        (number, rows)
        for number, rows in session.fetch(
            f"WITH booked AS (SELECT micro_batch, {sum_sql('hash')} AS hash FROM ("
            f"SELECT {number} AS micro_batch, hash FROM ({booked}) WHERE {condition}{gone}) "
            "GROUP BY micro_batch HAVING count(*) = count(hash)), "
            f"held AS (SELECT {number} AS micro_batch, sum(rows)::BIGINT AS rows, {sum_sql('hash')} AS hash "
            f"FROM {HASHES} WHERE {condition} GROUP BY ALL) "
            "SELECT micro_batch, coalesce(held.rows, 0) FROM booked LEFT JOIN held USING (micro_batch) "
            "WHERE coalesce(held.hash, 0) <> booked.hash ORDER BY micro_batch"
        )
    ]


def _literal(value: int) -> str:
    return f"({value})::HUGEINT"
