"""The description of a topic by its brokers, and the start of a stream in it."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation
from tests.messages import event, send
from tests.servers import KafkaServer

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.kafka import topic as module
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.topic import Extent, Topic, oldest_time
from lakeproof.settings import KafkaSettings, settings_of


@pytest.fixture
def settings(kafka: KafkaServer) -> KafkaSettings:
    return settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}).kafka


def test_where_a_stream_begins(kafka: KafkaServer, settings: KafkaSettings) -> None:
    name = kafka.new_topic(partitions=2)
    send(kafka, name, [event(number) for number in range(4)])
    time.sleep(0.01)
    between = datetime.now(UTC)
    time.sleep(0.01)
    send(kafka, name, [event(4)])
    kafka.delete_records(name, 0, 1)
    topic = Topic(settings, name)
    topic_id, partitions = topic.identity()
    assert topic.extents(partitions) == {0: Extent(1, 5), 1: Extent(0, 0)}
    assert topic.identity() == (topic_id, [0, 1])
    found = {
        text: topic.starting(text, partitions).next(0)
        for text in (
            "earliest",
            "latest",
            "1900-01-01T00:00:00Z",
            "1969-12-31T23:59:59.999Z",
            between.isoformat(),
            (between + timedelta(hours=1)).isoformat(),
            '{"0": 3}',
        )
    }
    assert list(found.values()) == [1, 5, 1, 1, 4, 5, 3]
    assert topic.starting("earliest", partitions) == Offsets(name, ((0, 1),))
    for text in ('{"0": 0}', '{"0": 6}', '{"2": 0}'):
        with pytest.raises(UsageError, match="has no offset"):
            topic.starting(text, partitions)


def test_compaction_is_known(kafka: KafkaServer, settings: KafkaSettings) -> None:
    compacted = kafka.new_topic(cleanup_policy="compact,delete")
    assert (Topic(settings, compacted).is_compacted(), Topic(settings, kafka.new_topic()).is_compacted()) == (
        True,
        False,
    )


def test_the_right_that_is_missing_is_named(kafka: KafkaServer) -> None:
    name = kafka.new_topic()
    with kafka.only_allowing(name, AclOperation.READ, AclOperation.DESCRIBE) as login:
        topic = Topic(settings_of(login).kafka, name)
        assert topic.extents(topic.identity()[1]) == {0: Extent(0, 0)}
        with pytest.raises(UnavailableError, match=f"does not let the user lake use {name}") as caught:
            topic.is_compacted()
    assert "DescribeConfigs" in caught.value.hint


def test_a_topic_that_is_missing_is_named(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NEW_TOPIC_SECONDS", 0.3)
    with pytest.raises(UnavailableError, match=r"has no topic nothing(?s:.*)Create the topic"):
        Topic(settings, "nothing").identity()


def test_a_topic_that_is_just_being_created_is_waited_for(
    kafka: KafkaServer, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_NEW_TOPIC_SECONDS", 120)  # on a busy machine, a topic takes seconds
    name = f"late-{uuid.uuid4().hex}"
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: Topic(settings, name).identity())
        time.sleep(0.5)
        kafka.new_topic(name=name, partitions=2)
        assert found.result()[1] == [0, 1]


def test_a_problem_that_is_over_is_not_the_reason_for_a_later_one(kafka: KafkaServer, settings: KafkaSettings) -> None:
    topic = Topic(settings, kafka.new_topic())
    topic._problems.append(KafkaError(KafkaError._AUTHENTICATION, "any text"))
    assert "refused the login of no user: any text." in topic._unavailable(None).message
    topic.identity()
    assert "does not respond." in topic._unavailable(None).message


@pytest.mark.all
def test_a_login_that_is_refused_says_why(kafka: KafkaServer) -> None:
    other = settings_of(kafka.login | {"LAKE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "LAKE_KAFKA_TIMEOUT_SECONDS": 5})
    with pytest.raises(UnavailableError, match=r"refused the login of lake: .*supported mechanisms: PLAIN") as caught:
        Topic(other.kafka, "any").identity()
    assert "LAKE_KAFKA_SASL_MECHANISM" in caught.value.hint
    without = settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.sasl_servers, "LAKE_KAFKA_TIMEOUT_SECONDS": 5})
    with pytest.raises(UnavailableError, match="does not respond: ") as caught:
        Topic(without.kafka, "any").identity()
    assert "LAKE_KAFKA_SECURITY_PROTOCOL" in caught.value.hint


def test_settings_that_the_client_does_not_accept_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not PEM")
    settings = settings_of({"LAKE_KAFKA_SECURITY_PROTOCOL": "SSL", "LAKE_KAFKA_SSL_CA": tmp_path / "ca.pem"}).kafka
    with pytest.raises(UsageError, match=r"does not accept the settings(?s:.*)LAKE_KAFKA_"):
        Topic(settings, "any")


def test_the_oldest_time_is_one_that_exists() -> None:
    """A producer that writes microseconds sends messages in the year 55,840."""
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    at = int(noon.timestamp() * 1000)
    assert oldest_time([at + 1, at, at * 1000, -1, -(2**63)]) == noon
    assert oldest_time([at * 1000, 2**63 - 1]) is None
    assert oldest_time([253_402_300_799_999, 253_402_300_800_000]).year == 9999
    assert oldest_time([0]) == datetime(1970, 1, 1, tzinfo=UTC)
    assert oldest_time([]) is None
