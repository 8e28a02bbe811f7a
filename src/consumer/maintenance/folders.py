"""Folders of tables: a file of one table is no orphan of another, and folders left by rebuilds can be removed."""

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from posixpath import normpath
from urllib.parse import quote, unquote

import structlog
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable, Table
from sqlalchemy import text

from consumer.iceberg.rewrite import BRANCH
from lakeproof.catalog import CATALOG, database_of, pyiceberg_properties
from lakeproof.errors import UnavailableError
from lakeproof.holds import Reference, named, references
from lakeproof.references import Metadata, parsed
from lakeproof.settings import Settings
from lakeproof.storage import StoredFile, open_storage
from lakeproof.storage.errors import FileAbsentError
from lakeproof.storage.local import local_path
from lakeproof.storage.s3 import remove_prefix
from lakeproof.tables.names import REBUILDING, REPLACED

log = structlog.get_logger()

Folders = Mapping[str, list[str] | None]
"""Folders with files of each table, its own folder first; empty if it was dropped, None if it cannot be read."""

OF_NO_TABLE = "no table of this catalog uses it. If it is of no other catalog, remove it."

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*")
_OTHERS = """
SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables
WHERE catalog_name <> :name AND metadata_location IS NOT NULL
"""


def folders_of(settings: Settings, catalog: Catalog) -> Folders:
    """Return the folders of all tables of a catalog, and of other catalogs in the same database."""
    found = {}
    for namespace in _namespaces(catalog):
        for identifier in catalog.list_tables(namespace):
            found[".".join(identifier)] = _folders(partial(catalog.load_table, identifier))
    if hasattr(catalog, "engine"):
        properties = pyiceberg_properties(settings)
        with database_of(catalog).connect() as connection:
            for other, namespace, name, at in connection.execute(text(_OTHERS), {"name": CATALOG}):
                load = partial(StaticTable.from_metadata, at, properties)
                found[f"{namespace}.{name} of the catalog {other}"] = _folders(load)
    return found


def _namespaces(catalog: Catalog, within: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield all namespaces, including nested ones."""
    for namespace in catalog.list_namespaces(within):
        if len(namespace) > len(within):
            yield namespace
            yield from _namespaces(catalog, namespace)


def _folders(load: Callable[[], Table]) -> list[str] | None:
    try:
        table = load()
    except NoSuchTableError:
        return []
    except Exception:  # noqa: BLE001 - whatever PyIceberg raises for a table of any writer
        return None
    others = (table.properties.get(f"write.{part}.path") for part in ("data", "metadata"))
    return [_plain(each) for each in (table.location(), *others) if each]


def _plain(place: str) -> str:
    # `file:/a`, `file:///a` and `/a` are the same folder. A name may have `#` or `?`, so this is no URL to split.
    path = _SCHEME.sub("", place)
    return f"{normpath(f'/{path}')}/"


def sharing(folders: Folders) -> Callable[[str], list[str]]:
    """Return a function that finds the tables with files in the folder of another table.

    A renamed table keeps its folder, and the next table with the old name gets the same folder. A table that cannot be
    read may have files anywhere.
    """

    def with_files_in(name: str) -> list[str]:
        own, *_ = folders.get(name) or [""]
        others = {other: found for other, found in folders.items() if other != name and found != []}
        return sorted(
            other for other, found in others.items() if found is None or any(each.startswith(own) for each in found)
        )

    return with_files_in


def remove_replaced(settings: Settings, folders: Folders, older_than: datetime, *, dry_run: bool) -> list[str]:
    """Remove the folders of tables that a rebuild has replaced; return their URIs.

    A folder is removed if it is in the warehouse, no table of a catalog has files in it, its newest metadata file says
    that the table was replaced and has no tags, and nothing in it is younger than `older_than`. With a REST catalog,
    nothing is removed: only the catalog knows its warehouse.
    """
    if settings.catalog.kind != "sql" or None in folders.values():
        return []
    used = {_resolved(each) for found in folders.values() for each in found or ()}
    removed = []
    for uri, files in sorted(_folders_of_warehouse(settings).items()):
        place = _resolved(uri)
        in_use = any(each.startswith(place) or place.startswith(each) for each in used)
        if in_use or any(file.modified_at >= older_than for file in files) or not _is_left(settings, files):
            continue
        if not dry_run:
            try:
                remove_folder(f"{uri}/data", settings)
                remove_folder(uri, settings)  # with the note of the replacement: what failed or was killed is repeated
            except UnavailableError as error:
                log.warning("folder of a replaced table not removed", folder=uri, problem=error.message)
                continue
        removed.append(uri)
    return removed


def abandoned(
    settings: Settings, folders: Folders, locations: Mapping[str, str], replaced: Iterable[str] = ()
) -> list[str]:
    """Return the folders of replaced tables: beside the current folders, with their names, and used by no table.

    `locations` are the current folders by name of the table; `replaced` are folders that tables had before.
    """
    found = {uri for uri in map(_listed, replaced) if any(open_storage(uri, settings.s3).list())}
    for name, location in locations.items():
        own = name.partition(".")[2]
        for uri, _ in _beside(settings, location):
            folder = uri.rpartition("/")[2]
            if folder == own or folder.startswith(own + REBUILDING):
                found.add(uri)
    return _unused(folders, found)


def unrecognized(settings: Settings, folders: Folders, locations: Mapping[str, str]) -> list[str]:
    """Return the folders of tables that no table uses, where a server does not name folders after tables.

    They are beside the current folders, `locations` by name of the table, and may belong to another catalog.
    """
    found: set[str] = set()
    for location in {each for name, each in locations.items() if not is_named(name, each)}:
        found |= {uri for uri, file in _beside(settings, location) if file.uri.endswith(".metadata.json")}
    return _unused(folders, found)


def is_named(table: str, location: str) -> bool:
    """Return whether the folder of a table begins with its name."""
    return location.rstrip("/").rpartition("/")[2].startswith(table.partition(".")[2])


def _beside(settings: Settings, location: str) -> Iterator[tuple[str, StoredFile]]:
    """Yield the files in a table's folder and those beside it, with the URI of the folder; none for a whole bucket."""
    parent = location.rstrip("/").rpartition("/")[0]
    if parent.endswith(":/"):
        return
    root = _listed(parent)
    for file in open_storage(parent, settings.s3).list():
        folder, _, inner = file.uri.removeprefix(f"{root}/").partition("/")
        if inner and file.uri.startswith(f"{root}/"):
            yield f"{root}/{folder}", file


def _listed(uri: str) -> str:
    """Return the address of a folder as in the names of listed files, with links resolved."""
    return local_path(uri).resolve().as_uri() if uri.startswith("file:") else uri.rstrip("/")


def _unused(folders: Folders, found: Iterable[str]) -> list[str]:
    """Return those folders that no table uses; none if a table cannot be read."""
    if None in folders.values():
        return []
    used = {_resolved(each) for own in folders.values() for each in own or ()}
    places = {uri: _resolved(uri) for uri in found}
    return sorted(
        uri
        for uri, place in places.items()
        if not any(place.startswith(each) or each.startswith(place) for each in used)
    )


def orphans(settings: Settings, table: Table) -> list[str]:
    """Return files in a table's folder that no snapshot needs, of any age: for when nobody writes to the table."""
    metadata = table.metadata
    used = {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    used |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
    for snapshot in metadata.snapshots:
        used.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in used:
                used.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                used |= {entry.data_file.file_path for entry in entries}
    places = {_file(each) for each in used}
    storage = open_storage(table.location(), settings.s3)
    return [
        file.uri for file in storage.list() if _file(unquote(file.uri)) not in places and _file(file.uri) not in places
    ]


def _file(place: str) -> str:
    plain = _plain(place).rstrip("/")
    return os.path.realpath(plain) if not place.startswith("s3") else plain


def _resolved(place: str) -> str:
    plain = _plain(place)
    return plain if place.startswith("s3") else f"{os.path.realpath(plain)}/"


def _folders_of_warehouse(settings: Settings) -> Mapping[str, list[StoredFile]]:
    """Return the files of each table folder, `WAREHOUSE/NAMESPACE/TABLE`."""
    warehouse = settings.catalog.warehouse_uri
    storage = open_storage(warehouse, settings.s3)
    found: dict[str, list[StoredFile]] = defaultdict(list)
    # In the names of listed files, links are resolved.
    root = local_path(warehouse).resolve().as_uri() if warehouse.startswith("file:") else warehouse
    for file in storage.list():
        namespace, _, rest = file.uri.removeprefix(f"{root}/").partition("/")
        table, _, inner = rest.partition("/")
        if inner and file.uri.startswith(f"{root}/"):
            found[f"{root}/{namespace}/{table}"].append(file)
    return found


def _is_left(settings: Settings, files: list[StoredFile]) -> bool:
    """Return whether a rebuild has replaced the table of a folder, and no registered reader or backup needs it."""
    found = _newest_metadata(settings, files)
    return REPLACED in found.get("properties", {}) and all(each.has_passed for each in references(found))


def why_left(settings: Settings, uri: str) -> str | None:
    """Return why an abandoned folder cannot be removed at once; None if it can."""
    found = _newest_metadata(settings, list(open_storage(uri, settings.s3).list()))
    # A reader's hold ends with its table, but a backup would lose files that it can restore.
    if kept := [each for each in references(found) if not each.is_hold and not each.has_passed]:
        return f"kept by {', '.join(named(kept))}. Run this again then."
    # With a REST catalog, only the catalog could note that. Another catalog may have tables in the same warehouse.
    is_ours = REPLACED in found.get("properties", {}) or REBUILDING in uri
    if settings.catalog.kind == "sql" and not is_ours:
        return OF_NO_TABLE
    return None


def promised(settings: Settings, metadata: Metadata) -> list[str]:
    """Return what keeps files of dropped tables in the folder of a table, given its metadata.

    A table that is created again gets the folder of the dropped one. A reader's hold ends with its table, but its tags
    and branches, as of backups, can be restored.
    """
    location = metadata["location"]
    is_local = location.startswith(("file:", "/"))
    if not is_local and not location.startswith("s3"):
        return []
    # Iceberg does not encode addresses, and Spark may leave out the scheme.
    folder = f"{_plain(location)}metadata"
    storage = open_storage(f"file://{quote(folder)}" if is_local else f"s3:/{folder}", settings.s3)
    files = [file for file in storage.list() if file.uri.endswith(".metadata.json")]
    seen, known = {metadata["table-uuid"]}, {_file(each["metadata-file"]) for each in metadata.get("metadata-log", ())}
    kept = []
    for file in sorted(files, key=lambda file: (file.modified_at, file.uri), reverse=True):
        if _file(unquote(file.uri)) in known or _file(file.uri) in known:
            continue
        try:
            found = parsed(storage.read(file.uri))
        except (ValueError, FileAbsentError):  # half written, or removed meanwhile by a commit
            continue
        known |= {_file(each["metadata-file"]) for each in found.get("metadata-log", ())}
        if found.get("table-uuid") not in seen:
            seen.add(found.get("table-uuid"))
            kept += [each for each in references(found) if not (each.is_hold or each.has_passed or _is_ours(each))]
    return named(kept)


def _is_ours(reference: Reference) -> bool:
    """Return whether a reference is the branch of a maintenance that was killed."""
    return reference.is_branch and reference.name.startswith(BRANCH)


def _newest_metadata(settings: Settings, files: list[StoredFile]) -> Metadata:
    metadata = [file for file in files if file.uri.endswith(".metadata.json")]
    if not metadata:
        return {}
    newest = max(metadata, key=lambda file: (file.modified_at, file.uri))
    try:
        return parsed(open_storage(newest.uri, settings.s3).read(newest.uri))
    except ValueError:
        return {}


def remove_folder(uri: str, settings: Settings) -> None:
    """Remove a folder with all files in it."""
    if uri.startswith("file:"):
        remove_local(local_path(uri))
    else:
        remove_prefix(uri, settings.s3)


def remove_local(folder: Path) -> None:
    """Remove a local folder, which may be missing."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        if folder.exists():
            raise UnavailableError(
                f"Cannot remove {folder}: {error.strerror or error}.", "Check its permissions."
            ) from error
