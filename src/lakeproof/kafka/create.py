"""Create topics, and compare existing ones with the settings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.kafka.client import client_properties
from lakeproof.kafka.topic import Topic, unavailable
from lakeproof.settings import KafkaSettings, TopicSettings

log = structlog.get_logger()

_PATIENCE_SECONDS = 5.0
_KNOWN_SECONDS = 10.0
_POLL_SECONDS = 0.1
_BROKER_DEFAULT = -1


@dataclass(frozen=True)
class TopicSpec:
    """The desired configuration of a topic."""

    name: str
    partitions: int
    replication: int | None = None  # None for the broker's default
    config: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, settings: TopicSettings) -> "TopicSpec":
        """Return the desired configuration from the settings."""
        config = {
            "cleanup.policy": settings.cleanup,
            "retention.ms": str(round(settings.retention_hours * 3_600_000)),
        }
        if settings.min_insync_replicas is not None:
            config["min.insync.replicas"] = str(settings.min_insync_replicas)
        return cls(name, settings.partitions, settings.replication, config)


@dataclass(frozen=True)
class Difference:
    """A difference of an existing topic from the desired configuration."""

    topic: str
    what: str  # ``partitions``, ``replication`` or a key of Kafka's configuration
    expected: str
    found: str


def create_topics(client: Mapping[str, Any], topics: Iterable[TopicSpec]) -> list[Difference]:
    """Create missing topics; return the differences of existing topics, which are not changed."""
    admin = AdminClient(dict(client))
    try:
        existing = admin.list_topics(timeout=_PATIENCE_SECONDS).topics
        found: list[Difference] = []
        for topic in topics:
            created = topic.name not in existing and _create(admin, topic)
            partitions = _partitions(admin, topic.name)
            if not created:
                found += _differences(admin, topic, partitions)
    except KafkaException as error:
        raise UnavailableError(
            f"Kafka does not answer: {error.args[0].str()}.",
            "Check LAKE_KAFKA_BOOTSTRAP_SERVERS and the brokers, then try again.",
        ) from error
    return found


def ensure_topic(kafka: KafkaSettings, topic: TopicSpec) -> bool:
    """Create a topic if it does not exist; return whether it was created."""
    problems: list[KafkaError] = []
    properties: dict[str, Any] = {**client_properties(kafka), "error_cb": problems.append}
    admin = AdminClient(properties)
    try:
        return topic.name not in admin.list_topics(timeout=_PATIENCE_SECONDS).topics and _create(admin, topic)
    except KafkaException as error:
        admin.poll(0)  # calls `error_cb`
        raise unavailable(kafka, topic.name, error.args[0], problems) from error


def ready_topic(kafka: KafkaSettings, topic: TopicSpec) -> str:
    """Create a topic if it does not exist, wait until all brokers know it, and return its id."""
    created = ensure_topic(kafka, topic)
    if created:
        log.info("topic created", topic=topic.name, partitions=topic.partitions)
    known_by = monotonic() + (_KNOWN_SECONDS if created else 0)
    while True:
        try:
            return Topic(kafka, topic.name).identity()[0]
        except UnavailableError:  # other brokers learn of a new topic a moment later
            if monotonic() >= known_by:
                raise
            sleep(_POLL_SECONDS)


def _create(admin: AdminClient, topic: TopicSpec) -> bool:
    """Create a topic; False if another process created it."""
    replication = _BROKER_DEFAULT if topic.replication is None else topic.replication
    asked = NewTopic(topic.name, topic.partitions, replication, config=dict(topic.config))
    try:
        admin.create_topics([asked], operation_timeout=_PATIENCE_SECONDS)[topic.name].result()
    except KafkaException as error:
        why = error.args[0]
        if why.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if why.retriable() or why.code() < 0:
            raise
        # One replica, or the brokers' own number, is possible again once enough brokers run.
        if why.code() == KafkaError.INVALID_REPLICATION_FACTOR and topic.replication in (None, 1):
            raise
        raise UsageError(
            f"Kafka refuses to create the topic {topic.name}: {why.str()}.",
            "Change the LAKE_TOPIC_ settings, or create the topic yourself.",
        ) from error
    return True


def _partitions(admin: AdminClient, name: str) -> Mapping[int, Any]:
    """Return the partitions of a topic, once the broker knows it: the controller creates it a moment earlier."""
    known_by = monotonic() + _KNOWN_SECONDS
    while True:
        topic = admin.list_topics(name, timeout=_PATIENCE_SECONDS).topics[name]
        if topic.error is None or topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            return dict(topic.partitions)
        if monotonic() >= known_by:
            raise KafkaException(topic.error)
        sleep(_POLL_SECONDS)


def _differences(admin: AdminClient, topic: TopicSpec, partitions: Mapping[int, Any]) -> list[Difference]:
    replicas = min((len(partition.replicas) for partition in partitions.values()), default=0)
    config = _config(admin, topic.name)
    pairs = [("partitions", str(topic.partitions), str(len(partitions)))]
    if topic.replication is not None:
        pairs.append(("replication", str(topic.replication), str(replicas)))
    # Brokers of other makers do not report every setting.
    pairs += [(name, value, config[name].value) for name, value in topic.config.items() if name in config]
    return [Difference(topic.name, what, expected, found) for what, expected, found in pairs if expected != found]


def _config(admin: AdminClient, topic: str) -> Mapping[str, Any]:
    """Return the configuration of a topic; empty if the user may not see it, which sending does not require."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        return dict(admin.describe_configs([resource], request_timeout=_PATIENCE_SECONDS)[resource].result())
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        log.warning("cannot compare the configuration: the user lacks DescribeConfigs", topic=topic)
        return {}
