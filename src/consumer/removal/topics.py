"""A person's data in a topic: tombstones are sent for its keys if the topic is compacted."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from consumer.removal.condition import Condition
from consumer.sources.kafka.read import headers_of
from lakeproof.kafka.client import client_properties, is_about_group
from lakeproof.kafka.sending import Outgoing, Sending
from lakeproof.kafka.topic import Topic, unavailable
from lakeproof.settings import KafkaSettings
from lakeproof.wording import count_of

_OPTIONS: dict[str, Any] = {
    "group.id": "lakeproof",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # the first messages may be gone: the default would skip all others
    "isolation.level": "read_committed",
}
_AT_ONCE = 1_000
_SECONDS = 0.1  # longest wait for `_AT_ONCE` messages; the messages received by then are returned


@dataclass(frozen=True)
class InTopic:
    """A person's data in a topic."""

    messages: int
    """Number of messages with data of the person."""
    tombstones: int
    """Number of keys for which a message without a value was sent."""
    is_compacted: bool
    is_ours: bool
    """Whether tombstones may be sent."""

    def __str__(self) -> str:
        has = f"{count_of(self.messages, 'message')} of it"
        if not self.is_compacted:
            return f"{has}, which stay for its retention.ms."
        if not self.is_ours:
            return f"{has}. Run this again with --in-source, to send tombstones for their keys."
        return f"{has}, until it is compacted. Tombstones sent: {self.tombstones:,}."


def forget_in_topic(kafka: KafkaSettings, name: str, condition: Condition, *, is_ours: bool) -> InTopic:
    """Send a tombstone for each key whose newest message belongs to the person.

    For other keys, the newest message replaces the older ones of the person when Kafka compacts the topic.
    """
    topic, messages = Topic(kafka, name), 0
    is_compacted = topic.is_compacted()
    newest: dict[tuple[int, bytes], bool] = {}  # whether it is the person's, by partition and key
    for message in _messages(kafka, name, topic.identity()[1]):
        is_mine = message.value() is not None and _is_in(condition, message)
        messages += is_mine
        place, key = message.partition(), message.key()
        if place is not None and key is not None and (is_mine or (place, key) in newest):
            newest[place, key] = is_mine
    keys = [place for place, is_mine in newest.items() if is_mine] if is_compacted and is_ours else []
    if keys:
        Sending(kafka, name).send(Outgoing(None, key, partition=partition) for partition, key in keys)
    return InTopic(messages, len(keys), is_compacted, is_ours)


def _messages(kafka: KafkaSettings, name: str, partitions: list[int]) -> Iterator[Message]:
    """Yield all current messages of a topic."""
    left, heard = set(partitions), time.monotonic()
    with closing(Consumer({**client_properties(kafka), **_OPTIONS})) as consumer:
        consumer.assign([TopicPartition(name, each, 0) for each in partitions])
        while left:
            found = consumer.consume(_AT_ONCE, _SECONDS)
            heard = time.monotonic() if found else heard
            if time.monotonic() - heard > kafka.timeout_seconds:
                raise unavailable(kafka, name, None)
            for message in found:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif not is_about_group(error):
                    raise unavailable(kafka, name, error, at=(message.partition(), message.offset()))


def _is_in(condition: Condition, message: Message) -> bool:
    value = message.value() or b""
    pairs = [("key", message.key()), ("value", value), *(headers_of(message) or ())]
    return condition.is_in_bytes(value) or condition.is_in_values(
        (name, each) for name, each in pairs if each is not None
    )
