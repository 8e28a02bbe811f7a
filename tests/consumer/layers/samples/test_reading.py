"""The sampling rule, fed by hand."""

import pytest

from consumer.layers.samples.reading import Reading, Sampler
from lakeproof.gold.samples import Role

FIRST, MIDDLE, LAST, ANOMALY = Role


def values(*found: float) -> list[Reading]:
    return [Reading(at, "a", value) for at, value in enumerate(found)]


def roles(
    readings: list[Reading], minimum: float | None = 0.0, maximum: float | None = None
) -> dict[float, list[Role]]:
    return {each.value: list(found) for each, found in Sampler(minimum, maximum).sample(readings).items()}


def test_no_reading_has_no_sample() -> None:
    assert roles([]) == {}


def test_one_reading_has_all_roles_of_the_normal_ones() -> None:
    assert roles(values(5)) == {5: [FIRST, MIDDLE, LAST]}


@pytest.mark.parametrize(("count", "middle"), [(2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_the_middle_has_the_index_of_half_the_count(count: int, middle: int) -> None:
    found = roles(values(*range(1, count + 1)))
    assert [value for value, has in found.items() if MIDDLE in has] == [middle]
    assert found[1][0] is FIRST
    assert found[count][-1] is LAST


def test_anomalies_are_not_counted() -> None:
    assert roles(values(-1, 1, -2, 2, 3, -3)) == {
        -1: [ANOMALY],
        1: [FIRST],
        -2: [ANOMALY],
        2: [MIDDLE],
        3: [LAST],
        -3: [ANOMALY],
    }


def test_anomalies_alone() -> None:
    assert roles(values(-1, -2)) == {-1: [ANOMALY], -2: [ANOMALY]}


def test_zero_is_a_reading_like_any_other() -> None:
    assert roles(values(0.0)) == {0: [FIRST, MIDDLE, LAST]}
    assert roles(values(-0.0)) == {0: [FIRST, MIDDLE, LAST]}


def test_the_ends_of_the_range_are_normal() -> None:
    assert roles(values(-1, 1, 2, 3), 1.0, 2.0) == {-1: [ANOMALY], 1: [FIRST], 2: [MIDDLE, LAST], 3: [ANOMALY]}
    assert roles(values(-1e9), None) == {-1e9: [FIRST, MIDDLE, LAST]}


def test_readings_are_ordered_by_time_then_device_then_value() -> None:
    first, second, third = Reading(1, "b", 9), Reading(2, "a", 9), Reading(2, "b", 1)
    last = Reading(2, "b", 2)
    found = Sampler(0, None).sample([last, third, second, first])
    assert found == {first: (FIRST,), third: (MIDDLE,), last: (LAST,)}
