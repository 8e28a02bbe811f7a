"""The clock of this machine, compared with the times in a table's metadata.

Iceberg's Java library neither writes nor reads metadata with a time that is more than a minute before an earlier one.
PyIceberg does both: its commit with a slow clock would make a table unreadable for Spark.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from lakeproof.errors import UnavailableError

ALLOWED_MS = 60_000
"""How far Iceberg lets a time be before an earlier one (``TableMetadata.ONE_MINUTE``)."""


class ClockError(UnavailableError):
    """The clock of this machine is behind the last commit to a table, which therefore refuses commits."""


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def time_text(ms: int) -> str:
    """Return a time in milliseconds since 1970 as text."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%F %H:%M:%S} UTC"


def check_time(table: str, metadata: Mapping[str, Any], commit_ms: int) -> None:
    """Raise a ClockError if Iceberg would refuse a commit with this time to a table with this metadata."""
    logged = [each["timestamp-ms"] for log in ("snapshot-log", "metadata-log") for each in metadata.get(log, ())[-1:]]
    newest = max([metadata["last-updated-ms"], *logged])
    if newest - commit_ms <= ALLOWED_MS:
        return
    ahead = timedelta(seconds=(newest - commit_ms) // 1000)
    raise ClockError(
        f"Cannot commit to {table}: its last commit, at {time_text(newest)}, is {ahead} ahead of the clock of this "
        f"machine, {time_text(commit_ms)}.",
        "If this clock is slow, set it (NTP). If it is right, the clock of another machine was fast: set that one, and "
        f"run this again after {time_text(newest)}.",
    )
