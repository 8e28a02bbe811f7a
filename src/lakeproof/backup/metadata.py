"""Compute the metadata of a restored table."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING

from lakeproof.clocks import now_ms
from lakeproof.landing.root import archives_of
from lakeproof.references import Metadata, current, snapshot_of, tag_of, with_reference
from lakeproof.tables.names import ARCHIVES

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_FROM_BACKUP = (
    "properties",
    "current-schema-id",
    "default-spec-id",
    "default-sort-order-id",
    "schema",
    "partition-spec",
)
_ONLY_UP = ("format-version", "last-sequence-number", "next-row-id")
_OF_SNAPSHOTS = ("snapshots", "snapshot-log", "statistics", "partition-statistics")
_MAIN = "main"


def read_metadata(found: Metadata) -> "TableMetadata":
    """Convert metadata to PyIceberg's model."""
    from pyiceberg.table.metadata import TableMetadataUtil

    return TableMetadataUtil.parse_raw(json.dumps(found))


def is_same_table(saved: Metadata, live: Metadata) -> bool:
    """Whether a table is the one of a backup: same id and location, and all its schemas, partitions and sort orders."""
    if saved["table-uuid"] != live["table-uuid"] or saved["location"] != live["location"]:
        return False
    before, after = read_metadata(saved), read_metadata(live)
    return (
        all(schema in after.schemas for schema in before.schemas)
        and all(spec in after.partition_specs for spec in before.partition_specs)
        and all(order in after.sort_orders for order in before.sort_orders)
    )


def restored(
    saved: Metadata, live: tuple[str, Metadata] | None, tag: str, kept_until_ms: int, has_files: Callable[[int], bool]
) -> Metadata:
    """Return the metadata of a restored table.

    A table that is still the same one keeps its newer snapshots, branches and tags, so that another backup can be
    restored, and the archives of retention that it has since recorded, so that an erasure searches them. Otherwise,
    only those snapshots of the backup are restored whose files all exist.
    """
    snapshot_id = current(saved)
    found = deepcopy(live[1] if live else saved)
    if live:
        at, newest = live
        known = {each["snapshot-id"] for each in found.get("snapshots", ())}
        own = [each for each in saved.get("snapshots", ()) if each["snapshot-id"] == snapshot_id]
        found["snapshots"] = [*found.get("snapshots", ()), *(each for each in own if snapshot_id not in known)]
        found |= {key: saved[key] for key in _FROM_BACKUP if key in saved}
        # A table that was dropped and registered again may be older than the backup.
        found |= {key: max(saved[key], newest.get(key, 0)) for key in _ONLY_UP if key in saved}
        if archives := list(dict.fromkeys(archives_of(_properties(saved)) + archives_of(_properties(newest)))):
            found["properties"] = {**_properties(saved), ARCHIVES: json.dumps(archives)}
        found["metadata-log"] = [
            *newest.get("metadata-log", ()),
            {"metadata-file": at, "timestamp-ms": newest["last-updated-ms"]},
        ]
        if current(newest) != snapshot_id:
            found["snapshot-log"] = [
                *newest.get("snapshot-log", ()),
                {"snapshot-id": snapshot_id, "timestamp-ms": max(now_ms(), newest["last-updated-ms"])},
            ]
    else:
        refs = found.get("refs", {})
        found["refs"] = {name: ref for name, ref in refs.items() if name != _MAIN and has_files(ref["snapshot-id"])}
        kept = {snapshot_id, *(ref["snapshot-id"] for ref in found["refs"].values())}
        for key in _OF_SNAPSHOTS:
            found[key] = [each for each in found.get(key, ()) if each["snapshot-id"] in kept]
        found["metadata-log"] = []  # Iceberg would remove files that the backup does not need
    found.setdefault("refs", {}).pop(_MAIN, None)
    found["current-snapshot-id"] = -1 if snapshot_id is None else snapshot_id
    if snapshot_id is None:
        found["snapshot-log"] = []
        return found
    snapshot = snapshot_of(found, snapshot_id) or {}
    # The tags of the backup may have expired, or the clock was set back.
    found = with_reference(found, tag, tag_of(snapshot, max(kept_until_ms, snapshot["timestamp-ms"] + 1)))
    found["refs"][_MAIN] = saved.get("refs", {}).get(_MAIN, found["refs"][_MAIN])
    return found


def _properties(found: Metadata) -> dict[str, str]:
    return dict(found.get("properties", {}))


def is_restored(found: Metadata, live: Metadata) -> bool:
    """Whether a table already has the state that the restore would give it."""
    keys = (*_FROM_BACKUP, "table-uuid")
    # For a table without rows, some writers set no snapshot, and others the number -1.
    same = current(found) == current(live) and (found.get("refs") or {}) == (live.get("refs") or {})
    return same and {key: found.get(key) for key in keys} == {key: live.get(key) for key in keys}
