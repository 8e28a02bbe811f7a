"""Positions in a topic: one text for each, regardless of the partitions that it names."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.kafka.offsets import Offsets, Range, source_name, without

OFFSETS = st.dictionaries(st.integers(0, 10_000), st.integers(0, 2**63 - 1))
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)


@given(topic=TOPICS, offsets=OFFSETS, more=st.sets(st.integers(0, 10_000)))
def test_a_position_is_read_as_it_was_written(topic: str, offsets: dict[int, int], more: set[int]) -> None:
    position = Offsets.of(topic, offsets)
    assert Offsets.parse(str(position)) == position
    assert Offsets.from_spark(position.as_spark(offsets.keys() | more)) == position
    assert {partition: position.next(partition) for partition in offsets} == offsets
    assert str(Offsets.of(topic, offsets | {10_001: 0})) == str(position)


small = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 12))
ranges = st.lists(small, max_size=6)


def offsets_in(found: Iterable[Range]) -> set[tuple[int, int]]:
    return {(partition, offset) for partition, first, end in found for offset in range(first, end)}


@given(topic=TOPICS, offsets=OFFSETS, first=ranges, second=ranges)
def test_a_position_keeps_what_was_read_of_the_past(
    topic: str, offsets: dict[int, int], first: list[Range], second: list[Range]
) -> None:
    before = Offsets.of(topic, offsets).with_past(first)
    after = before.with_past(second)
    assert [Offsets.parse(str(each)) for each in (before, after)] == [before, after]
    assert offsets_in(after.past) == offsets_in(first) | offsets_in(second)
    assert offsets_in(after.past_since(before)) == offsets_in(second) - offsets_in(first)
    assert after == Offsets.of(topic, offsets).with_past([*second, *first])  # the same text in any order
    assert {partition: after.next(partition) for partition in offsets} == offsets


@given(ranges, ranges)
def test_what_is_left_of_ranges(wanted: list[Range], known: list[Range]) -> None:
    left = without(wanted, known)
    assert offsets_in(left) == offsets_in(wanted) - offsets_in(known)
    assert left == sorted(left)
    assert sum(end - first for _, first, end in left) == len(offsets_in(left))


@given(topic=TOPICS, pair=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)))
def test_names_sort_as_offsets_do(topic: str, pair: tuple[int, int]) -> None:
    names = [source_name(topic, 3, offset) for offset in pair]
    assert (names[0] < names[1]) == (pair[0] < pair[1])


@pytest.mark.parametrize("text", ["", "12:abc", "t", "t/0", '{"a": {"0": 1}, "b": {}}'])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any
        Offsets.parse(text)
