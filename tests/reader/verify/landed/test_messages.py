"""Messages are read again with the reader's own client."""

import confluent_kafka
import pytest
from tests.messages import RefusingConsumer, event, send
from tests.servers import KafkaServer

from lakeproof.settings import settings_of
from reader.verify.landed.messages import messages


def test_a_user_without_rights_on_groups_can_read(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", RefusingConsumer)
    settings = settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}).kafka
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    assert [message.offset for group in messages(settings, topic, 0, 0, 1) for message in group] == [0]
