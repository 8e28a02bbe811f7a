"""Expiry of snapshots and removal of orphan files, by Iceberg."""

import itertools
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from consumer.iceberg.append import ATTEMPTS, OpenTable, clock_errors, quoted
from lakeproof.catalog import CATALOG


def expiring(table: OpenTable, older_than: datetime) -> int:
    """Return the number of snapshots that :func:`expire` would remove."""
    return int(_expiry(table, older_than).apply().size())


def expire(table: OpenTable, older_than: datetime) -> None:
    """Expire snapshots from before a time, and delete the files that only they need.

    Iceberg keeps the current snapshot and those that branches and tags need, and drops expired branches and tags. Files
    that are not deleted, because the process is killed, are orphans.
    """
    try:
        with clock_errors(table):
            _expiry(table, older_than).commit()
    except (Py4JError, PySparkException):
        # If the answer to its commit was lost, Iceberg tries again, and fails because the snapshots are gone.
        table.loaded.refresh()
        if expiring(table, older_than):
            raise
    table.loaded.refresh()


def _expiry(table: OpenTable, older_than: datetime) -> Any:
    return table.loaded.expireSnapshots().expireOlderThan(int(older_than.timestamp() * 1000)).retainLast(1)


def remove_orphans(table: OpenTable, older_than: datetime, *, dry_run: bool) -> int:
    """Delete files in a table's folder that no snapshot needs; return their number. They must be at least a day old."""
    for attempt in itertools.count(1):
        before = _snapshots(table)
        try:
            found = table.spark.sql(
                f"CALL {CATALOG}.system.remove_orphan_files(table => {quoted(table.name)}, prefix_listing => true, "
                f"older_than => TIMESTAMP '{older_than:%F %T}', dry_run => {str(dry_run).lower()})"
            ).collect()
            break
        except (Py4JError, PySparkException):
            table.loaded.refresh()
            # Iceberg reads the manifests of all snapshots, and fails if another program expires one meanwhile.
            if attempt == ATTEMPTS or before <= _snapshots(table):
                raise
    return len(found)


def _snapshots(table: OpenTable) -> set[int]:
    return {int(each["snapshot-id"]) for each in table.metadata().get("snapshots") or ()}
