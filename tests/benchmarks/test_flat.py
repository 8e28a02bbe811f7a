"""Percentiles are measured values; goals compare the largest size with the smallest."""

import pytest
from benchmarks.flat import ratio, trigger_goals
from benchmarks.flat_figures import percentile


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 5), (0.51, 6), (0.99, 10), (1.0, 10)])
def test_a_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == expected


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_the_last_size_is_set_against_the_first() -> None:
    assert ratio({"10": {"p50_s": 2.0}, "100": {"p50_s": 9.0}, "1000": {"p50_s": 3.0}}, "p50_s") == 1.5


def test_a_file_with_an_old_name_may_take_a_sweep_and_a_trigger_more() -> None:
    figures = {"p50_s": 1.0, "p99_s": 1.0, "sweep_s": 12.0, "old_name_s": 18.1}
    p50, p99, old_name = trigger_goals("MinIO", {"10": figures, "1000": figures | {"p99_s": 1.6}})
    assert (p50.met, p99.met) == (True, False)
    assert (old_name.at_most, old_name.met) == (18.0, False)
