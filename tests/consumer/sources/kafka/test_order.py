"""Messages are read in the order of their offsets, however many of them the client returns at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.sources.kafka.test_read import settings as settings_for

from consumer.sources.envelope import SMALL_BYTES, Envelope, Messages
from consumer.sources.kafka import read
from consumer.sources.kafka.read import OffsetRange, envelopes
from lakeproof.settings import Limits

SMALL, LARGE = b"small", b"x" * (SMALL_BYTES + 1)
VALUES = st.lists(st.sampled_from([SMALL, LARGE, None]), min_size=1, max_size=12)


class Sent:
    """A message of Kafka's client."""

    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset = offset
        self._value = value

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes:
        return b"%d" % self._offset

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self._offset


@contextmanager
def returned(values: Sequence[bytes | None], at_once: int) -> Iterator[None]:
    """Let a topic have some values, of which the client returns `at_once` at a time."""
    left = [Sent(offset, value) for offset, value in enumerate(values)]

    class Client:
        def __init__(self, _: object) -> None:
            pass

        def assign(self, _: object) -> None:
            pass

        def consume(self, most: int, _: float) -> list[Sent]:
            found = left[: min(most, at_once)]
            del left[: len(found)]
            return found

        def close(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "Consumer", Client)
        yield


def read_all(values: Sequence[bytes | None], at_once: int, *, in_order: bool = True) -> list[Envelope | Messages]:
    with returned(values, at_once):
        part = OffsetRange("t", 0, 0, len(values), 0)
        return list(envelopes([part], settings_for("kafka:9092"), Limits(), in_order=in_order))


def offsets(found: Envelope | Messages) -> list[int]:
    return [int(found.source.rpartition("/")[2])] if isinstance(found, Envelope) else list(found.offsets)


def test_a_large_message_comes_after_the_small_ones_before_it() -> None:
    found = read_all([SMALL, SMALL, LARGE, SMALL, None, LARGE, SMALL], 100)
    assert [offsets(each) for each in found] == [[0, 1], [2], [3], [4], [5], [6]]
    first = found[0]
    assert isinstance(first, Messages)
    assert (first.values, first.keys, first.landed_at) == ([SMALL, SMALL], [b"0", b"1"], [0, 1])


@given(values=VALUES, at_once=st.integers(1, 12))
def test_any_messages_come_in_order(values: list[bytes | None], at_once: int) -> None:
    found = read_all(values, at_once)
    assert [offset for each in found for offset in offsets(each)] == list(range(len(values)))
    assert all(each.values for each in found if isinstance(each, Messages))


def test_small_messages_in_a_row_stay_together() -> None:
    found = read_all([SMALL, LARGE, SMALL, SMALL, SMALL], 100)
    assert [offsets(each) for each in found] == [[0], [1], [2, 3, 4]]


@given(values=VALUES, at_once=st.integers(1, 12))
def test_without_order_all_small_messages_are_together(values: list[bytes | None], at_once: int) -> None:
    found = read_all(values, at_once, in_order=False)
    assert sorted(offset for each in found for offset in offsets(each)) == list(range(len(values)))
    assert sum(isinstance(each, Messages) for each in found) <= -(-len(values) // at_once)
