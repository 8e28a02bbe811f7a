"""Ranges of the past: each offset is in one part, and nothing is taken twice."""

from hypothesis import given
from hypothesis import strategies as st

from consumer.sources.kafka.past import at_most, known_of_past
from lakeproof.kafka.offsets import Offsets, Range

ranges = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 12)), max_size=5)
positions = st.dictionaries(st.integers(0, 2), st.integers(0, 12))
Place = tuple[int, int]


def offsets_in(found: list[Range]) -> set[Place]:
    return {(partition, offset) for partition, first, end in found for offset in range(first, end)}


@given(ranges, positions, positions, ranges, st.integers(1, 5))
def test_batches_read_what_comes_before_the_stream_once(
    wanted: list[Range], start: dict[int, int], progress: dict[int, int], before: list[Range], most: int
) -> None:
    begin = Offsets.of("t", start)
    past = [(partition, first, min(end, begin.next(partition))) for partition, first, end in before]
    place = Offsets.of("t", {each: begin.next(each) + progress.get(each, 0) for each in range(3)}).with_past(past)
    known = known_of_past(wanted, begin, place)
    has = offsets_in(past) | {(each, at) for each in range(3) for at in range(begin.next(each), place.next(each))}
    asked = offsets_in(wanted)
    assert offsets_in(known.accounted) == asked & has
    assert offsets_in(known.left) == {(each, at) for each, at in asked if at < begin.next(each)} - has
    assert offsets_in(known.pending) == {(each, at) for each, at in asked if at >= place.next(each)}
    read: list[Place] = []
    while taken := at_most(most, known_of_past(wanted, begin, place).left):
        offsets = offsets_in(taken)
        assert len(offsets) <= most
        read += offsets
        place = place.with_past(taken)
        assert Offsets.parse(str(place)) == place
    assert len(read) == len(set(read))
    assert set(read) == offsets_in(known.left)
