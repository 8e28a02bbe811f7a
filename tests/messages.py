"""Kafka messages for the tests: produce them, optionally in transactions, with events as values."""

import json
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.servers import PATIENCE, KafkaServer

Headers = list[tuple[str, bytes | None]]


class RefusingConsumer(Consumer):
    """A client whose user has no rights on consumer groups: it says so before it returns the first messages."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._refusals = [Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))]

    def consume(self, *arguments: Any) -> list[Message]:
        """Return the refusal, then messages."""
        found, self._refusals = self._refusals, []
        return found or super().consume(*arguments)


def event(number: int, **changes: object) -> bytes:
    """Return an event that meets its contract."""
    fields = {
        "user_id": "u",
        "event_id": f"e{number}",
        "event_timestamp": "2026-11-21T06:00:00Z",
        "event_type": "page_view",
    }
    return json.dumps(fields | changes).encode()


def send(
    kafka: KafkaServer,
    topic: str,
    values: Iterable[bytes | None],
    partition: int = 0,
    key: bytes | None = None,
    headers: Headers | None = None,
    **config: str | int,
) -> None:
    """Append messages to a partition, and wait until they are acknowledged."""
    options = {name.replace("_", "."): value for name, value in config.items()}
    # Idempotent: on a busy machine, an answer takes longer than the client's timeout, and it sends the messages again.
    usual = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
    producer = Producer(usual | options)
    for value in values:
        producer.produce(topic, value=value, partition=partition, key=key, headers=headers or [])
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def send_in_transaction(
    kafka: KafkaServer, topic: str, values: Iterable[bytes], *, commit: bool, partition: int = 0
) -> None:
    """Append messages in one transaction, and commit or abort it."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    producer.flush(PATIENCE)
    if commit:
        producer.commit_transaction(PATIENCE)
    else:
        producer.abort_transaction(PATIENCE)


def messages(kafka: KafkaServer, topic: str, partition: int = 0) -> list[int]:
    """Return the offsets of the messages in a partition."""
    reading = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "tests", "enable.partition.eof": True}
    reading["auto.offset.reset"] = "earliest"
    consumer = Consumer(reading)
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    while not (message := _next(consumer)).error():
        found.append(message.offset() or 0)
    consumer.close()
    return found


def received(kafka: KafkaServer, topic: str) -> list[Message]:
    """Return all messages of a topic, by partition."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    partitions = admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
    reading = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "tests", "enable.partition.eof": True}
    consumer = Consumer(reading)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[Message] = []
    ended = 0
    while ended < len(partitions):
        message = _next(consumer)
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))


def _next(consumer: Consumer) -> Message:
    """Return the next message, or the end of a partition, as soon as it is there; `consume` would wait for several.

    Other errors pass: of a broker that stalls, or of the group, which is not used.
    """
    while (message := consumer.poll(1.0)) is None or not _is_of_partition(message.error()):
        pass
    return message


def _is_of_partition(error: KafkaError | None) -> bool:
    return error is None or error.code() == KafkaError._PARTITION_EOF
