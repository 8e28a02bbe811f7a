"""Detectors of anomalies. A detector is fed the readings of one device, in order, and keeps a few.

A detector is exact for the times from `since` on if it was fed all readings that are at most
:attr:`lakeproof.gold.samples.Detectors.look_back` older. So no state is kept from one micro-batch to the next.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from consumer.layers.samples.reading import Reading, Sampler
from lakeproof.gold.samples import Detector, RateOfChange, Samples, SilentDevice, StuckValue

_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1) // _MICROSECOND


class Anomaly(NamedTuple):
    """An anomaly found by a detector."""

    detector: Detector
    reading: Reading  # the reading that it is about
    detected_at: int  # the event time at which it is an anomaly, in microseconds since 1970
    minimum: float | None = None  # the expected range of the value; None if unbounded
    maximum: float | None = None


class Detects(ABC):
    """Detects anomalies of one device."""

    @abstractmethod
    def feed(self, reading: Reading) -> Anomaly | None:
        """Process the next reading."""

    def end(self, until: int) -> Anomaly | None:  # noqa: ARG002 - mostly, nothing is pending
        """Process the end of the readings: no other one comes before a time, in microseconds since 1970."""
        return None


class OutOfRange(Detects):
    """A value is outside a range."""

    def __init__(self, minimum: float | None, maximum: float | None) -> None:
        self._minimum, self._maximum = minimum, maximum
        self._is_anomaly = Sampler(minimum, maximum).is_anomaly

    def feed(self, reading: Reading) -> Anomaly | None:
        """Check the value."""
        if not self._is_anomaly(reading.value):
            return None
        return Anomaly(Detector.OUT_OF_RANGE, reading, reading.at, self._minimum, self._maximum)


class FastChange(Detects):
    """A value changes too fast. Values out of range, which are anomalies of their own, are left out."""

    def __init__(self, rate: RateOfChange, in_range: Sampler) -> None:
        self._maximum = rate.maximum
        self._within = rate.within // _MICROSECOND
        self._in_range = in_range
        self._before: Reading | None = None

    def feed(self, reading: Reading) -> Anomaly | None:
        """Compare the reading with the previous one, unless both have the same time."""
        if self._in_range.is_anomaly(reading.value):
            return None
        before, self._before = self._before, reading
        if before is None or not 0 < reading.at - before.at <= self._within:
            return None
        change = self._maximum * ((reading.at - before.at) / _SECOND)
        low, high = before.value - change, before.value + change
        if low <= reading.value <= high:
            return None
        return Anomaly(Detector.RATE_OF_CHANGE, reading, reading.at, low, high)


class Stuck(Detects):
    """A value does not change: enough readings within a time, all equal.

    Reported when this begins to hold; again for the same value if it did not hold in between, as after a pause.
    """

    def __init__(self, stuck: StuckValue) -> None:
        self._readings = stuck.readings
        self._within = stuck.within // _MICROSECOND
        self._value: float | None = None
        self._same: deque[int] = deque(maxlen=stuck.readings)
        self._changed: int | None = None  # time of the last reading with another value
        self._is_stuck = False
        self._at = 0

    def feed(self, reading: Reading) -> Anomaly | None:
        """Count the reading if it has the same value as the previous ones."""
        if reading.value != self._value:
            self._changed = None if self._value is None else self._at
            self._value = reading.value
            self._same.clear()
        self._same.append(reading.at)
        self._at = reading.at
        was, oldest = self._is_stuck, reading.at - self._within
        full = len(self._same) == self._readings and self._same[0] >= oldest
        self._is_stuck = full and (self._changed is None or self._changed < oldest)
        return Anomaly(Detector.STUCK_VALUE, reading, reading.at) if self._is_stuck and not was else None


class Silent(Detects):
    """A device sends nothing: a timer that each reading starts again."""

    def __init__(self, silent: SilentDevice) -> None:
        self._after = silent.after // _MICROSECOND
        self._before: Reading | None = None

    def feed(self, reading: Reading) -> Anomaly | None:
        """Check whether the timer ended before this reading."""
        before, self._before = self._before, reading
        return self._ended(before, reading.at)

    def end(self, until: int) -> Anomaly | None:
        """Check whether the timer ended before a time."""
        return self._ended(self._before, until)

    def _ended(self, before: Reading | None, until: int) -> Anomaly | None:
        if before is None or before.at + self._after >= until:
            return None
        return Anomaly(Detector.SILENT_DEVICE, before, before.at + self._after)


def detectors(samples: Samples) -> list[Detects]:
    """Return new detectors for a device, as a product declares them. The contract's range always applies."""
    declared = samples.detectors
    found: list[Detects] = [OutOfRange(samples.minimum, samples.maximum)]
    if declared.rate_of_change:
        found.append(FastChange(declared.rate_of_change, Sampler(samples.minimum, samples.maximum)))
    if declared.stuck_value:
        found.append(Stuck(declared.stuck_value))
    if declared.silent_device:
        found.append(Silent(declared.silent_device))
    return found


def anomalies(readings: Iterator[Reading], samples: Samples, since: int | None, until: int) -> Iterator[Anomaly]:
    """Yield the anomalies from time `since` to before `until`."""
    device: str | None = None
    of_device: list[Detects] = []
    for reading in readings:
        if reading.device != device:
            yield from _published((each.end(until) for each in of_device), since)
            device, of_device = reading.device, detectors(samples)
        yield from _published((each.feed(reading) for each in of_device), since)
    yield from _published((each.end(until) for each in of_device), since)


def _published(found: Iterator[Anomaly | None], since: int | None) -> Iterator[Anomaly]:
    for anomaly in found:
        if anomaly and (since is None or anomaly.detected_at >= since):
            yield anomaly
