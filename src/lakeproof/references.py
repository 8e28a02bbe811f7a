"""Read and change Iceberg branches and tags, in any catalog and format version.

The metadata of a table is handled as JSON, since PyIceberg does not write format 3. In an SQL catalog, the pointer to
the metadata is swapped if it still has the expected value; in a REST catalog, the server changes the reference if that
still has the expected value.
"""

import json
import random
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakeproof.catalog import CATALOG, database_of, metadata_text, row_of, table_or_none
from lakeproof.clocks import now_ms, time_text
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.file_io import PlainFileIO

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO

Metadata = dict[str, Any]
_MAIN = "main"
_ATTEMPTS = 20
_MOST_ERRORS = 2
_LONGEST_WAIT = 0.5  # seconds


class GoneError(UsageError):
    """A table, its metadata or its snapshot is missing."""


def is_sql(catalog: "Catalog") -> bool:
    """Whether a catalog is an SQL catalog, whose pointers are changed here."""
    return hasattr(catalog, "engine")


def newest_metadata(catalog: "Catalog", name: str) -> tuple[str, Metadata]:
    """Return the address and the content of a table's newest metadata."""
    if is_sql(catalog):
        at, io = pointers_of(catalog).get(name), io_of(catalog)
    else:
        table = table_or_none(catalog, name)
        at, io = (table.metadata_location, table.io) if table else (None, io_of(catalog))
    if at is None:
        raise GoneError(f"There is no table {name}.", "`reader tables` lists all tables.")
    return at, parsed(read_metadata(io, at))


def io_of(catalog: "Catalog") -> "FileIO":
    """Return access to the files of a catalog's tables."""
    return PlainFileIO(catalog.properties)


def read_metadata(io: "FileIO", uri: str) -> bytes:
    """Return the content of a metadata file; raise GoneError if it is missing."""
    try:
        with io.new_input(uri).open() as source:
            return source.read()
    except FileNotFoundError as error:
        raise GoneError(f"There is no file {uri}.", "`lakeproof restore` restores a table.") from error


def parsed(content: bytes) -> Metadata:
    """Parse a metadata file."""
    found: Metadata = json.loads(metadata_text(content))
    return found


def write_metadata(catalog: "Catalog", before: str, metadata: Metadata) -> str:
    """Write a new metadata file of a table; `before` is the address of an earlier one."""
    number = re.match(r"v?(\d+)", before.rpartition("/")[2])  # v3.metadata.json comes from a Hadoop catalog
    name = f"{int(number[1]) + 1 if number else 0:05}-{uuid.uuid4()}.metadata.json"
    metadata["last-updated-ms"] = max(now_ms(), metadata["last-updated-ms"])
    uri = f"{metadata['location'].rstrip('/')}/metadata/{name}"
    with io_of(catalog).new_output(uri).create() as target:
        target.write(json.dumps(metadata).encode())
    return uri


def current(metadata: Metadata) -> int | None:
    """Return the id of a table's current snapshot, if any."""
    found = metadata.get("current-snapshot-id")
    return None if found in (None, -1) else int(found)


def snapshot_of(metadata: Metadata, snapshot_id: int | None) -> Metadata | None:
    """Return a snapshot of a table; None if it is missing."""
    return next((each for each in metadata.get("snapshots", ()) if each["snapshot-id"] == snapshot_id), None)


def tag_of(snapshot: Metadata, kept_until_ms: int) -> Metadata:
    """Return a tag of a snapshot that lasts until a time."""
    # Iceberg counts the age from the snapshot, not from the tag, and cannot read a table again with an age below 1.
    age = kept_until_ms - int(snapshot["timestamp-ms"])
    if age < 1:
        raise UsageError(
            f"Expected a deadline after the snapshot's time, {time_text(int(snapshot['timestamp-ms']))}, "
            f"got {time_text(kept_until_ms)}.",
            "Check the clocks of this machine and of the writers, or use a later deadline.",
        )
    return {"snapshot-id": snapshot["snapshot-id"], "type": "tag", "max-ref-age-ms": age}


def with_reference(metadata: Metadata, name: str, reference: Metadata | None) -> Metadata:
    """Return metadata with a reference, or without it. Metadata of format 1 has no references at all."""
    snapshot_id = current(metadata)
    main = {} if snapshot_id is None else {_MAIN: {"snapshot-id": snapshot_id, "type": "branch"}}
    others = {each: ref for each, ref in metadata.get("refs", {}).items() if each != name}
    return metadata | {"refs": main | others | ({name: reference} if reference else {})}


def change_tag(
    catalog: "Catalog", name: str, tag: str, wanted: Callable[[Metadata], Metadata | None]
) -> Metadata | None:
    """Set a tag of a table to what `wanted` returns for its newest metadata, or drop it for None; return the tag.

    This is retried if another writer is faster; after a lost answer, the table is read again. `wanted` must return the
    same tag for metadata that already has it.
    """
    errors: list[Exception] = []
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, _LONGEST_WAIT))  # noqa: S311 - no secret
        at, metadata = newest_metadata(catalog, name)
        before, after = metadata.get("refs", {}).get(tag), wanted(metadata)
        if before == after:
            return after
        if len(errors) == _MOST_ERRORS:
            raise errors[-1]
        try:
            if is_sql(catalog):
                landed = swap_metadata(catalog, name, at, with_reference(metadata, tag, after))
            else:
                landed = _change_on_server(catalog, name, metadata["table-uuid"], tag, before, after)
        except Exception as error:  # noqa: BLE001 - whatever a driver raises: perhaps only the answer was lost
            errors.append(error)
            continue
        if landed:
            return after
    raise UnavailableError(f"Cannot tag {name}: other writers keep changing it.", "Run it again.")


def swap_metadata(catalog: "Catalog", name: str, at: str, metadata: Metadata) -> bool:
    """Replace the metadata of a table in an SQL catalog if `at` is still the newest; return whether it was."""
    earlier = {"metadata-file": at, "timestamp-ms": metadata["last-updated-ms"]}
    # Writers remove the files of this log that are old enough.
    metadata = metadata | {"metadata-log": [*metadata.get("metadata-log", ()), earlier]}
    written = write_metadata(catalog, at, metadata)
    if replace_pointers(catalog, [(name, at, written)]):
        return True
    with suppress(OSError):
        io_of(catalog).delete(written)
    return False


def pointers_of(catalog: "Catalog") -> dict[str, str]:
    """Return the metadata location of each table of an SQL catalog, as of one instant."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select

    columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
    query = select(*columns).where(IcebergTables.catalog_name == CATALOG)
    with database_of(catalog).connect() as connection:
        rows = connection.execute(query).all()
    return {f"{namespace}.{name}": at for namespace, name, at in rows if at}


def replace_pointers(catalog: "Catalog", changes: Sequence[tuple[str, str | None, str | None]]) -> bool:
    """Replace metadata locations in an SQL catalog in one transaction, if all still have their expected values.

    Return whether they had. None is the location of a table that does not exist, before or afterwards.
    """
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import delete, insert, update
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError

    try:
        with database_of(catalog).begin() as connection:
            for name, old, new in changes:
                if old is None:
                    namespace, _, table = name.rpartition(".")
                    row = {"catalog_name": CATALOG, "table_namespace": namespace, "table_name": table}
                    connection.execute(insert(IcebergTables).values(**row, metadata_location=new))
                    continue
                values = {"metadata_location": new, "previous_metadata_location": old}
                change = update(IcebergTables).values(values) if new else delete(IcebergTables)
                query = change.where(row_of(name), IcebergTables.metadata_location == old)
                if connection.execute(query).rowcount != 1:
                    connection.rollback()
                    return False
    except IntegrityError:
        return False
    except SQLAlchemyError:  # perhaps only the answer was lost
        now = pointers_of(catalog)
        if any(now.get(name) != new for name, _, new in changes):
            raise
    return True


def _change_on_server(
    catalog: "Catalog",
    name: str,
    table_uuid: str,
    tag: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> bool:
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        SetSnapshotRefUpdate,
    )

    change = SetSnapshotRefUpdate if after else RemoveSnapshotRefUpdate
    update = change.model_validate({"ref-name": tag, **(after or {})})
    expected = {"ref": tag, "snapshot-id": before and before["snapshot-id"]}
    requirements = (AssertTableUUID(uuid=uuid.UUID(table_uuid)), AssertRefSnapshotId.model_validate(expected))
    try:
        catalog.commit_table(catalog.load_table(name), requirements, (update,))
    except (CommitFailedException, CommitStateUnknownException):
        return False
    return True
