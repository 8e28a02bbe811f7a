"""Samples and anomalies in plain Python: computed from all readings at once, by the definitions in the docs."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from consumer.layers.samples.reading import Reading, Sampler
from lakeproof.gold.samples import Grouping, Samples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000
Row = tuple[Any, ...]


def windows(readings: Iterable[Reading], samples: Samples, until: int) -> list[Row]:
    """Return the samples of windows that end by `until`: start, end, device, event time, value, roles."""
    size, every = samples.window.size // MICROSECOND, samples.window.every // MICROSECOND
    groups: dict[Any, list[Reading]] = defaultdict(list)
    for reading in readings:
        start = reading.at - reading.at % every
        while start > reading.at - size:
            groups[start, reading.device if samples.by is Grouping.DEVICE else ""].append(reading)
            start -= every
    sampler = Sampler(samples.minimum, samples.maximum)
    return sorted(
        (time(start), time(start + size), device, time(at), value, [str(role) for role in roles])
        for (start, _), group in groups.items()
        if start + size <= until
        for (at, device, value), roles in sampler.sample(group).items()
    )


def anomalies(readings: Iterable[Reading], samples: Samples, until: int) -> list[Row]:
    """Return the anomalies before `until`: detected at, detector, device, event time, value, minimum, maximum."""
    of_device: dict[str, list[Reading]] = defaultdict(list)
    for reading in sorted(readings):
        if reading.at < until:
            of_device[reading.device].append(reading)
    found = [row for ordered in of_device.values() for row in _of_device(ordered, samples, until)]
    return sorted(
        (
            (time(detected_at), detector, each.device, time(each.at), each.value, low, high)
            for detected_at, detector, each, low, high in found
            if detected_at < until
        ),
        key=str,
    )


def _of_device(ordered: list[Reading], samples: Samples, until: int) -> Iterable[Row]:
    rules, low, high = samples.detectors, samples.minimum, samples.maximum
    normal = [each for each in ordered if (low is None or each.value >= low) and (high is None or each.value <= high)]
    yield from ((each.at, "out_of_range", each, low, high) for each in ordered if each not in normal)
    if rules.rate_of_change:
        within = rules.rate_of_change.within // MICROSECOND
        for before, each in pairwise(normal):
            if 0 < each.at - before.at <= within:
                change = rules.rate_of_change.maximum * ((each.at - before.at) / SECOND)
                if not before.value - change <= each.value <= before.value + change:
                    yield each.at, "rate_of_change", each, before.value - change, before.value + change
    if rules.stuck_value:
        within, count = rules.stuck_value.within // MICROSECOND, rules.stuck_value.readings
        was = False
        for index, each in enumerate(ordered):
            recent = [other.value for other in ordered[: index + 1] if other.at >= each.at - within]
            stuck = len(recent) >= count and len(set(recent)) == 1
            if stuck and not was:
                yield each.at, "stuck_value", each, None, None
            was = stuck
    if rules.silent_device:
        after = rules.silent_device.after // MICROSECOND
        ends = [*(each.at for each in ordered[1:]), until]
        for each, following in zip(ordered, ends, strict=True):
            if each.at + after < following:
                yield each.at + after, "silent_device", each, None, None


def time(at: int) -> datetime:
    """Return a time from microseconds since 1970."""
    return EPOCH + timedelta(microseconds=at)
