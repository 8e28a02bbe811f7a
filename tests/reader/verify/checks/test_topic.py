"""The offsets of a partition in a marker, and whether the ranges in the ledger agree."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.topic import Extent
from reader.verify.check import Verification
from reader.verify.checks.sources import SECTION, result_of
from reader.verify.checks.topic import Range, _gaps, _judge, _taken
from reader.verify.findings import Status

START = Offsets.of("t", {0: 20})


def test_the_past_comes_before_the_stream_and_is_one_with_it_where_they_touch() -> None:
    assert _taken(START, START, 0) == [(20, 20)]
    place = Offsets.of("t", {0: 30, 1: 5})
    assert _taken(START, place, 0) == [(20, 30)]
    assert _taken(START, place, 1) == [(0, 5)]
    assert _taken(START, place.with_past([(0, 3, 5), (0, 8, 12)]), 0) == [(3, 5), (8, 12), (20, 30)]
    assert _taken(START, place.with_past([(0, 3, 5), (0, 8, 20), (1, 0, 1)]), 0) == [(3, 5), (8, 30)]


spans = st.lists(st.integers(0, 40), min_size=2, max_size=8, unique=True).map(
    lambda cuts: list(zip(sorted(cuts)[::2], sorted(cuts)[1::2], strict=False))
)


def cut(spans: list[Range], chance: st.DataObject) -> list[Range]:
    """Ranges that follow each other within spans."""
    found = []
    for first, end in spans:
        edges = sorted({first, end, *chance.draw(st.lists(st.integers(first, end), max_size=3))})
        found += pairwise(edges)
    return found


@given(spans, st.data())
def test_ranges_that_fill_what_was_taken_have_no_gaps_and_any_other_ones_do(
    taken: list[Range], data: st.DataObject
) -> None:
    ranges = cut(taken, data)
    assert _gaps(ranges, taken) == []
    lost = data.draw(st.integers(0, len(ranges) - 1))
    without = [each for index, each in enumerate(ranges) if index != lost]
    assert {status for status, _ in _gaps(without, taken)} == {Status.LOST}
    twice = sorted([*ranges, ranges[lost]])
    assert {status for status, _ in _gaps(twice, taken)} == {Status.DOUBLED}


class Agreed:
    """Tables that agree with the messages of offsets 0 to 8."""

    def missing(self, partition: int) -> tuple[int, list[str]]:
        return 0, []

    unbooked = mislabelled = missing

    def surplus(self, partition: int, spans: list[Range], *, has_gaps: bool) -> tuple[int, list[str]]:
        return 0, []

    def ranges(self, partition: int) -> list[Range]:
        return [(0, 9)]

    def books(self, partition: int) -> list[object]:
        return []


@pytest.mark.parametrize(
    ("first", "erased", "status"), [(3, 0, Status.EXPIRED), (0, 1, Status.ERASED), (0, 0, Status.PENDING)]
)
def test_offsets_wait_though_others_have_expired_or_were_erased(first: int, erased: int, status: Status) -> None:
    def found(end: int) -> Verification:
        finding = _judge(Agreed(), "t/0", 0, [(0, 9)], [(first, 9)], Extent(first, end), [], False, erased)
        assert finding.what == (status if end > 9 or status is not Status.PENDING else Status.OK)
        return Verification("events", {SECTION: (result_of([finding]),)})

    assert found(9).complete
    waiting = found(12)
    assert (waiting.clean, waiting.complete, waiting.landed.waiting) == (True, False, 1)
    assert "3 offsets are not consumed yet" in waiting.landed.findings[0].details
    assert SECTION.pending(waiting.of("")) == "3 offsets of 1 partition are not consumed yet."
