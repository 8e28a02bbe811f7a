"""Trips of breakers: concurrent actions of an operator and a run, in the orders that may occur."""

from pathlib import Path

import pytest

from lakeproof.state.breaker_log import BreakerLog, QueryKind

HOLDS = ("0:a", "3:b", "checkpoint")


@pytest.fixture
def breakers(tmp_path: Path) -> BreakerLog:
    return BreakerLog(f"sqlite:///{tmp_path / 'state.db'}", "events")


def test_a_pause_lasts_until_it_ends(breakers: BreakerLog) -> None:
    assert breakers.paused() == []
    assert breakers.last_end() is None
    breakers.pause(QueryKind.STREAM, HOLDS, {"bad": 3}, None)
    (trip,) = breakers.paused()
    assert (trip.start, trip.end, trip.checkpoint_id, trip.found, trip.accepted_at) == (*HOLDS, {"bad": 3}, None)
    breakers.end(trip)
    assert breakers.paused() == []
    ended = breakers.last_end()
    assert ended is not None
    assert ended >= trip.tripped_at


def test_a_pause_that_repeats_keeps_its_time_and_what_was_accepted_meanwhile(breakers: BreakerLog) -> None:
    breakers.pause(QueryKind.STREAM, HOLDS, {"bad": 3}, None)
    (trip,) = breakers.paused()
    assert [each.number for each in breakers.accept()] == [trip.number]
    breakers.pause(QueryKind.STREAM, HOLDS, {"bad": 2}, trip)
    (again,) = breakers.paused()
    assert (again.number, again.tripped_at, again.found) == (trip.number, trip.tripped_at, {"bad": 2})
    assert again.accepted_at is not None


def test_accepting_twice_keeps_the_first_time(breakers: BreakerLog) -> None:
    breakers.pause(QueryKind.STREAM, HOLDS, {}, None)
    breakers.accept()
    (first,) = breakers.paused()
    breakers.accept()
    assert breakers.paused() == [first]


def test_the_stream_and_batches_over_the_past_pause_apart(breakers: BreakerLog) -> None:
    breakers.pause(QueryKind.STREAM, HOLDS, {}, None)
    breakers.pause(QueryKind.PAST, HOLDS, {}, None)
    assert len(breakers.paused()) == 2
    (accepted,) = breakers.accept(QueryKind.PAST)
    assert [trip.number for trip in breakers.paused(QueryKind.PAST)] == [accepted.number]
    (stream,) = breakers.paused(QueryKind.STREAM)
    assert stream.accepted_at is None


def test_only_the_newest_warning_is_kept_and_streams_are_apart(breakers: BreakerLog, tmp_path: Path) -> None:
    assert breakers.warning() is None
    for bad in (1, 2):
        breakers.warn({"bad": bad})
    warning = breakers.warning()
    assert warning is not None
    assert warning.found == {"bad": 2}
    assert breakers.paused() == []
    assert breakers.accept() == []
    other = BreakerLog(f"sqlite:///{tmp_path / 'state.db'}", "clicks")
    assert (other.warning(), other.paused()) == (None, [])


def test_examples_are_forgotten(breakers: BreakerLog, tmp_path: Path) -> None:
    examples = [{"source": "a", "position": 0, "raw": "karl"}, {"source": "b", "position": 1, "raw": "lisa"}]
    breakers.pause(QueryKind.STREAM, HOLDS, {"bad": 2, "examples": examples}, None)
    breakers.warn({"bad": 1})
    breakers.forget_examples(lambda each: each["raw"] == "karl")
    (trip,) = breakers.paused()
    assert trip.found == {"bad": 2, "examples": examples[1:]}
    warning = breakers.warning()
    assert warning
    assert warning.found == {"bad": 1}
    assert [path.name for path in tmp_path.iterdir() if b"lisa" in path.read_bytes()]
    assert not [path.name for path in tmp_path.iterdir() if b"karl" in path.read_bytes()]
