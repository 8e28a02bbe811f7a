"""Wrong clocks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace

import pytest
from pyiceberg.table import snapshots, update

from lakeproof import clocks


def shifted_datetime(by: timedelta) -> type[datetime]:
    """Return a class like ``datetime`` whose clock is ahead, or behind if `by` is negative."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + by

    return Shifted


def wait_for_a_day(seconds: float = 300) -> None:
    """Wait for the next day (UTC) if it begins soon: ledgers are partitioned by the day of a commit."""
    left = 86_400 - time.time() % 86_400
    if left < seconds:
        time.sleep(left)


@contextmanager
def clock_off(by: timedelta) -> Iterator[None]:
    """Let PyIceberg, and what checks its commits, see a clock that is ahead, or behind if `by` is negative."""
    shifted = SimpleNamespace(
        time=lambda: time.time() + by.total_seconds(),
        time_ns=lambda: time.time_ns() + int(by.total_seconds()) * 10**9,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "datetime", shifted_datetime(by))
        patch.setattr(snapshots, "time", shifted)
        patch.setattr(clocks, "time", shifted)
        yield
