"""State of a topic at the brokers: id, partitions, offsets."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.kafka.client import accepted_settings, client_properties
from lakeproof.kafka.offsets import Offsets, Range
from lakeproof.topics import milliseconds_of, starting_offsets

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from lakeproof.settings import KafkaSettings

_MOST_REQUEST_SECONDS = 10.0
# A broker may not know a new topic for a moment.
_NEW_TOPIC_SECONDS = 3.0
_NEW_TOPIC_POLL_SECONDS = 0.1
_OLDEST_SECONDS = 3.0
_ONE_MESSAGE = {
    "group.id": "lakeproof",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 1,  # per partition; a broker sends the first batch regardless of its size
    "fetch.wait.max.ms": 100,
}
_LAST_MILLISECOND = 253_402_300_799_999  # of the year 9999


@dataclass(frozen=True)
class Extent:
    """Available offsets of a partition, from `first` up to `end` (exclusive).

    `end` is the last stable offset: later messages may belong to an open transaction.
    """

    first: int
    end: int


class NoTopicError(UnavailableError):
    """The brokers answer, and do not have a topic."""


class Topic:
    """A topic."""

    def __init__(self, kafka: "KafkaSettings", name: str) -> None:
        self.name = name
        self._kafka = kafka
        self._problems: list[KafkaError] = []
        self._seconds = min(kafka.timeout_seconds, _MOST_REQUEST_SECONDS)
        with accepted_settings():
            properties: dict[str, Any] = {**client_properties(kafka), "error_cb": self._problems.append}
            self._admin = _admin().AdminClient(properties)

    def identity(self) -> tuple[str, list[int]]:
        """Return the id of the topic, assigned when it was created, and its partitions."""
        from confluent_kafka import TopicCollection

        topics = TopicCollection([self.name])
        found = self._ask(lambda: self._admin.describe_topics(topics, request_timeout=self._seconds))[self.name]
        return str(found.topic_id), sorted(partition.id for partition in found.partitions)

    def extents(self, partitions: Iterable[int]) -> dict[int, Extent]:
        """Return the available offsets of partitions."""
        wanted = list(partitions)
        first = self._offsets(wanted, _admin().OffsetSpec.earliest())
        end = self._offsets(wanted, _admin().OffsetSpec.latest())
        return {partition: Extent(first[partition], end[partition]) for partition in wanted}

    def behind(self, at: Offsets, partitions: Iterable[int]) -> int:
        """Return the number of offsets after a position."""
        return sum(max(extent.end - at.next(number), 0) for number, extent in self.extents(partitions).items())

    def waiting_since(self, at: Offsets, partitions: Iterable[int]) -> datetime | None:
        """Return the time of the oldest message after a position; None without a message, or if brokers are slow."""
        from confluent_kafka import Consumer, TopicPartition

        extents = self.extents(partitions)
        starts = {number: max(at.next(number), extent.first) for number, extent in extents.items()}
        left = [
            TopicPartition(self.name, number, start) for number, start in starts.items() if start < extents[number].end
        ]
        sent: dict[int, int] = {}  # milliseconds since 1970, by partition
        deadline = time.monotonic() + _OLDEST_SECONDS
        properties = {**client_properties(self._kafka), **_ONE_MESSAGE, "error_cb": self._problems.append}
        with closing(Consumer(properties)) as consumer:
            consumer.assign(left)
            while len(sent) < len(left) and (seconds := deadline - time.monotonic()) > 0:
                message = consumer.poll(seconds)
                if message is None or message.error():
                    continue
                _, milliseconds = message.timestamp()
                sent.setdefault(message.partition() or 0, milliseconds)
        return oldest_time(sent.values())

    def starting(self, text: str, partitions: Iterable[int]) -> Offsets:
        """Resolve ``LAKE_KAFKA_STARTING_OFFSETS`` to a position."""
        wanted, begin = list(partitions), starting_offsets(text)
        extents = self.extents(wanted)
        found = {partition: extents[partition].first for partition in wanted}
        if begin == "latest":
            found = {partition: extents[partition].end for partition in wanted}
        elif isinstance(begin, datetime):
            found = self._at(begin, wanted, extents)
        elif isinstance(begin, dict):
            for partition, offset in begin.items():
                extent = extents.get(partition)
                if extent is None or not extent.first <= offset <= extent.end:
                    has = f"offsets {extent.first:,} to {extent.end:,}" if extent else f"partitions {wanted}"
                    raise UsageError(
                        f"LAKE_KAFKA_STARTING_OFFSETS: partition {partition} of {self.name} has no offset "
                        f"{offset:,}; the topic has {has}.",
                        "Use offsets that the topic has, or earliest.",
                    )
            found |= begin
        return Offsets.of(self.name, found)

    def between(self, since: datetime, until: datetime, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Find the offsets of messages from one time up to another."""
        wanted = list(partitions)
        extents = self.extents(wanted)
        begin, end = (self._at(each, wanted, extents) for each in (since, until))
        return {partition: (begin[partition], end[partition]) for partition in wanted}

    def _at(self, time: datetime, partitions: list[int], extents: Mapping[int, Extent]) -> dict[int, int]:
        """Return the first offsets at or after a time; without such messages, the end of the partition."""
        at = self._offsets(partitions, _admin().OffsetSpec.for_timestamp(milliseconds_of(time)))
        return {partition: at[partition] if at[partition] >= 0 else extents[partition].end for partition in partitions}

    def is_compacted(self) -> bool:
        """Whether the topic is compacted."""
        resource = _admin().ConfigResource(_admin().ConfigResource.Type.TOPIC, self.name)
        config = self._ask(lambda: self._admin.describe_configs([resource], request_timeout=self._seconds))[resource]
        return "compact" in str(config["cleanup.policy"].value)

    def _offsets(self, partitions: list[int], spec: Any) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        asked = {TopicPartition(self.name, partition): spec for partition in partitions}
        committed = IsolationLevel.READ_COMMITTED
        found = self._ask(
            lambda: self._admin.list_offsets(asked, isolation_level=committed, request_timeout=self._seconds)
        )
        return {place.partition: int(answer.offset) for place, answer in found.items()}

    def _ask(self, ask: "Callable[[], Mapping[Any, Future[Any]]]") -> dict[Any, Any]:
        """Call the brokers; retry if they do not know the topic yet."""
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + _NEW_TOPIC_SECONDS
        while True:
            try:
                found = {key: future.result(self._seconds + 5) for key, future in ask().items()}
            except KafkaException as error:
                is_new = error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
                if not is_new or time.monotonic() > deadline:
                    raise self._unavailable(error.args[0]) from error
                time.sleep(_NEW_TOPIC_POLL_SECONDS)
            except TimeoutError as error:
                raise self._unavailable(None) from error
            else:
                self._admin.poll(0)  # calls `error_cb`
                self._problems.clear()  # they are over, and not the reason for a later outage
                return found

    def _unavailable(self, error: "KafkaError | None") -> LakeproofError:
        self._admin.poll(0)  # calls `error_cb`
        return unavailable(self._kafka, self.name, error, self._problems)


def are_removed(ranges: Iterable[Range], extents: Mapping[int, Extent]) -> bool:
    """Return whether all ranges are before the first offsets that the topic still has."""
    return all(end <= extents[partition].first for partition, _, end in ranges)


def oldest_time(sent: Iterable[int]) -> datetime | None:
    """Return the oldest of some times in milliseconds since 1970, without -1 for none, and years that Python lacks."""
    known = [milliseconds for milliseconds in sent if 0 <= milliseconds <= _LAST_MILLISECOND]
    return datetime.fromtimestamp(min(known) / 1000, UTC) if known else None


def unavailable(
    kafka: "KafkaSettings",
    topic: str,
    error: "KafkaError | None",
    problems: "Iterable[KafkaError]" = (),
    at: tuple[int | None, int | None] = (None, None),
) -> UnavailableError:
    """Return the error for a topic that cannot be used.

    `problems` are what the client has noted of its connections; `at` is the partition and offset, if known.
    """
    from confluent_kafka import KafkaError as Kind

    code = error.code() if error else None
    if code in (Kind.UNKNOWN_TOPIC_OR_PART, Kind._UNKNOWN_TOPIC, Kind._UNKNOWN_PARTITION):
        return NoTopicError(
            f"Kafka at {kafka.bootstrap_servers} has no topic {topic}.",
            "Create the topic, or check --topic and LAKE_KAFKA_BOOTSTRAP_SERVERS.",
        )
    if code in (Kind.TOPIC_AUTHORIZATION_FAILED, Kind.CLUSTER_AUTHORIZATION_FAILED):
        return UnavailableError(
            f"Kafka at {kafka.bootstrap_servers} does not let the user {kafka.sasl_username} use {topic}.",
            "Let the user describe the topic and its configuration (Describe, DescribeConfigs), and read or write it.",
        )
    partition, offset = at
    if error and offset is not None:
        return UnavailableError(
            f"Kafka at {kafka.bootstrap_servers} does not deliver the message at offset {offset:,} of partition "
            f"{partition} of {topic}: {error.str().rstrip('.')}.",
            "Check the brokers, and try again. If the message is damaged, see docs/kafka.md#damaged-messages.",
        )
    known = [*problems, *([error] if error else [])]
    for problem in known:
        if problem.code() in (Kind._AUTHENTICATION, Kind.SASL_AUTHENTICATION_FAILED):
            return UnavailableError(
                f"Kafka at {kafka.bootstrap_servers} refused the login of {kafka.sasl_username or 'no user'}: "
                f"{problem.str().rstrip('.')}.",
                "Check LAKE_KAFKA_SASL_USERNAME, LAKE_KAFKA_SASL_PASSWORD and LAKE_KAFKA_SASL_MECHANISM.",
            )
    why = known[0].str() if known else ""
    return UnavailableError(
        f"Kafka at {kafka.bootstrap_servers} does not respond{f': {why}' if why else ''}.",
        "Start the brokers, or check LAKE_KAFKA_BOOTSTRAP_SERVERS and LAKE_KAFKA_SECURITY_PROTOCOL.",
    )


def _admin() -> Any:
    """Return the admin module, which has incomplete type hints."""
    import confluent_kafka.admin

    return confluent_kafka.admin
