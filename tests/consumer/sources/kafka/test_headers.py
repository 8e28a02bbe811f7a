"""Messages with a header whose name is not UTF-8: dead letters without headers, until a replay judges their values."""

import pytest
from tests.consumer.lake import SessionOf, rows
from tests.consumer.replays import check_clean, drain, replay, verify
from tests.consumer.sources.kafka.test_read import settings as settings_for
from tests.hashes import check_hashes
from tests.lakes import changed
from tests.messages import event, send
from tests.raw_headers import send_raw
from tests.servers import KafkaServer

from consumer.layers.bronze.replay import Replay
from consumer.removal.condition import Condition
from consumer.removal.topics import forget_in_topic
from consumer.sources.envelope import SMALL_BYTES, Envelope, Messages
from consumer.sources.kafka.read import OffsetRange, envelopes, read_again
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Limits, Settings
from reader.verify.landed.messages import label_of, messages

BAD = [(b"trace", b"1"), (b"na\xefve", b"2"), (b"later", b"3")]
LARGE = event(1, user_id="x" * SMALL_BYTES)


def fill(kafka: KafkaServer) -> str:
    """Return a topic with such messages, and others in between."""
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)], headers=[("trace", b"1")])
    send_raw(kafka, topic, b"[%b, %b]" % (event(1), event(2)), BAD, key=b"k")
    send_raw(kafka, topic, event(3), [(b"tr\xc3\xa4ce", b"\xff")])
    send_raw(kafka, topic, LARGE, BAD[1:2], key=b"k")
    send_raw(kafka, topic, None, BAD, key=b"k")
    send_raw(kafka, topic, b"garbage", BAD)
    return topic


def test_no_such_message_stops_a_task(kafka: KafkaServer) -> None:
    topic, own, limits = fill(kafka), settings_for(kafka.bootstrap_servers), Limits(unpacked_bytes=SMALL_BYTES)
    found = list(envelopes([OffsetRange(topic, 0, 0, 6, 0)], own, limits))
    small = [each for each in found if isinstance(each, Messages)]
    assert [each.offsets for each in small] == [[0], [2]]
    assert [each.headers for each in small] == [[[("trace", b"1")]], [[("träce", b"\xff")]]]
    others = {each.source: each for each in found if isinstance(each, Envelope)}
    codes = {int(name[-19:]): each.failure and each.failure[0] for name, each in others.items()}
    assert codes == {1: "invalid_headers", 3: "batch_too_large", 4: "tombstone", 5: "invalid_headers"}
    for each in others.values():
        assert each.failure
        assert "a header has a name that is not UTF-8" in each.failure[1]
        assert each.message
        assert each.message.headers == ()
    first = others[source_name(topic, 0, 1)]
    assert (first.value, first.message and first.message.key) == (b"[%b, %b]" % (event(1), event(2)), b"k")


def test_no_error_is_left_for_a_later_call(kafka: KafkaServer) -> None:
    """Python replaces the bytecode of a call that it has made a few times by one with fewer checks."""
    topic, own, count = kafka.new_topic(), settings_for(kafka.bootstrap_servers), 200
    send_raw(kafka, topic, event(0), BAD, times=count)
    found = list(envelopes([OffsetRange(topic, 0, 0, count, 0)], own, Limits()))
    assert [isinstance(each, Envelope) and each.failure and each.failure[0] for each in found] == (
        ["invalid_headers"] * count
    )
    read = [each for group in messages(own, topic, 0, 0, count) for each in group]
    assert [each.has_readable_headers for each in read] == [False] * count
    searched = forget_in_topic(own, topic, Condition(({"user_id": "u"},)), is_ours=False)
    assert searched.messages == count


@pytest.mark.all
def test_its_value_is_read_again(kafka: KafkaServer) -> None:
    topic, own = fill(kafka), settings_for(kafka.bootstrap_servers)
    for offset, value in ((1, b"[%b, %b]" % (event(1), event(2))), (3, LARGE)):
        again = read_again(source_name(topic, 0, offset), own, Limits())
        assert (again.value, again.failure) == (value, None)
    tombstone = read_again(source_name(topic, 0, 4), own, Limits())
    assert tombstone.failure
    assert tombstone.failure[0] == "tombstone"


@pytest.mark.all
def test_the_reader_says_which_messages_have_no_readable_headers(kafka: KafkaServer) -> None:
    topic, own = fill(kafka), settings_for(kafka.bootstrap_servers)
    found = [each for group in messages(own, topic, 0, 0, 6) for each in group]
    assert [each.offset for each in found if each.has_readable_headers] == [0, 2]
    assert {each.label for each in found[3:5]} == {label_of(b"k", ())}


@pytest.mark.all
@pytest.mark.spark
def test_it_is_a_dead_letter_until_it_is_replayed(
    kafka: KafkaServer, lake_settings: Settings, session_of: SessionOf
) -> None:
    topic = fill(kafka)
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, LAKE_KAFKA_TOPIC=topic)
    small = changed(settings, LAKE_MAX_RECORD_BYTES=SMALL_BYTES)
    drain(small, session_of, "kafka", "events")
    letters = {int(row["_source"][-19:]): row for row in rows(lake_settings, "dead_letters.events")}
    found = {
        offset: ([each["code"] for each in row["reasons"]], row["raw"], row["_key"], row["_headers"] or None)
        for offset, row in letters.items()
    }
    assert found == {
        1: (["invalid_headers"], b"[%b, %b]" % (event(1), event(2)), b"k", None),
        3: (["invalid_headers", "batch_too_large"], None, b"k", None),
        4: (["tombstone"], None, b"k", None),
        5: (["invalid_headers"], b"garbage", None, None),
    }
    assert {row["event_id"] for row in rows(lake_settings, "bronze.events")} == {"e0", "e3"}
    check_clean(verify(small, "events"))
    done = replay(settings, session_of, Replay(), "events")
    assert sum(done.closed.values()) == 2
    bronze = {(int(row["_source"][-19:]), row["_position"]): row for row in rows(settings, "bronze.events")}
    assert sorted(bronze) == [(0, 0), (1, 0), (1, 1), (2, 0), (3, 0)]
    assert (bronze[1, 1]["_key"], bronze[1, 1]["_headers"] or None) == (b"k", None)
    check_clean(verify(settings, "events"))
    check_hashes(settings)
