"""A wrong clock for commits of PyIceberg."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace

import pytest
from pyiceberg.table import snapshots, update

from lakeproof import clocks


@contextmanager
def clock_off(by: timedelta) -> Iterator[None]:
    """Let PyIceberg, and what checks its commits, see a clock that is ahead, or behind if `by` is negative."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + by

    shifted = SimpleNamespace(
        time=lambda: time.time() + by.total_seconds(),
        time_ns=lambda: time.time_ns() + int(by.total_seconds()) * 10**9,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "datetime", Shifted)
        patch.setattr(snapshots, "time", shifted)
        patch.setattr(clocks, "time", shifted)
        yield
