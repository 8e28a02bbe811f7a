"""Find tables outside of the warehouse: a copied catalog still refers to the files of the original.

Writing to a table outside would write into the original lake, whose maintenance removes unknown files.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass

import structlog

from lakeproof.addresses import sqlite_path
from lakeproof.catalog import CATALOG, catalog_errors, database_of, embedded_rows, open_catalog
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.settings import Settings
from lakeproof.tables.names import NAMESPACES

_TABLES = """
SELECT table_namespace, table_name, metadata_location FROM iceberg_tables
WHERE catalog_name = ? AND metadata_location IS NOT NULL
"""
_HINT = "`lakeproof move` copies them into LAKE_WAREHOUSE. If the lake was not copied or moved, correct LAKE_WAREHOUSE."


@dataclass(frozen=True)
class Entry:
    """A table and the URI of its metadata."""

    namespace: str
    name: str
    metadata: str

    @property
    def location(self) -> str:
        """Folder of the table."""
        return plain(self.metadata).rsplit("/", 2)[0]


def check_tables(settings: Settings) -> None:
    """Refuse to run if a table is outside of the warehouse."""
    if found := tables_outside(settings):
        raise UsageError(_message(settings, found), _HINT)


def warn_of_tables(settings: Settings) -> None:
    """Warn if a table is outside of the warehouse."""
    with suppress(UnavailableError):  # the command reports this itself
        if found := tables_outside(settings):
            structlog.get_logger().warning(_message(settings, found), hint=_HINT)


def tables_outside(settings: Settings) -> list[Entry]:
    """Return tables outside of the warehouse; none for REST catalogs, since only the server knows the warehouse."""
    if settings.catalog.kind != "sql":
        return []
    with catalog_errors():
        if database := sqlite_path(settings.catalog.uri):
            rows = [tuple(row.values()) for row in embedded_rows(database, _TABLES, CATALOG)]
        else:
            rows = _rows(settings)
    entries = [Entry(namespace, name, at) for namespace, name, at in sorted(rows) if namespace in NAMESPACES]
    warehouse = _resolved(settings.catalog.warehouse_uri)
    return [entry for entry in entries if not _resolved(entry.metadata).startswith(f"{warehouse}/")]


def _rows(settings: Settings) -> list[tuple[str, str, str]]:
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select

    columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
    query = select(*columns).where(IcebergTables.catalog_name == CATALOG)
    with database_of(open_catalog(settings)).connect() as connection:
        return [(namespace, name, at) for namespace, name, at in connection.execute(query) if at]


def plain(uri: str) -> str:
    """Normalize the spellings of an address by Iceberg, Hadoop and this project."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^(?:file:)?/+", "file:///", uri))


def _resolved(uri: str) -> str:
    """Return an address with links resolved."""
    scheme, _, path = plain(uri).partition("://")
    return f"{scheme}://{os.path.realpath(path) if scheme == 'file' else path}"


def _message(settings: Settings, found: list[Entry]) -> str:
    first = f"{found[0].namespace}.{found[0].name}"
    others = f" and {len(found) - 1:,} other tables" if len(found) > 1 else ""
    them = f"{first}{others} {'are' if others else 'is'}"
    return f"{them} outside of the warehouse {settings.catalog.warehouse_uri}: {found[0].location}."
