"""A reading, and the rule by which readings are sampled, in plain Python.

The consumer samples with Spark columns (:mod:`consumer.layers.samples.columns`). Tests check them against this rule.
"""

from collections.abc import Iterable
from typing import NamedTuple

from lakeproof.gold.samples import Role


class Reading(NamedTuple):
    """A measurement of a device; readings are ordered by event time, device and value."""

    at: int  # event time, in microseconds since 1970
    device: str
    value: float


class Sampler:
    """Selects the samples of a window: the first, middle and last normal reading, and every anomaly."""

    def __init__(self, minimum: float | None, maximum: float | None) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def is_anomaly(self, value: float) -> bool:
        """Return whether a value is outside the range."""
        below = self._minimum is not None and value < self._minimum
        return below or (self._maximum is not None and value > self._maximum)

    def sample(self, readings: Iterable[Reading]) -> dict[Reading, tuple[Role, ...]]:
        """Return the samples of a window's readings, in any order, each with its roles in the order of roles."""
        ordered = sorted(readings)
        normal = [reading for reading in ordered if not self.is_anomaly(reading.value)]
        found: dict[Reading, tuple[Role, ...]] = {}
        if normal:
            picked = ((Role.FIRST, 0), (Role.MIDDLE, len(normal) // 2), (Role.LAST, -1))
            for role, index in picked:
                found[normal[index]] = (*found.get(normal[index], ()), role)
        return found | {reading: (Role.ANOMALY,) for reading in ordered if self.is_anomaly(reading.value)}
