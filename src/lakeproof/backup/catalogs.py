"""What a catalog has, read at one instant, and changes of tables that are safe beside running consumers.

Of an SQL catalog, all tables are read in one statement and replaced in one transaction. Their metadata is changed as
JSON, since PyIceberg writes no metadata of format 3. Of a REST catalog, the server changes it, one table at a time.
"""

import json
import random
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeproof.catalog import CATALOG, database_of, metadata_text, open_catalog, pyiceberg_properties, table_or_none
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.file_io import PlainFileIO
from lakeproof.settings import Settings
from lakeproof.tables.names import MARKER, NAMESPACES

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from sqlalchemy import ColumnElement

Metadata = dict[str, Any]
_ATTEMPTS = 20
_LONGEST_WAIT = 0.5  # seconds
_LAYERS = {"silver": 2, "bronze": 3}  # after ops and gold
_LOOKS = 200  # at the tables of one query, until two looks in a row find the same


class GoneError(Exception):
    """A table, or its snapshot, was removed since it was looked at."""


@dataclass(frozen=True)
class Replacement:
    """What becomes of a table: the metadata that it has, and that it gets; None where it has none, or is dropped."""

    name: str
    old: str | None
    new: Metadata | None
    keeps_table: bool = False
    """Whether the table is the same one, and has the snapshot."""


class Tables:
    """The tables of a lake, in its catalog."""

    def __init__(self, settings: Settings) -> None:
        self.catalog: Catalog = open_catalog(settings)
        self.io = PlainFileIO(pyiceberg_properties(settings))
        self._is_sql = hasattr(self.catalog, "engine")

    def pointers(self) -> dict[str, str]:
        """Where the metadata of each table is, at one instant."""
        return dict(sorted((_in_database(self.catalog) if self._is_sql else _on_server(self.catalog)).items()))

    def read(self, uri: str) -> bytes:
        """A metadata file; raise GoneError if it was removed."""
        try:
            with self.io.new_input(uri).open() as source:
                return source.read()
        except FileNotFoundError as error:
            raise GoneError(uri) from error

    def metadata(self, name: str) -> tuple[str, Metadata] | None:
        """The metadata of a table and its address; None if there is no such table, or its metadata is lost."""
        if self._is_sql:
            at = _in_database(self.catalog).get(name)
        else:
            table = table_or_none(self.catalog, name)
            at = table.metadata_location if table else None
        try:
            return (at, parsed(self.read(at))) if at else None
        except GoneError:
            return None

    def tag(self, name: str, table_uuid: str, snapshot_id: int, tag: str, kept_until_ms: int) -> None:
        """Tag a snapshot of a table, whatever is committed meanwhile. A lost answer is looked up in the table."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(random.uniform(0, _LONGEST_WAIT))  # noqa: S311 - no secret
            found = self.metadata(name)
            if found is None or found[1]["table-uuid"] != table_uuid:
                raise GoneError(name)
            at, metadata = found
            snapshot = next(
                (each for each in metadata.get("snapshots", ()) if each["snapshot-id"] == snapshot_id), None
            )
            if snapshot is None:
                raise GoneError(name)
            if metadata.get("refs", {}).get(tag, {}).get("snapshot-id") == snapshot_id:
                return
            # Iceberg counts the age of a tag from the snapshot, not from the tag.
            reference = tag_of(snapshot, kept_until_ms)
            if self._is_sql:
                add_reference(metadata, tag, reference)
                _replace_in_database(self.catalog, [(name, at, self.write(at, metadata))])
            else:
                _tag_on_server(self.catalog, name, table_uuid, tag, reference)
        raise UnavailableError(f"Cannot tag {name}: other writers keep changing it.", "Run the backup again.")

    def write(self, before: str, metadata: Metadata) -> str:
        """Write a new metadata file of a table; `before` is the address of an earlier one."""
        number = re.match(r"v?(\d+)", before.rpartition("/")[2])  # v3.metadata.json is of a Hadoop catalog
        name = f"{int(number[1]) + 1 if number else 0:05}-{uuid.uuid4()}.metadata.json"
        metadata["last-updated-ms"] = max(now_ms(), metadata["last-updated-ms"])
        uri = f"{metadata['location'].rstrip('/')}/metadata/{name}"
        with self.io.new_output(uri).create() as target:
            target.write(json.dumps(metadata).encode())
        return uri

    def replace(self, changes: Iterable[Replacement], before: Mapping[str, str]) -> None:
        """Replace the metadata of tables: of an SQL catalog all at once, of a REST catalog one after the other.

        `before` has an earlier address of each, to number the new one.
        """
        changes = list(changes)
        for namespace in {each.name.partition(".")[0] for each in changes if each.new}:
            self.catalog.create_namespace_if_not_exists(namespace)
        if not self._is_sql:
            for each in changes:
                _replace_on_server(self, each, before.get(each.name, ""))
            return
        written = []
        for each in changes:
            newest = max((each.old or "", before.get(each.name, "")), key=lambda uri: uri.rpartition("/")[2])
            written.append((each.name, each.old, self.write(newest, each.new) if each.new else None))
        if not _replace_in_database(self.catalog, written):
            raise LakeproofError(
                "Tables were changed during the restore.", "No table was restored. Stop what writes, and run it again."
            )


def parsed(content: bytes) -> Metadata:
    """Parse a metadata file."""
    found: Metadata = json.loads(metadata_text(content))
    return found


def current(metadata: Metadata) -> int | None:
    """The current snapshot of a table, if any."""
    found = metadata.get("current-snapshot-id")
    return None if found in (None, -1) else int(found)


def tag_of(snapshot: Metadata, kept_until_ms: int) -> Metadata:
    """A tag of a snapshot that lasts until some time."""
    age = max(kept_until_ms - int(snapshot["timestamp-ms"]), 1)
    return {"snapshot-id": snapshot["snapshot-id"], "type": "tag", "max-ref-age-ms": age}


def add_reference(metadata: Metadata, name: str, reference: Metadata) -> None:
    """Add a tag to metadata, which has no references at all if it is of format 1."""
    metadata.setdefault("refs", {})[name] = reference
    if (snapshot_id := current(metadata)) is not None:
        metadata["refs"].setdefault("main", {"snapshot-id": snapshot_id, "type": "branch"})


def _in_database(catalog: "Catalog") -> dict[str, str]:
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select

    columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
    query = select(*columns).where(IcebergTables.catalog_name == CATALOG)
    with database_of(catalog).connect() as connection:
        rows = connection.execute(query).all()
    return {f"{namespace}.{name}": at for namespace, name, at in rows if namespace in NAMESPACES and at}


def _replace_in_database(catalog: "Catalog", changes: list[tuple[str, str | None, str | None]]) -> bool:
    """Replace addresses of metadata, each if it is still the expected one; return whether all of them were."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import delete, insert, update
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError

    def mine(name: str, at: str) -> "list[ColumnElement[bool]]":
        namespace, _, table = name.partition(".")
        return [
            IcebergTables.catalog_name == CATALOG,
            IcebergTables.table_namespace == namespace,
            IcebergTables.table_name == table,
            IcebergTables.metadata_location == at,
        ]

    try:
        with database_of(catalog).begin() as connection:
            for name, old, new in changes:
                if old is None:
                    namespace, _, table = name.partition(".")
                    row = {"catalog_name": CATALOG, "table_namespace": namespace, "table_name": table}
                    connection.execute(insert(IcebergTables).values(**row, metadata_location=new))
                    continue
                values = {"metadata_location": new, "previous_metadata_location": old}
                own = mine(name, old)
                query = update(IcebergTables).where(*own).values(values) if new else delete(IcebergTables).where(*own)
                if connection.execute(query).rowcount != 1:
                    connection.rollback()
                    return False
    except IntegrityError:
        return False
    except SQLAlchemyError:  # perhaps only its answer was lost
        now = _in_database(catalog)
        if any(now.get(name) != new for name, _, new in changes):
            raise
    return True


def _listed(catalog: "Catalog") -> list[str]:
    found = (namespace for namespace in NAMESPACES if catalog.namespace_exists(namespace))
    return sorted(".".join(name) for namespace in found for name in catalog.list_tables(namespace))


def _on_server(catalog: "Catalog") -> dict[str, str]:
    """The tables of a REST catalog, which answers for one table at a time.

    Those of one query are looked at until two looks in a row find the same: at the end of the first one, all were so.
    What follows is looked at before what it follows, so that no table is ahead of one that it was filled from.
    """
    groups = _groups(_look(catalog, _listed(catalog)))
    for _ in range(_ATTEMPTS):
        found = {name: table for names in groups for name, table in _settled(catalog, names).items()}
        seen, groups = groups, _groups(found)
        if groups == seen:
            return {name: table.metadata_location for name, table in found.items()}
    raise _busy("The tables of the catalog")


def _groups(tables: "Mapping[str, Table]") -> list[list[str]]:
    """Names of tables that are filled by the same query, the last layers first."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for name, table in sorted(tables.items()):
        query = min((key for key in table.properties if key.startswith(MARKER)), default=name)
        layer = _LAYERS.get(query.removeprefix(MARKER).partition("-")[0], 0 if name.startswith("ops.") else 1)
        groups[layer, query].append(name)
    return [names for _, names in sorted(groups.items())]


def _settled(catalog: "Catalog", names: Iterable[str]) -> "dict[str, Table]":
    before = _look(catalog, names)
    for _ in range(_LOOKS):
        look = _look(catalog, names)
        if {name: table.metadata_location for name, table in look.items()} == {
            name: table.metadata_location for name, table in before.items()
        }:
            return look
        before = look
    raise _busy(", ".join(names))


def _look(catalog: "Catalog", names: Iterable[str]) -> "dict[str, Table]":
    tables = {name: table_or_none(catalog, name) for name in names}
    return {name: table for name, table in tables.items() if table}


def _busy(what: str) -> UnavailableError:
    return UnavailableError(f"{what} keep changing.", "Run it again, or stop the consumer.")


def _tag_on_server(catalog: "Catalog", name: str, table_uuid: str, tag: str, reference: Metadata) -> None:
    from pyiceberg.table.update import AssertTableUUID, SetSnapshotRefUpdate

    wanted = SetSnapshotRefUpdate.model_validate({"ref-name": tag, **reference})
    requirements = (AssertTableUUID(uuid=uuid.UUID(table_uuid)),)
    _commit_on_server(lambda: catalog.commit_table(catalog.load_table(name), requirements, (wanted,)))


def _commit_on_server(commit: Callable[[], object]) -> None:
    """Send a commit. Whether it landed is looked up afterwards."""
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    try:
        commit()
    except (CommitFailedException, CommitStateUnknownException):
        return


def _replace_on_server(tables: Tables, change: Replacement, before: str) -> None:
    """Replace a table of a REST catalog. Where it is still the same one, the server does it in one commit."""
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

    catalog = tables.catalog
    if change.new and change.keeps_table and (table := table_or_none(catalog, change.name)):
        if table.metadata_location != change.old:
            raise LakeproofError(
                f"{change.name} was changed during the restore.", "Stop what writes to it, and run the restore again."
            )
        catalog.commit_table(table, *_commit_back(table.metadata.model_copy(), change.new))
        return
    uri = (
        tables.write(max(before, change.old or "", key=lambda uri: uri.rpartition("/")[2]), change.new)
        if change.new
        else ""
    )
    if change.old:
        with suppress(NoSuchTableError):  # the answer to an earlier request was lost
            catalog.drop_table(change.name)
    if uri:
        try:
            catalog.register_table(change.name, uri)
        except TableAlreadyExistsError:
            if catalog.load_table(change.name).metadata_location != uri:
                raise


def _commit_back(table: Any, new: Metadata) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Requirements and updates that give a table the snapshot, the properties and the columns of other metadata."""
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemovePropertiesUpdate,
        RemoveSnapshotRefUpdate,
        SetCurrentSchemaUpdate,
        SetDefaultSortOrderUpdate,
        SetDefaultSpecUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    updates: list[Any] = []
    for name, reference in new["refs"].items():
        was = table.refs.get(name)
        if was is None or was.snapshot_id != reference["snapshot-id"]:
            updates.append(SetSnapshotRefUpdate.model_validate({"ref-name": name, **reference}))
    updates += [
        RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in table.refs if name not in new["refs"]
    ]
    if gone := sorted(table.properties.keys() - new["properties"].keys()):
        updates.append(RemovePropertiesUpdate(removals=gone))
    if changed := {key: value for key, value in new["properties"].items() if table.properties.get(key) != value}:
        updates.append(SetPropertiesUpdate(updates=changed))
    for own, key, update in (
        (table.current_schema_id, "current-schema-id", SetCurrentSchemaUpdate),
        (table.default_spec_id, "default-spec-id", SetDefaultSpecUpdate),
        (table.default_sort_order_id, "default-sort-order-id", SetDefaultSortOrderUpdate),
    ):
        if own != new[key]:
            field = {"current-schema-id": "schema-id", "default-spec-id": "spec-id"}.get(key, "sort-order-id")
            updates.append(update.model_validate({field: new[key]}))
    requirements = (
        AssertTableUUID(uuid=table.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": table.current_snapshot_id}),
    )
    return requirements, tuple(updates)


def now_ms() -> int:
    """The time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
