"""The clock of a run, and the signals that end it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from math import inf
from time import monotonic, sleep
from types import FrameType

from lakeproof.signals import end_at_once, ending_signals

# A signal ends a pause within this many seconds.
_SLICE = 0.1


@dataclass
class Stop:
    """Request to end the run."""

    requested_at: float = inf  # by the monotonic clock

    @property
    def requested(self) -> bool:
        """Whether the run shall end."""
        return self.requested_at < inf

    def wait(self, seconds: float) -> None:
        """Sleep for a number of seconds, or until the run is requested to end."""
        end = monotonic() + seconds
        while not self.requested and (left := end - monotonic()) > 0:
            sleep(min(left, _SLICE))


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Turn the first signal into a request to end; the second one exits immediately."""
    stop = Stop()

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            end_at_once(number)
        stop.requested_at = monotonic()

    with ending_signals(handle):
        yield stop


def landing_times(stop: Stop, batches: int | None, pause: float, start: datetime | None = None) -> Iterator[datetime]:
    """Yield the landing time of each batch, at that time."""
    step = timedelta(seconds=pause or 1)
    for index in islice(count(), batches):
        if index:
            stop.wait(pause)
        if stop.requested:
            return
        yield datetime.now(UTC) if start is None else start + index * step
