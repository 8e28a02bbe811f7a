"""Decisions by markers."""

import pytest

from consumer.iceberg.marker import (
    Committed,
    Marker,
    MarkerLostError,
    Snapshot,
    check_history,
    committed,
    has_done,
    property_of,
    unfinished,
)
from lakeproof.state.landing_log import is_origin


def marker(start: int, end: int) -> Marker:
    return Marker("c", start, "digest", f"{start}:x", f"{end}:x")


def at(start: int, end: int) -> Committed:
    return Committed(marker(start, end), 7, 3)


def test_a_marker_is_read_as_it_was_written() -> None:
    one = Committed(Marker('c"', 0, "d", "0:ü", "5:x"), 123456789012345678, 9)
    assert committed({property_of("q"): one.as_text()}, "q") == one
    assert committed({property_of("q"): one.as_text()}, "other") is None


@pytest.mark.parametrize(("newest", "done"), [(None, False), (at(0, 5), False), (at(5, 9), True)])
def test_a_micro_batch_is_done_or_comes_next(newest: Committed | None, done: bool) -> None:
    assert has_done(newest, marker(5, 9), "bronze.t") is done


@pytest.mark.parametrize("newest", [at(0, 4), at(5, 8), at(4, 9), at(9, 12)])
def test_anything_else_is_refused(newest: Committed) -> None:
    with pytest.raises(MarkerLostError, match=r"bronze\.t is at position \d+"):
        has_done(newest, marker(5, 9), "bronze.t")


@pytest.mark.parametrize(
    ("bronze", "dead_letters", "ledger", "expected"),
    [
        (None, None, None, None),
        (at(0, 5), at(0, 5), at(0, 5), None),
        (at(0, 5), None, None, marker(0, 5)),  # the first of all
        (at(0, 5), at(0, 5), None, marker(0, 5)),
        (at(5, 9), at(0, 5), at(0, 5), marker(5, 9)),
        (at(5, 9), at(5, 9), at(0, 5), marker(5, 9)),
    ],
)
def test_what_a_crash_leaves_is_finished(
    bronze: Committed | None, dead_letters: Committed | None, ledger: Committed | None, expected: Marker | None
) -> None:
    assert unfinished("t", bronze, dead_letters, ledger, is_origin) == expected


@pytest.mark.parametrize(
    ("bronze", "dead_letters", "ledger"),
    [
        (None, at(0, 5), at(0, 5)),
        (at(5, 9), None, at(5, 9)),  # dropped and recreated
        (at(5, 9), at(5, 9), None),
        (at(0, 5), at(5, 9), at(5, 9)),
        (at(5, 9), at(5, 9), at(0, 4)),
        (at(0, 5), None, at(0, 5)),  # the first of all, and then dropped
        (at(5, 9), at(0, 5), at(5, 9)),
    ],
)
def test_tables_of_different_moments_are_refused(
    bronze: Committed | None, dead_letters: Committed | None, ledger: Committed | None
) -> None:
    with pytest.raises(MarkerLostError, match="from different points in time"):
        unfinished("t", bronze, dead_letters, ledger, is_origin)


HISTORY = {
    1: Snapshot(1, None, 1),
    7: Snapshot(7, 1, 3),
    8: Snapshot(8, 7, 4),
    9: Snapshot(9, 1, 5),  # after a rollback to 1
    10: Snapshot(10, None, 6),  # of a table that was replaced
    11: Snapshot(11, 99, 7),  # its parent was expired
}


@pytest.mark.parametrize("current", [7, 8, 11])
def test_a_table_that_came_after_its_marker(current: int) -> None:
    check_history(at(0, 5), HISTORY[current], HISTORY.get, "bronze.t")


@pytest.mark.parametrize("current", [None, 1, 9, 10])
def test_a_table_that_lost_what_its_marker_says(current: int | None) -> None:
    with pytest.raises(MarkerLostError, match="rolled back or replaced") as raised:
        check_history(at(0, 5), HISTORY[current] if current else None, HISTORY.get, "bronze.t")
    assert raised.value.hint == "To undo this, run: CALL lake.system.set_current_snapshot('bronze.t', 7)."


def test_without_the_snapshot_there_is_nothing_to_go_back_to() -> None:
    with pytest.raises(MarkerLostError) as raised:
        check_history(at(0, 5), HISTORY[1], {1: HISTORY[1]}.get, "bronze.t")
    assert "backup" in raised.value.hint
