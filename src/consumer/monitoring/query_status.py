"""The status of a query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from lakeproof.errors import PausedError, UsageError


class Doing(StrEnum):
    """The state of a query."""

    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    FAILED = "failed"


@dataclass(frozen=True)
class QueryStatus:
    """The status of a query."""

    query: str  # its name
    state: Doing = Doing.STOPPED
    # number of files, messages or micro-batches that it has not taken yet; None if unknown, as for alerts that are sent
    # in real time: Spark notes their offsets every two minutes
    lag: int | None = None
    unit: str = "micro-batches"
    rows_per_second: float | None = None  # rows committed in the last minute, per second; None for a sink
    last_commit: datetime | None = None  # UTC
    # the greatest event time that silver has seen, or the time before which windows are final, UTC
    watermark: datetime | None = None
    # how long the oldest item that it has not taken has been waiting, 0 if it has taken all; None if unknown
    lag_seconds: float | None = None
    # how long the oldest landed item has been waiting, for this query or for one before it
    freshness_seconds: float | None = None
    problem: str = ""  # why it failed or is paused, or why the lag is unknown
    # Findings of the stream's breaker: a current pause, or the last warning within a day.
    breaker: Mapping[str, Any] | None = None


class NothingYetError(UsageError):
    """No query has run yet."""


def exit_code(found: Sequence[QueryStatus]) -> int:
    """Return 0 if all queries run, 1 if one failed, 5 if none failed and one is paused, 4 if one is only stopped."""
    states = {each.state for each in found}
    if Doing.FAILED in states:
        return 1
    if Doing.PAUSED in states:
        return PausedError.exit_code
    return 4 if Doing.STOPPED in states else 0
