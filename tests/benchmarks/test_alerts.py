"""Delays of windows are computed from the commits of two tables."""

import pytest
from benchmarks.alerts import at_share, windows_of
from benchmarks.harness import SideFailedError

SECOND = 1_000_000
PASSED = [(0.0, 29 * SECOND), (10.0, 30 * SECOND), (20.0, 95 * SECOND), (50.0, 99 * SECOND), (60.0, 120 * SECOND)]


def test_a_window_takes_from_the_horizon_past_its_end_to_its_samples() -> None:
    published = [(12.0, 30 * SECOND), (24.0, 80 * SECOND), (31.0, 95 * SECOND), (62.0, 120 * SECOND)]
    assert windows_of(PASSED, published, 0, 60) == [2, 2, 4, 11]
    assert windows_of(PASSED, published, 15, 55) == [4, 11]


def test_a_window_that_is_not_there_fails() -> None:
    with pytest.raises(SideFailedError):
        windows_of(PASSED, [(12.0, 30 * SECOND)], 0, 60)


def test_a_load_that_closes_no_window_fails() -> None:
    with pytest.raises(SideFailedError, match="no window"):
        windows_of(PASSED, [(62.0, 120 * SECOND)], 55, 56)


def test_shares_are_of_values_that_were_seen() -> None:
    assert [at_share([1, 2, 3, 4], share) for share in (0, 0.5, 0.99, 1)] == [1, 3, 4, 4]
