"""Read the tables of a catalog as of one instant, and change them safely while consumers run.

In an SQL catalog, all tables are read in one statement and replaced in one transaction. In a REST catalog, the server
changes one table at a time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeproof.backup.manifest import SavedTable
from lakeproof.catalog import open_catalog, table_or_none
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.references import (
    GoneError,
    Metadata,
    change_tag,
    io_of,
    is_sql,
    pointers_of,
    read_metadata,
    replace_pointers,
    snapshot_of,
    tag_of,
    write_metadata,
)
from lakeproof.settings import Settings
from lakeproof.tables.names import MARKER, NAMESPACES

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_ATTEMPTS = 20
_LAYERS = {"silver": 2, "bronze": 3}  # after ops and gold
_LOOKS = 200  # maximum reads of the tables of one query, until two in a row are equal


@dataclass(frozen=True)
class Replacement:
    """Old and new metadata of a table: `old` is None if there is no table, `new` is None to drop the table."""

    name: str
    old: str | None
    new: Metadata | None
    keeps_table: bool = False
    """Whether the table is still the same one, and has the snapshot."""


class Tables:
    """The tables of a lake, in its catalog."""

    def __init__(self, settings: Settings) -> None:
        self.catalog: Catalog = open_catalog(settings)
        self.io = io_of(self.catalog)

    def pointers(self) -> dict[str, str]:
        """Return the metadata location of each table, as of one instant."""
        found = pointers_of(self.catalog) if is_sql(self.catalog) else _on_server(self.catalog)
        return {name: at for name, at in sorted(found.items()) if name.rpartition(".")[0] in NAMESPACES}

    def read(self, uri: str) -> bytes:
        """Read a metadata file; raise GoneError if it was removed."""
        return read_metadata(self.io, uri)

    def tag(self, saved: SavedTable, tag: str, kept_until_ms: int) -> None:
        """Tag the snapshot of a table, regardless of concurrent commits."""

        def wanted(metadata: Metadata) -> Metadata:
            snapshot = snapshot_of(metadata, saved.snapshot_id)
            if snapshot is None or metadata["table-uuid"] != saved.uuid:
                raise GoneError(f"The snapshot of {saved.name} is missing.", "Run the backup again.")
            return tag_of(snapshot, kept_until_ms)

        change_tag(self.catalog, saved.name, tag, wanted)

    def replace(self, changes: Iterable[Replacement], before: Mapping[str, str]) -> None:
        """Replace the metadata of tables: all at once in an SQL catalog, one after the other in a REST catalog.

        `before` has an earlier metadata address of each table, so that the new one gets a higher number.
        """
        changes = list(changes)
        for namespace in {each.name.partition(".")[0] for each in changes if each.new}:
            self.catalog.create_namespace_if_not_exists(namespace)
        if not is_sql(self.catalog):
            for each in changes:
                _replace_on_server(self, each, before.get(each.name, ""))
            return
        written = []
        for each in changes:
            newest = max((each.old or "", before.get(each.name, "")), key=lambda uri: uri.rpartition("/")[2])
            written.append((each.name, each.old, write_metadata(self.catalog, newest, each.new) if each.new else None))
        if not replace_pointers(self.catalog, written):
            raise LakeproofError(
                "Tables were changed during the restore.", "No table was restored. Stop what writes, and run it again."
            )


def _listed(catalog: "Catalog") -> list[str]:
    found = (namespace for namespace in NAMESPACES if catalog.namespace_exists(namespace))
    return sorted(".".join(name) for namespace in found for name in catalog.list_tables(namespace))


def _on_server(catalog: "Catalog") -> dict[str, str]:
    """Return the tables of a REST catalog, which answers for one table at a time.

    The tables of one query are read until two reads in a row are equal: at the end of the first read, all tables had
    this state. Later layers are read before earlier ones, so that no table is ahead of one that it was filled from.
    """
    groups = _groups(_look(catalog, _listed(catalog)))
    for _ in range(_ATTEMPTS):
        found = {name: table for names in groups for name, table in _settled(catalog, names).items()}
        seen, groups = groups, _groups(found)
        if groups == seen:
            return {name: table.metadata_location for name, table in found.items()}
    raise _busy("The tables of the catalog")


def _groups(tables: "Mapping[str, Table]") -> list[list[str]]:
    """Group the names of tables by the query that fills them, the last layers first."""
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


def _replace_on_server(tables: Tables, change: Replacement, before: str) -> None:
    """Replace a table of a REST catalog: in one commit of the server if the table is still the same one."""
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
        write_metadata(catalog, max(before, change.old or "", key=lambda uri: uri.rpartition("/")[2]), change.new)
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
    """Return requirements and updates that give a table the snapshot, properties and columns of other metadata."""
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
