"""Detectors that are fed by hand agree with definitions over all readings at once."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.layers.samples import model

from consumer.layers.samples.detectors import Anomaly, FastChange, OutOfRange, Silent, Stuck, anomalies
from consumer.layers.samples.reading import Reading, Sampler
from lakeproof.contracts.model import Field, PrimitiveType
from lakeproof.gold.model import Window
from lakeproof.gold.samples import (
    Detector,
    Detectors,
    Grouping,
    RateOfChange,
    Samples,
    SilentDevice,
    StuckValue,
)

SECOND = 1_000_000


def seconds(count: int) -> timedelta:
    return timedelta(seconds=count)


def at(second: float, value: float = 1.0, device: str = "a") -> Reading:
    return Reading(int(second * SECOND), device, value)


def product(detectors: Detectors, minimum: float | None = 0.0, maximum: float | None = 9.0) -> Samples:
    text, time, number = PrimitiveType.STRING, PrimitiveType.TIMESTAMP, PrimitiveType.DOUBLE
    return Samples(
        "samples",
        "sensors",
        "",
        Field("device_id", text),
        Field("event_time", time),
        Field("sensor_freq", number),
        Grouping.DEVICE,
        Window(seconds(60), seconds(30)),
        seconds(10),
        "anomalies",
        minimum,
        maximum,
        detectors,
    )


def test_out_of_range() -> None:
    detector = OutOfRange(0.0, 9.0)
    assert [detector.feed(at(0, value)) for value in (0, 9, 5)] == [None] * 3
    assert detector.feed(at(1, -1)) == Anomaly(Detector.OUT_OF_RANGE, at(1, -1), SECOND, 0.0, 9.0)
    assert detector.feed(at(1, 9.5)) == Anomaly(Detector.OUT_OF_RANGE, at(1, 9.5), SECOND, 0.0, 9.0)


def test_rate_of_change() -> None:
    detector = FastChange(RateOfChange(2.0, seconds(10)), Sampler(0.0, None))
    assert detector.feed(at(0, 1)) is None
    assert detector.feed(at(1, 3)) is None  # exactly the expected maximum
    assert detector.feed(at(2, 5.5)) == Anomaly(Detector.RATE_OF_CHANGE, at(2, 5.5), 2 * SECOND, 1.0, 5.0)
    assert detector.feed(at(2.5, -7)) is None  # out of range: a separate anomaly, not used for comparison
    assert detector.feed(at(3, 5)) is None
    assert detector.feed(at(3, 500)) is None  # no rate at the same time
    assert detector.feed(at(13.1, 5)) is None  # too long ago
    assert detector.feed(at(14, 1)) == Anomaly(Detector.RATE_OF_CHANGE, at(14, 1), 14 * SECOND, 3.2, 6.8)
    assert detector.feed(at(24, 99)) == Anomaly(Detector.RATE_OF_CHANGE, at(24, 99), 24 * SECOND, -19.0, 21.0)


def test_a_stuck_value_is_noticed_once_until_it_changes() -> None:
    detector = Stuck(StuckValue(3, seconds(10)))
    found = [detector.feed(at(second)) for second in range(5)]
    assert found == [None, None, Anomaly(Detector.STUCK_VALUE, at(2), 2 * SECOND), None, None]
    assert detector.feed(at(5, 2)) is None
    # The other value is within 10 seconds until 15 s.
    assert [detector.feed(at(second)) for second in range(6, 16)] == [None] * 10
    assert detector.feed(at(16)) == Anomaly(Detector.STUCK_VALUE, at(16), 16 * SECOND)


@pytest.mark.parametrize("later", [(20, 21, 22), (9, 15, 21, 22)])
def test_a_stuck_value_is_noticed_again_after_a_time_with_few_readings(later: tuple[int, ...]) -> None:
    """The device pauses, or sends too rarely for a while."""
    detector = Stuck(StuckValue(3, seconds(10)))
    found = [detector.feed(at(second)) for second in (0, 1, 2, 3, *later)]
    assert [each.detected_at // SECOND for each in found if each] == [2, 22]


def test_readings_exactly_as_far_apart_as_the_time_are_stuck() -> None:
    detector = Stuck(StuckValue(3, seconds(10)))
    assert [detector.feed(at(second)) for second in (0, 5)] == [None, None]
    assert detector.feed(at(10)) == Anomaly(Detector.STUCK_VALUE, at(10), 10 * SECOND)


def test_a_value_that_was_stuck_before_a_cut_is_not_noticed_again() -> None:
    samples = product(Detectors(stuck_value=StuckValue(3, seconds(10))))
    look_back = samples.detectors.look_back // timedelta(microseconds=1)
    readings = [each for each in map(at, range(0, 20, 5)) if each.at >= 12 * SECOND - look_back]
    assert list(anomalies(iter(readings), samples, 12 * SECOND, 20 * SECOND)) == []


def test_few_readings_of_the_same_value_are_not_stuck() -> None:
    detector = Stuck(StuckValue(3, seconds(10)))
    assert [detector.feed(at(6 * number)) for number in range(10)] == [None] * 10


def test_a_silent_device() -> None:
    detector = Silent(SilentDevice(seconds(60)))
    assert detector.feed(at(0)) is None
    assert detector.feed(at(60)) is None
    assert detector.end(120 * SECOND) is None
    assert detector.end(120 * SECOND + 1) == Anomaly(Detector.SILENT_DEVICE, at(60), 120 * SECOND)
    assert detector.feed(at(121)) == Anomaly(Detector.SILENT_DEVICE, at(60), 120 * SECOND)


ALL = Detectors(RateOfChange(1.0, seconds(4)), StuckValue(3, seconds(5)), SilentDevice(seconds(7)))
READINGS = st.lists(
    st.builds(at, st.integers(0, 60), st.sampled_from([-1.0, 0.0, 1.0, 8.0, 10.0]), st.sampled_from("ab")), max_size=40
)


@given(READINGS, st.lists(st.integers(0, 70), max_size=4))
def test_no_anomaly_is_missed_or_repeated_however_time_is_cut(readings: list[Reading], cuts: list[int]) -> None:
    """Each part is fed only readings within its look back, before its end."""
    samples, until = product(ALL), 70 * SECOND
    since: int | None = None
    found = []
    look_back = samples.detectors.look_back // timedelta(microseconds=1)
    for end in [*sorted({cut * SECOND for cut in cuts}), until]:
        some = [each for each in set(readings) if each.at < end and (since is None or each.at >= since - look_back)]
        fed = sorted(some, key=lambda each: (each.device, each.at, each.value))
        found += list(anomalies(iter(fed), samples, since, end))
        since = end
    rows = [
        (model.time(when), str(detector), device, model.time(read_at), value, low, high)
        for detector, (read_at, device, value), when, low, high in found
    ]
    assert sorted(rows, key=str) == model.anomalies(set(readings), samples, until)


def test_without_detectors_only_the_range_of_the_contract_applies() -> None:
    readings = [at(0, -1), at(1), at(2), at(3)]
    assert [each.reading for each in anomalies(iter(readings), product(Detectors()), None, 99 * SECOND)] == [at(0, -1)]
    assert not list(anomalies(iter(readings), product(Detectors(), None, None), None, 99 * SECOND))
