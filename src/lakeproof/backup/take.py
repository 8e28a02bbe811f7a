"""Take a backup."""

import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import Engine

from lakeproof.addresses import sqlite_uri
from lakeproof.backup.catalogs import Tables
from lakeproof.backup.manifest import MANIFEST, STATE, Folder, Manifest, SavedTable, digest, now
from lakeproof.catalog import catalog_errors
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.landing.zone import landing_zone, table_zones, zone_at
from lakeproof.move.outside import check_tables
from lakeproof.references import GoneError, Metadata, current, parsed, snapshot_of
from lakeproof.settings import Settings
from lakeproof.state.database import open_database
from lakeproof.state.rows import BOOK, OF_STREAMS, save_rows
from lakeproof.state.schema import CONTRACT_TEXTS, SINK_POSITIONS
from lakeproof.tables.names import MARKER, REBUILDING

_ATTEMPTS = 5


def back_up(settings: Settings, place: Folder, keep: timedelta) -> tuple[Manifest, Folder]:
    """Back up the catalog and the state database while consumers run; return the manifest and its folder.

    Iceberg tags keep the files of the tables for the time `keep`.
    """
    check_tables(settings)  # otherwise, the tags would be in another lake
    _check_place(settings, place)
    with catalog_errors(), local_state() as (path, saved):
        tables, at = Tables(settings), now()
        state = open_database(settings.state.database)
        save_rows(state, saved, [SINK_POSITIONS])
        made = Manifest(
            id=f"{at:%Y-%m-%dT%H-%M-%SZ}-{uuid.uuid4().hex[:4]}",
            taken_at=at,
            kept_until=at + keep,
            version=version("lakeproof"),
            catalog=settings.catalog.kind,
            warehouse=settings.catalog.warehouse_uri,
            tables=[],
        )
        found, contents = _tagged(tables, made)
        if not found:
            raise UsageError("There are no tables to back up.", "Run the consumer first.")
        save_rows(state, saved, [CONTRACT_TEXTS, *OF_STREAMS, *BOOK])
        saved.dispose()
        contents |= {STATE: path.read_bytes(), **_definitions(settings)}
    folder = place.child(made.id)
    for name, content in contents.items():
        folder.storage.write_new(f"{folder.uri}/{name}", content)
    made = replace(made, tables=found, files={name: digest(content) for name, content in contents.items()})
    folder.storage.write_new(f"{folder.uri}/{MANIFEST}", made.as_json().encode())
    return made, folder


def metadata_file(table: str) -> str:
    """Return the name of the copy of a table's metadata."""
    return f"tables/{table}.json"


@contextmanager
def local_state(content: bytes | None = None) -> Iterator[tuple[Path, Engine]]:
    """Open a state database in a temporary file, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="lakeproof-") as folder:
        path = Path(folder) / STATE
        if content is not None:
            path.write_bytes(content)
        engine = open_database(sqlite_uri(path))
        try:
            yield path, engine
        finally:
            engine.dispose()


def _check_place(settings: Settings, place: Folder) -> None:
    """Refuse a place whose files would land as batches, or be removed as orphans of a table."""
    zones = [zone_at(settings.landing.uri, settings.s3), *table_zones(settings)]
    for path in sorted(settings.contracts.glob("*.yaml")):
        with suppress(LakeproofError):  # an unreadable contract does not prevent a backup
            zones.append(landing_zone(settings, path.stem))
    for zone in zones:
        if zone.contains(place.uri):
            raise UsageError(f"{place} is in {zone.root}, which is for other files.", "Use another folder or prefix.")


def _tagged(tables: Tables, made: Manifest) -> tuple[list[SavedTable], dict[str, bytes]]:
    """Return the tables as of one instant, with tags that keep their files, and their metadata."""
    for _ in range(_ATTEMPTS):
        try:
            pointers = {name: at for name, at in tables.pointers().items() if REBUILDING not in name}
            contents = {name: tables.read(at) for name, at in pointers.items()}
            found = [_saved(name, pointers[name], parsed(content)) for name, content in contents.items()]
            for each in found:
                if each.snapshot_id is not None:
                    tables.tag(each, made.tag, int(made.kept_until.timestamp() * 1000))
        except GoneError:  # another tool has expired the snapshot, or dropped the table: read again
            continue
        return found, {metadata_file(name): content for name, content in contents.items()}
    raise UnavailableError(
        "Tables or their snapshots were removed while they were backed up.", "Run it again when nothing removes them."
    )


def _saved(name: str, at: str, metadata: Metadata) -> SavedTable:
    properties: Mapping[str, str] = metadata.get("properties", {})
    markers = {
        key.removeprefix(MARKER): str(parsed(value.encode())["marker"]["end"])
        for key, value in properties.items()
        if key.startswith(MARKER)
    }
    snapshot_id = current(metadata)
    summary: dict[str, str] = (snapshot_of(metadata, snapshot_id) or {}).get("summary", {})
    return SavedTable(name, metadata["table-uuid"], snapshot_id, at, int(summary.get("total-records", 0)), markers)


def _definitions(settings: Settings) -> dict[str, bytes]:
    """Return the files of contracts and data products."""
    folders = {"contracts": settings.contracts, "gold": settings.gold}
    return {
        f"{name}/{path.name}": path.read_bytes()
        for name, folder in folders.items()
        for path in sorted(folder.glob("*.yaml"))
    }
