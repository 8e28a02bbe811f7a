"""Topics are created as configured; existing ones are compared and never changed."""

import uuid
from concurrent.futures import Future
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType
from structlog.testing import capture_logs
from tests.servers import KafkaServer

from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.kafka import create
from lakeproof.kafka.client import client_properties
from lakeproof.kafka.create import Difference, TopicSpec, create_topics, ensure_topic
from lakeproof.settings import settings_of


def config_of(kafka: KafkaServer, name: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    resource = ConfigResource(ResourceType.TOPIC, name)
    return {key: entry.value for key, entry in admin.describe_configs([resource])[resource].result().items()}


def test_a_topic_has_partitions_retention_compaction_and_replicas_of_the_settings(kafka: KafkaServer) -> None:
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    settings = {
        "LAKE_TOPIC_PARTITIONS": "5",
        "LAKE_TOPIC_RETENTION_HOURS": "0.5",
        "LAKE_TOPIC_CLEANUP": "compact,delete",
        "LAKE_TOPIC_REPLICATION": "1",
        "LAKE_TOPIC_MIN_INSYNC_REPLICAS": "1",
    }
    name = f"test-{uuid.uuid4().hex[:12]}"
    topic = TopicSpec.of(name, settings_of(settings).topics)
    assert create_topics(client, [topic]) == []
    found = AdminClient(client).list_topics(name).topics[name].partitions
    assert [len(partition.replicas) for partition in found.values()] == [1] * 5
    config = config_of(kafka, name)
    expected = {"cleanup.policy": "compact,delete", "retention.ms": "1800000", "min.insync.replicas": "1"}
    assert {key: config[key] for key in expected} == expected

    assert create_topics(client, [topic]) == []
    other = TopicSpec.of(name, settings_of({"LAKE_TOPIC_PARTITIONS": "7", "LAKE_TOPIC_REPLICATION": "2"}).topics)
    assert create_topics(client, [other]) == [
        Difference(name, "partitions", "7", "5"),
        Difference(name, "replication", "2", "1"),
        Difference(name, "cleanup.policy", "delete", "compact,delete"),
        Difference(name, "retention.ms", "604800000", "1800000"),
    ]
    assert config_of(kafka, name) == config
    assert len(AdminClient(client).list_topics(name).topics[name].partitions) == 5


def test_a_setting_that_the_broker_does_not_report_is_not_compared(kafka: KafkaServer) -> None:
    topic = TopicSpec(kafka.new_topic(partitions=1), 1, 1, {"setting.of.another.maker": "1"})
    assert create_topics({"bootstrap.servers": kafka.bootstrap_servers}, [topic]) == []


def test_a_configuration_that_the_user_may_not_see_is_not_compared(kafka: KafkaServer) -> None:
    name = kafka.new_topic(partitions=2)
    with kafka.only_allowing(name, AclOperation.WRITE) as login, capture_logs() as logs:
        client = client_properties(settings_of(login).kafka)
        found = create_topics(client, [TopicSpec(name, 3, 1, {"retention.ms": "1"})])
    assert found == [Difference(name, "partitions", "3", "2")]
    message = "cannot compare the configuration: the user lacks DescribeConfigs"
    assert logs == [{"event": message, "log_level": "warning", "topic": name}]


def test_a_topic_that_cannot_be_created_is_told(kafka: KafkaServer) -> None:
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    for topic in (TopicSpec("test-unknown-config", 1, 1, {"cleanup.policy": "keep"}), TopicSpec("test-replicas", 1, 5)):
        with pytest.raises(UsageError, match=f"Kafka refuses to create the topic {topic.name}"):
            create_topics(client, [topic])


def test_a_topic_is_compared_once_the_broker_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has just created it: the controller knows it earlier than the broker that is asked."""
    exists: Future[None] = Future()
    exists.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
    unknown = Mock(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
    known = Mock(error=None, partitions={0: Mock(replicas=[1])})
    answers = [Mock(topics=topics) for topics in ({}, {"t": unknown}, {"t": unknown}, {"t": known})]
    admin = Mock(**{"create_topics.return_value": {"t": exists}, "list_topics.side_effect": answers})
    admin.describe_configs.side_effect = lambda found, **_: {
        each: Mock(**{"result.return_value": {}}) for each in found
    }
    monkeypatch.setattr(create, "AdminClient", lambda _: admin)
    assert create_topics({}, [TopicSpec("t", 2, 1)]) == [Difference("t", "partitions", "2", "1")]
    admin.list_topics.side_effect = None
    admin.list_topics.return_value = Mock(topics={"t": unknown})
    monkeypatch.setattr(create, "_KNOWN_SECONDS", 0.0)
    with pytest.raises(UnavailableError, match="Unknown topic"):
        create_topics({}, [TopicSpec("t", 2, 1)])


@pytest.mark.parametrize(("replication", "kind"), [(None, UnavailableError), (1, UnavailableError), (3, UsageError)])
def test_brokers_that_restart_are_no_mistake(
    monkeypatch: pytest.MonkeyPatch, replication: int | None, kind: type[LakeproofError]
) -> None:
    refused: Future[None] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR)))
    admin = Mock(**{"create_topics.return_value": {"t": refused}, "list_topics.return_value": Mock(topics={})})
    monkeypatch.setattr(create, "AdminClient", lambda _: admin)
    with pytest.raises(kind):
        create_topics({}, [TopicSpec("t", 1, replication)])
    with pytest.raises(kind):
        ensure_topic(settings_of({}).kafka, TopicSpec("t", 1, replication))
