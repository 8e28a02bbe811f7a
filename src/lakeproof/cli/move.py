"""The command `lakeproof move`."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer

from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings, load_settings
from lakeproof.wording import count_of

if TYPE_CHECKING:
    from lakeproof.move.outside import Entry


def move() -> None:
    """Copy the tables of the catalog into LAKE_WAREHOUSE, and point the catalog to the copies.

    Use this after the folder of a lake was copied or moved, or to move tables to another folder or bucket. Files that
    are already in LAKE_WAREHOUSE are not copied again, and nothing is removed. Stop the consumer first.
    """
    from lakeproof.catalog import catalog_errors
    from lakeproof.move.outside import tables_outside
    from lakeproof.state.lease import lease

    settings = load_settings()
    if settings.catalog.kind != "sql":
        raise UsageError(
            "The server of a REST catalog decides where tables are.", "Use its own tools to move or register tables."
        )
    entries = tables_outside(settings)
    with ExitStack() as leases, catalog_errors():
        for name in _leases(entries):
            leases.enter_context(lease(settings.state.database, name))
        _move(settings, entries)
        for line in _landing_zones(settings):
            typer.echo(line)
    typer.echo(
        f"{count_of(len(entries), 'table')} moved to {settings.catalog.warehouse_uri}."
        if entries
        else "All tables are in LAKE_WAREHOUSE."
    )


def _move(settings: Settings, entries: "list[Entry]") -> None:
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import update

    from lakeproof.catalog import CATALOG, database_of, open_catalog, pyiceberg_properties
    from lakeproof.file_io import PlainFileIO
    from lakeproof.move.rewrite import TableMove

    io, moved = PlainFileIO(pyiceberg_properties(settings)), {}
    for entry in entries:
        name = f"{entry.namespace}.{entry.name}"
        place = "/".join([settings.catalog.warehouse_uri, *entry.location.rsplit("/", 2)[1:]])
        moved[entry] = TableMove(io, name, entry.location, place).metadata(entry.metadata)
    table = IcebergTables
    with database_of(open_catalog(settings)).begin() as connection:  # all of them, or none
        for entry, metadata in moved.items():
            mine = (
                table.catalog_name == CATALOG,
                table.table_namespace == entry.namespace,
                table.table_name == entry.name,
                table.metadata_location == entry.metadata,
            )
            changes = {"metadata_location": metadata, "previous_metadata_location": None}
            if connection.execute(update(table).where(*mine).values(changes)).rowcount != 1:
                raise LakeproofError(
                    f"{entry.namespace}.{entry.name} was changed while it was moved.",
                    "Nothing was moved. Stop the program that writes to it, and run `lakeproof move` again.",
                )


def _leases(entries: "list[Entry]") -> list[str]:
    """Names of the leases of all queries that may write to the tables."""
    from lakeproof.state.lease import gold_lease, silver_lease

    streams = [entry.name for entry in entries if entry.namespace == "bronze"]
    products = [entry.name for entry in entries if entry.namespace == "gold"]
    return [*streams, *map(silver_lease, streams), *map(gold_lease, products)]


def _landing_zones(settings: Settings) -> list[str]:
    """Record the new landing zones of the streams; return what happened to each, and to the archives."""
    from lakeproof.catalog import open_catalog
    from lakeproof.landing.root import archives_of, check_same_files, record_landing_root
    from lakeproof.landing.zone import landing_zone
    from lakeproof.tables.names import LANDING_ROOT, stream_tables

    catalog, done = open_catalog(settings), []
    for _, stream in catalog.list_tables("ledger") if catalog.namespace_exists("ledger") else ():
        ledger = catalog.load_table(stream_tables(stream).ledger).properties
        recorded, zone = ledger.get(LANDING_ROOT), landing_zone(settings, stream, ledger)
        done += [
            f"The archive of {stream} stays {root}. An erasure in either lake removes files there."
            for root in archives_of(ledger)
        ]
        if recorded in (None, zone.root):
            continue
        try:
            check_same_files(catalog, stream, zone)
        except UsageError:
            done.append(f"The landing zone of {stream} stays {recorded}. `lakeproof landing move {stream}` changes it.")
        else:
            record_landing_root(catalog, stream, zone)
            done.append(f"The landing zone of {stream} is now {zone.root}.")
    return done
