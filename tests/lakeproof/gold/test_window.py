"""Windows of a product: parsing and alignment."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.contracts.constraints import ContractError
from lakeproof.contracts.duration import duration_text
from lakeproof.gold.window import MAX_OVERLAP, read_session, read_window

DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
lengths = st.one_of(
    st.integers(1, 200_000).map(lambda count: timedelta(seconds=count)),
    st.sampled_from([each for each in range(1, 86_401) if not 86_400 % each]).map(
        lambda count: timedelta(seconds=count)
    ),
    st.integers(1, 400).map(lambda count: timedelta(days=count)),
)


@pytest.mark.parametrize(
    ("size", "every", "text"),
    [
        ("1 hour", None, "1 hour"),
        ("60 minutes", None, "1 hour"),
        ("1 hour", "15 minutes", "1 hour every 15 minutes"),
        ("1 hour", "60 minutes", "1 hour"),
        ("90 minutes", "30 minutes", "90 minutes every 30 minutes"),
        ("1 day", "1 minute", "1 day every 1 minute"),
        ("7 days", "1 day", "7 days every 1 day"),
        ("2 days", "6 hours", "2 days every 6 hours"),
        ("1 second", None, "1 second"),
    ],
)
def test_a_window(size, every, text):
    assert str(read_window(size, every)) == text


@pytest.mark.parametrize(
    ("size", "every", "key", "says"),
    [
        ("an hour", None, "size", "expected a duration like .*, got 'an hour'"),
        ("0 hours", None, "size", "expected a duration"),
        ("unbounded", None, "size", "expected a duration"),
        ("1 hour", "often", "every", "expected a duration like .*, got 'often'"),
        ("7 hours", None, "size", "7 hours does not divide a day, and is not a number of days"),
        ("36 hours", None, "size", "36 hours does not divide a day"),
        ("1 hour", "7 minutes", "every", "7 minutes does not divide a day"),
        ("1 hour", "40 minutes", "every", "the size, 1 hour, is not a multiple of 40 minutes"),
        ("1 hour", "2 hours", "every", "the size, 1 hour, is not a multiple of 2 hours"),
        ("7 days", "2 days", "every", "the size, 7 days, is not a multiple of 2 days"),
        ("1 day", "30 seconds", "every", "each record would be in 2,880 windows, but the maximum is 1,440"),
    ],
)
def test_no_window(size, every, key, says):
    with pytest.raises(ContractError) as caught:
        read_window(size, every)
    assert caught.value.place == ("window", key)
    assert caught.value.hint
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(caught.value.message)


@pytest.mark.parametrize("gap", ["30 minutes", "7 hours", "1 second", "25 minutes", "400 days"])
def test_a_gap_need_not_divide_a_day(gap):
    session = read_session(gap)
    assert session.session
    assert str(session) == f"session with a gap of {gap}"
    assert duration_text(session.size) == gap


@pytest.mark.parametrize("gap", ["0 minutes", "half an hour", "", "-1 hour", "unbounded"])
def test_no_gap(gap):
    with pytest.raises(ContractError, match="expected a duration like") as caught:
        read_session(gap)
    assert caught.value.place == ("window", "gap")


@given(lengths, st.none() | lengths, st.integers(0, 20_000))
def test_what_is_taken_starts_at_the_same_times_of_each_day(size, every, day):
    step = every or size
    fits = not any(each % DAY and DAY % each for each in (size, step))
    fits = fits and not size % step and size // step <= MAX_OVERLAP
    try:
        window = read_window(duration_text(size), every and duration_text(every))
    except ContractError:
        assert not fits
        return
    assert fits
    assert (window.size, window.every) == (size, step)
    midnight = EPOCH + day * DAY
    start = midnight - (midnight - EPOCH) % window.every
    assert start.time() == midnight.time()


@given(st.text(), st.none() | st.text())
def test_any_text_is_a_window_or_a_refusal(size, every):
    try:  # Hypothesis also draws texts from the source code, such as 1 day
        window = read_window(size, every)
    except ContractError:
        return
    assert timedelta(0) < window.every <= window.size
