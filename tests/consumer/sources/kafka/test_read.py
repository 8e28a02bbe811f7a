"""Ranges of offsets: how they are cut, and how they are read when messages or brokers are missing."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages import RefusingConsumer, event, send
from tests.servers import KafkaServer

from consumer.sources.envelope import Envelope, Messages
from consumer.sources.kafka import read
from consumer.sources.kafka.read import MessagesLostError, OffsetRange, envelopes
from consumer.sources.kafka.source import cut
from lakeproof.errors import UnavailableError
from lakeproof.settings import KafkaSettings, Limits, settings_of

RANGES = st.builds(
    lambda partition, start, size, lost: OffsetRange("t", partition, start, start + size, start, start + lost),
    st.integers(0, 3),
    st.integers(0, 1_000_000),
    st.integers(1, 200_000),
    st.sampled_from([-1, 0, 1, 70, 500_000]),
)


def settings(servers: str, seconds: float = 30) -> KafkaSettings:
    return settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": servers, "LAKE_KAFKA_TIMEOUT_SECONDS": seconds}).kafka


@given(parts=st.lists(RANGES, max_size=4, unique_by=lambda part: part.partition), pieces=st.integers(1, 16))
def test_pieces_are_the_whole_once(parts: list[OffsetRange], pieces: int) -> None:
    found = cut(parts, pieces)
    for part in parts:
        own = sorted((piece.start, piece.end) for piece in found if piece.name == part.name)
        assert (own[0][0], own[-1][1]) == (part.start, part.end)
        assert all(before[1] == after[0] for before, after in pairwise(own))
        assert sum(piece.given_up for piece in found if piece.name == part.name) == part.given_up
    assert len(found) <= 2 * len(parts) + 2 * pieces


@pytest.mark.parametrize(("sizes", "pieces"), [([25_100, 24_800, 25_050, 25_050], 4), ([100_000], 4), ([19_000, 1], 2)])
def test_ranges_of_about_the_same_size_make_no_small_pieces(sizes: list[int], pieces: int) -> None:
    parts = [OffsetRange("t", partition, 5, 5 + size, 5) for partition, size in enumerate(sizes)]
    assert len(cut(parts, 4)) == pieces


def test_a_range_is_read_to_its_end_and_no_further(kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(number) for number in range(6)], headers=[("a", b"1")])
    send(kafka, topic, [None], key=b"gone")
    found = list(envelopes([OffsetRange(topic, 0, 1, 4, 0)], settings(kafka.bootstrap_servers), Limits()))
    assert [(each.offsets, each.part) for each in found if isinstance(each, Messages)] == [
        ([1, 2, 3], f"{topic}/0/{0:019}")
    ]
    (tombstone,) = envelopes([OffsetRange(topic, 0, 6, 7, 6)], settings(kafka.bootstrap_servers), Limits())
    assert isinstance(tombstone, Envelope)
    assert (tombstone.value, tombstone.failure) == (None, ("tombstone", "message has no value"))


def test_what_is_too_large_is_not_kept(kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [b"x" * 5_000])
    (found,) = envelopes(
        [OffsetRange(topic, 0, 0, 1, 0)], settings(kafka.bootstrap_servers), Limits(unpacked_bytes=4_999)
    )
    assert isinstance(found, Envelope)
    assert found.failure
    assert (found.value, found.failure[0]) == (None, "batch_too_large")


def test_offsets_that_are_gone_are_named(kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(number) for number in range(4)])
    kafka.delete_records(topic, 0, 2)
    part = OffsetRange(topic, 0, 0, 4, 0)
    with pytest.raises(MessagesLostError, match="Offsets 0 to 1 of partition 0"):
        list(envelopes([part], settings(kafka.bootstrap_servers), Limits()))
    lost, rest = envelopes([replace(part, first=2)], settings(kafka.bootstrap_servers), Limits())
    assert isinstance(lost, Envelope)
    assert isinstance(rest, Messages)
    assert (lost.failure and lost.failure[0], rest.offsets) == ("absent", [2, 3])


@pytest.mark.all
def test_a_partition_that_ends_before_the_checkpoint_is_named(kafka: KafkaServer) -> None:
    """More messages could follow, so this takes as long as brokers may be away."""
    topic = kafka.new_topic()
    send(kafka, topic, [event(number) for number in range(4)])
    with pytest.raises(MessagesLostError, match="ends at offset 4, but the checkpoint is at 9"):
        list(envelopes([OffsetRange(topic, 0, 3, 9, 3)], settings(kafka.bootstrap_servers, seconds=10), Limits()))


def test_a_user_without_rights_on_groups_can_read(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "Consumer", RefusingConsumer)
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    (found,) = envelopes([OffsetRange(topic, 0, 0, 1, 0)], settings(kafka.bootstrap_servers), Limits())
    assert isinstance(found, Messages)
    assert found.offsets == [0]


def test_brokers_that_do_not_respond_are_waited_for_and_then_named() -> None:
    with pytest.raises(UnavailableError, match=r"Kafka at 127.0.0.1:1 does not respond(?s:.*)Start the brokers"):
        list(envelopes([OffsetRange("t", 0, 0, 1, 0)], settings("127.0.0.1:1", seconds=1), Limits()))
