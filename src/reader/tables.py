"""Facts of tables from their metadata."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import TextIO

from lakeproof.catalog import catalog_errors
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from reader.catalogs import Catalog, catalog_of, table_of
from reader.metadata import Snapshot, TableMetadata
from reader.output import Format, console, print_counts, write_result


@dataclass(frozen=True)
class TableFacts:
    """Facts of a table's current snapshot."""

    name: str
    rows: int
    data_files: int
    bytes: int
    snapshots: int  # snapshots in its metadata
    last_commit: datetime | None  # UTC; None without a snapshot


def list_tables(settings: Settings) -> list[TableFacts]:
    """Return the facts of every table, sorted by name."""
    with catalog_errors():
        facts = [table_facts(name, table) for name, table in _tables(catalog_of(settings))]
    if not facts:
        raise LakeproofError("The lake has no tables yet.", "Run `lakeproof demo`, or the producer and the consumer.")
    return sorted(facts, key=lambda fact: fact.name)


def table_facts(name: str, table: TableMetadata) -> TableFacts:
    """Return the facts of one table."""
    snapshot = table.current_snapshot()
    return TableFacts(
        name=name,
        # Replaced rows are deleted by position.
        rows=_total(snapshot, "total-records") - _total(snapshot, "total-position-deletes"),
        data_files=_total(snapshot, "total-data-files"),
        bytes=_total(snapshot, "total-files-size"),
        snapshots=len(table.snapshots),
        last_commit=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) if snapshot else None,
    )


def write_tables(facts: list[TableFacts], output_format: Format, out: TextIO) -> None:
    """Write `facts` as a table, or in the format of a statement's result."""
    if output_format is Format.TABLE:
        _print(facts)
        return
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            "CREATE TABLE facts "
            "(name VARCHAR, rows BIGINT, data_files BIGINT, bytes BIGINT, snapshots BIGINT, last_commit TIMESTAMPTZ)"
        )
        connection.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?)", [astuple(fact) for fact in facts])
        write_result(connection.table("facts"), output_format, out)


def _print(facts: list[TableFacts]) -> None:
    from rich.filesize import decimal
    from rich.table import Table as RichTable

    grid = RichTable("table")
    for heading in ("rows", "data files", "size", "snapshots", "last commit (UTC)"):
        grid.add_column(heading, justify="right")
    for fact in facts:
        when = f"{fact.last_commit:%Y-%m-%d %H:%M:%S}" if fact.last_commit else "never"
        counts = (f"{fact.rows:,}", f"{fact.data_files:,}", decimal(fact.bytes), f"{fact.snapshots:,}")
        grid.add_row(fact.name, *counts, when)
    print_counts(console(), grid)


def _tables(catalog: Catalog) -> Iterator[tuple[str, TableMetadata]]:
    for namespace in catalog.namespaces(()):
        for last in catalog.tables(namespace):
            name = ".".join((*namespace, last))
            if table := table_of(catalog, name):
                yield name, table


def _total(snapshot: Snapshot | None, key: str) -> int:
    return int(snapshot.summary.get(key, 0)) if snapshot else 0
