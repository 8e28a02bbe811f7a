"""The search of a topic for a person's data, and tombstones for its keys."""

import pytest
from tests.messages import RefusingConsumer, messages, send
from tests.raw_headers import send_raw
from tests.servers import KafkaServer

from consumer.removal import topics
from consumer.removal.condition import Condition
from consumer.removal.topics import forget_in_topic
from lakeproof.settings import settings_of

PERSON = Condition(({"user_id": "wanda"},))


@pytest.mark.all
def test_a_topic_whose_first_messages_are_gone_is_searched(kafka: KafkaServer) -> None:
    settings = settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}).kafka
    topic = kafka.new_topic(cleanup_policy="compact,delete")
    send(kafka, topic, [b'{"user_id": "karl"}'] * 2, key=b"k")
    send(kafka, topic, [b'{"user_id": "wanda"}'], key=b"w")
    kafka.delete_records(topic, 0, 1)  # as retention.ms does
    found = forget_in_topic(settings, topic, PERSON, is_ours=True)
    assert (found.messages, found.tombstones) == (1, 1)
    assert messages(kafka, topic) == [1, 2, 3]
    again = forget_in_topic(settings, topic, PERSON, is_ours=True)
    assert (again.messages, again.tombstones) == (1, 0)


def test_messages_whose_headers_cannot_be_read_are_searched_by_key_and_value(kafka: KafkaServer) -> None:
    settings = settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}).kafka
    topic = kafka.new_topic(cleanup_policy="compact")
    for name in (b"karl", b"wanda"):
        send_raw(kafka, topic, b'{"user_id": "%b"}' % name, [(b"\xff", b"x")], key=name)
    found = forget_in_topic(settings, topic, PERSON, is_ours=True)
    assert (found.messages, found.tombstones) == (1, 1)


def test_a_user_without_rights_on_groups_can_search(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "Consumer", RefusingConsumer)
    settings = settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}).kafka
    topic = kafka.new_topic()
    send(kafka, topic, [b'{"user_id": "wanda"}'])
    assert forget_in_topic(settings, topic, PERSON, is_ours=False).messages == 1
