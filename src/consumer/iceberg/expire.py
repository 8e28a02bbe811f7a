"""Snapshots and orphan files: what Iceberg removes, and what keeps it from that."""

from dataclasses import dataclass
from datetime import UTC, datetime

from consumer.iceberg.append import OpenTable
from consumer.iceberg.jvm import elements
from lakeproof.catalog import CATALOG

_MAIN = "main"


@dataclass(frozen=True)
class Reference:
    """A branch or tag, which keeps its snapshot, and of a branch all that it comes from."""

    name: str
    is_branch: bool


def references(table: OpenTable) -> list[Reference]:
    """Branches and tags of a table, without the main branch."""
    refs = table.loaded.refs()
    found = [(str(name), refs.get(name)) for name in elements(refs.keySet()) if name != _MAIN]
    return [Reference(name, bool(ref.isBranch())) for name, ref in sorted(found, key=lambda each: each[0])]


def snapshots(table: OpenTable) -> list[datetime]:
    """When the snapshots of a table were committed, UTC, the oldest first."""
    made = [int(each.timestampMillis()) for each in elements(table.loaded.snapshots())]
    return [datetime.fromtimestamp(each / 1000, UTC) for each in sorted(made)]


def expire(table: OpenTable, older_than: datetime) -> None:
    """Expire snapshots from before a time, and delete the files that only they need.

    Iceberg keeps the current one, and those that branches and tags need. Files that are not deleted, because the
    process is killed, are orphans.
    """
    update = table.loaded.expireSnapshots().expireOlderThan(int(older_than.timestamp() * 1000))
    update.retainLast(1).commit()
    table.loaded.refresh()


def remove_orphans(table: OpenTable, older_than: datetime, *, dry_run: bool) -> int:
    """Delete files in the folder of a table that no snapshot needs; return how many. At least a day old."""
    found = table.spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{table.name}', prefix_listing => true, "
        f"older_than => TIMESTAMP '{older_than:%F %T}', dry_run => {str(dry_run).lower()})"
    )
    return len(found.collect())
