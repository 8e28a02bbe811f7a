"""Read-only access to a catalog.

The embedded catalog is read directly, others with PyIceberg.
"""

from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from lakeproof.addresses import sqlite_path
from lakeproof.catalog import (
    CATALOG,
    catalog_errors,
    embedded_rows,
    metadata_location,
    metadata_text,
    open_catalog,
)
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import S3Settings, Settings
from lakeproof.storage import open_storage
from lakeproof.tables.names import stream_tables
from reader.metadata import TableMetadata, parse_metadata, without_history

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyIceberg

_TABLES = "SELECT * FROM iceberg_tables WHERE catalog_name = ?"
_NAMESPACES = "SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?"

Name = tuple[str, ...]  # levels of a namespace


class Catalog(Protocol):
    """A read-only catalog, opened on first use."""

    def namespaces(self, parent: Name) -> list[Name]:
        """Return the namespaces directly below `parent`, or the top-level ones."""
        ...

    def tables(self, namespace: Name) -> list[str]:
        """Return the names of the tables in a namespace."""
        ...

    def metadata(self, namespace: Name, name: str) -> tuple[str, str] | None:
        """Return location and text of a table's metadata file; None if the table does not exist."""
        ...

    def locations(self) -> list[str]:
        """Return the locations of all tables' metadata files; each commit creates a new one."""
        ...


class Frozen:
    """A catalog that keeps each table's state from the first access."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._found: dict[tuple[Name, str], tuple[str, str] | None] = {}
        self.namespaces = catalog.namespaces
        self.tables = catalog.tables
        self.locations = catalog.locations

    def metadata(self, namespace: Name, name: str) -> tuple[str, str] | None:
        """See the protocol."""
        key = namespace, name
        if key not in self._found:
            self._found.setdefault(key, self._catalog.metadata(namespace, name))
        return self._found[key]


class NewestSnapshots:
    """A catalog that shows only the newest snapshot of each table: an engine reads less metadata."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.namespaces = catalog.namespaces
        self.tables = catalog.tables
        self.locations = catalog.locations

    def metadata(self, namespace: Name, name: str) -> tuple[str, str] | None:
        """See the protocol."""
        found = self._catalog.metadata(namespace, name)
        return (found[0], without_history(found[1])) if found else None


def catalog_of(settings: Settings) -> Catalog:
    """Return the catalog of the settings."""
    file = sqlite_path(settings.catalog.uri) if settings.catalog.kind == "sql" else None
    return EmbeddedCatalog(file, settings.s3) if file else OtherCatalog(settings)


def table_of(catalog: Catalog, name: str) -> TableMetadata | None:
    """Return a table of a catalog; None if it does not exist."""
    *namespace, last = name.split(".")
    found = catalog.metadata(tuple(namespace), last)
    return parse_metadata(found[1]) if found else None


def streams_without_contract(settings: Settings, catalog: Catalog) -> list[str]:
    """Return the streams of the lake whose contract file is missing.

    A stream has a ledger and dead letters. Its other ledgers, such as that of silver, have no dead letters of that
    name; neither have tables of other programs in a namespace of ours.
    """
    with catalog_errors():
        of_streams = set(catalog.tables(("ledger",))) & set(catalog.tables(("dead_letters",)))
    return sorted(of_streams.difference(settings.streams))


def contract_is_missing(stream: str) -> LakeproofError:
    """Return the error for a stream whose contract file is missing."""
    return UsageError(
        f"{stream_tables(stream).ledger} exists, but contracts/{stream}.yaml does not.", "Restore the contract."
    )


class EmbeddedCatalog:
    """A catalog in SQLite."""

    def __init__(self, file: Path, s3: S3Settings) -> None:
        self._file = file
        self._s3 = s3

    def namespaces(self, parent: Name) -> list[Name]:
        """See the protocol."""
        found = {row["table_namespace"] for row in self._rows(_TABLES)}
        found |= {row["namespace"] for row in self._rows(_NAMESPACES)}
        depth = len(parent) + 1
        names = {tuple(text.split("."))[:depth] for text in found}
        return sorted(name for name in names if len(name) == depth and name[:-1] == parent)

    def tables(self, namespace: Name) -> list[str]:
        """See the protocol."""
        return [row["table_name"] for row in self._tables(namespace)]

    def metadata(self, namespace: Name, name: str) -> tuple[str, str] | None:
        """See the protocol."""
        for row in self._tables(namespace):
            if row["table_name"] == name:
                location = str(row["metadata_location"])
                return location, metadata_text(_content(location, self._s3))
        return None

    def locations(self) -> list[str]:
        """See the protocol."""
        return sorted(str(row["metadata_location"]) for row in self._rows(_TABLES))

    def _tables(self, namespace: Name) -> list[dict[str, Any]]:
        rows = self._rows(f"{_TABLES} AND table_namespace = ?", ".".join(namespace))
        # Catalogs of older versions lack this column, and have no views.
        return [row for row in rows if row.get("iceberg_type") in (None, "TABLE")]

    def _rows(self, query: str, *values: str) -> list[dict[str, Any]]:
        return embedded_rows(self._file, query, CATALOG, *values)


class OtherCatalog:
    """Any other catalog, read with PyIceberg."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = Lock()

    def namespaces(self, parent: Name) -> list[Name]:
        """See the protocol."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            return self._catalog.list_namespaces(parent)
        except NoSuchNamespaceError:
            return []

    def tables(self, namespace: Name) -> list[str]:
        """See the protocol."""
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            return [name for *_, name in self._catalog.list_tables(namespace)]
        except NoSuchNamespaceError:
            return []

    def metadata(self, namespace: Name, name: str) -> tuple[str, str] | None:
        """See the protocol."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if hasattr(self._catalog, "engine"):  # PyIceberg would parse the file
            location = metadata_location(self._catalog, ".".join((*namespace, name)))
            return (location, metadata_text(_content(location, self._settings.s3))) if location else None
        try:
            table = self._catalog.load_table((*namespace, name))
        except (NoSuchNamespaceError, NoSuchTableError):
            return None
        # Read the file: PyIceberg cannot serialize format version 3, nor fields that it does not support.
        with table.io.new_input(table.metadata_location).open() as stream:
            return table.metadata_location, metadata_text(stream.read())

    def locations(self) -> list[str]:
        """See the protocol."""
        catalog = self._catalog
        names = [name for space in catalog.list_namespaces() for name in catalog.list_tables(space)]
        return sorted(catalog.load_table(name).metadata_location for name in names)

    @property
    def _catalog(self) -> "PyIceberg":
        with self._opening:
            return self._opened

    @cached_property
    def _opened(self) -> "PyIceberg":
        return open_catalog(self._settings)


def _content(location: str, s3: S3Settings) -> bytes:
    scheme, separator, path = location.partition(":")
    if not separator or scheme == "file":
        return Path((path or scheme).removeprefix("//")).read_bytes()
    bucket, _, _ = path.removeprefix("//").partition("/")
    return open_storage(f"{scheme}://{bucket}", s3).read(location)
