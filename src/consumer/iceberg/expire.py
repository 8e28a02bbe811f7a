"""Snapshots and orphan files: what Iceberg removes, and what keeps it from that."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from consumer.iceberg.append import OpenTable, quoted
from consumer.iceberg.jvm import elements
from lakeproof.catalog import CATALOG
from lakeproof.holds import is_hold, name_of

_MAIN = "main"
_LONGEST_AGE = 10 * 365 * 86_400_000  # ms; Python has no times as late as Iceberg's longest


@dataclass(frozen=True)
class Reference:
    """A branch or tag, which keeps its snapshot, and of a branch all that it comes from."""

    name: str
    is_branch: bool
    snapshot_id: int
    at: datetime
    """When its snapshot was committed."""
    until: datetime | None = None
    """When Iceberg drops it."""

    @property
    def is_hold(self) -> bool:
        """Whether a registered reader made it: see :mod:`lakeproof.holds`."""
        return not self.is_branch and is_hold(self.name)

    def __str__(self) -> str:
        until = f" until {self.until:%F %H:%M} UTC" if self.until else ""
        if self.is_hold:
            return f"reader {name_of(self.name)}{until}"
        return f"{'branch' if self.is_branch else 'tag'} {self.name}{until}"


def references(table: OpenTable) -> list[Reference]:
    """Branches and tags of a table, without the main branch and those whose snapshot is missing."""
    refs, found = table.loaded.refs(), []
    for name in sorted(str(each) for each in elements(refs.keySet())):
        ref = refs.get(name)
        snapshot = table.loaded.snapshot(ref.snapshotId())
        if name != _MAIN and snapshot is not None:
            at, age = _time(snapshot), ref.maxRefAgeMs()
            until = None if age is None else at + timedelta(milliseconds=min(int(age), _LONGEST_AGE))
            found.append(Reference(name, bool(ref.isBranch()), int(ref.snapshotId()), at, until))
    return found


def _time(snapshot: Any) -> datetime:
    return datetime.fromtimestamp(int(snapshot.timestampMillis()) / 1000, UTC)


def expiring(table: OpenTable, older_than: datetime) -> int:
    """How many snapshots :func:`expire` would remove."""
    return int(_expiry(table, older_than).apply().size())


def expire(table: OpenTable, older_than: datetime) -> None:
    """Expire snapshots from before a time, and delete the files that only they need.

    Iceberg keeps the current one, and those that branches and tags need, and drops branches and tags that have passed
    their time. Files that are not deleted, because the process is killed, are orphans.
    """
    try:
        _expiry(table, older_than).commit()
    except (Py4JError, PySparkException):
        # Where the answer to its commit was lost, Iceberg tries again, and fails because the snapshots are gone.
        table.loaded.refresh()
        if expiring(table, older_than):
            raise
    table.loaded.refresh()


def _expiry(table: OpenTable, older_than: datetime) -> Any:
    return table.loaded.expireSnapshots().expireOlderThan(int(older_than.timestamp() * 1000)).retainLast(1)


def remove_orphans(table: OpenTable, older_than: datetime, *, dry_run: bool) -> int:
    """Delete files in the folder of a table that no snapshot needs; return how many. At least a day old."""
    found = table.spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => {quoted(table.name)}, prefix_listing => true, "
        f"older_than => TIMESTAMP '{older_than:%F %T}', dry_run => {str(dry_run).lower()})"
    )
    return len(found.collect())
