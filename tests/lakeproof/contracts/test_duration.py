"""Durations are read as written, and written as read."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.contracts.duration import MAX_DURATION, duration_text, horizon_text, read_duration, read_option
from lakeproof.errors import UsageError

seconds = st.integers(1, int(MAX_DURATION.total_seconds()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 days", timedelta(days=7)),
        ("1 day", timedelta(days=1)),
        ("12 hours", timedelta(hours=12)),
        ("90 minutes", timedelta(minutes=90)),
        ("1 hour", timedelta(hours=1)),
        ("30 seconds", timedelta(seconds=30)),
        ("36500 days", MAX_DURATION),
    ],
)
def test_a_duration(text, expected):
    assert read_duration(text) == expected


@pytest.mark.parametrize(
    "value",
    ["", "7", "days", "0 days", "-1 days", "1.5 hours", "07 days", "7  days", " 7 days", "7 days\n", "7days", "7 Days",
     "1 week", "1 month", "7 dayss", "\u0667 days", "36501 days", "999999999 days", "9999999999 days", "unbounded",
     7, 7.5, None, True, ["7 days"], timedelta(days=7)],
)  # fmt: skip
def test_no_duration(value):
    assert read_duration(value) is None


@pytest.mark.parametrize(("text", "days"), [("30d", 30), ("48h", 2), ("2880m", 2), ("86400s", 1), ("30 days", 30)])
def test_a_duration_on_the_command_line(text: str, days: int) -> None:
    assert read_option(text) == timedelta(days=days)


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "30D", "30 d", "1w", "36501d", "soon"])
def test_no_duration_on_the_command_line(text: str) -> None:
    with pytest.raises(UsageError, match="Expected a duration like 7 days"):
        read_option(text)


@given(seconds.map(lambda count: timedelta(seconds=count)))
def test_what_is_written_is_read(duration):
    assert read_duration(duration_text(duration)) == duration
    assert horizon_text(duration) == duration_text(duration)


@given(st.integers(1, 999_999_999), st.sampled_from(["second", "minute", "hour", "day"]), st.booleans())
def test_every_count_of_a_unit_is_read_up_to_the_maximum(count, unit, plural):
    expected = timedelta(**{f"{unit}s": count})
    assert read_duration(f"{count} {unit}{'s' * plural}") == (expected if expected <= MAX_DURATION else None)


@given(st.text())
def test_any_other_text_is_none(text):
    duration = read_duration(text)
    assert duration is None or timedelta() < duration <= MAX_DURATION


def test_the_largest_unit_that_fits_is_written():
    assert duration_text(timedelta(days=1)) == "1 day"
    assert duration_text(timedelta(hours=36)) == "36 hours"
    assert duration_text(timedelta(hours=1, seconds=1)) == "3601 seconds"
    assert horizon_text(None) == "unbounded"
