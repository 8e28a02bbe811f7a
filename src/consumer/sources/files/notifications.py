"""Notifications: events of a bucket, in a topic, name new files without a listing.

They are hints. Each named key is checked before it is taken: a duplicate, late or wrong event does no harm, and the
next sweep finds the files of lost events. So no position in the topic is kept: a consumer starts at the end of the
topic, and then sweeps.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from lakeproof.errors import LakeproofError
from lakeproof.kafka.client import accepted_settings, client_properties, is_about_group
from lakeproof.kafka.topic import Topic
from lakeproof.settings import KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_MESSAGES_AT_ONCE = 5_000
_WAIT_SECONDS = 0.05
_MOST_KEY_BYTES = 1_024


class Notifications:
    """Reads a topic of events. One thread connects, another thread reads."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self._kafka = kafka
        self._topic = Topic(kafka, topic)
        self._consumer: Any = None  # of confluent-kafka, whose type hints are incomplete
        self._identity: tuple[str, list[int]] | None = None
        self.is_up = False
        """Whether notifications of new files can be expected."""

    def connect(self) -> bool:
        """Start reading at the end of the topic, unless connected; return whether events may have been missed."""
        try:
            identity = self._topic.identity()
            if identity == self._identity:
                self.is_up = True
                return False
            ends = self._topic.extents(identity[1])
        except LakeproofError:  # until the topic is available again, listings find the files
            self.is_up = False
            return False
        from confluent_kafka import Consumer, TopicPartition

        own = {"group.id": "lakeproof-notifications", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        with accepted_settings():
            consumer = Consumer({**client_properties(self._kafka), **own, "error_cb": self._note})
        consumer.assign([TopicPartition(self._topic.name, number, each.end) for number, each in ends.items()])
        self._consumer, self._identity, self.is_up = consumer, identity, True
        return True

    def uris(self) -> list[str]:
        """Return the URIs of objects created since the last call, possibly with duplicates."""
        if self._consumer is None:
            return []
        messages = self._consumer.consume(_MESSAGES_AT_ONCE, _WAIT_SECONDS)
        errors = [error for message in messages if (error := message.error())]
        if not all(map(is_about_group, errors)):  # the topic was deleted, or may no longer be read
            self.is_up = False
        return [uri for message in messages if not message.error() for uri in created(message.value() or b"")]

    def _note(self, error: "KafkaError") -> None:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION):
            self.is_up = False


def created(value: bytes) -> Iterator[str]:
    """Yield the URIs of the objects that were created, according to an event; nothing for other messages.

    Accepts the format of S3 and MinIO, directly or within a message of SNS, and the format of EventBridge.
    """
    for bucket, key in _objects(value):
        if _is_key(key):
            yield f"s3://{bucket}/{key}"


def _is_key(text: str) -> bool:
    """Whether an object can have the key, and the landing log can look it up."""
    try:
        return len(text.encode()) <= _MOST_KEY_BYTES and "\0" not in text
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _objects(value: bytes) -> Iterator[tuple[str, str]]:
    """Yield bucket and key of the objects that were created."""
    try:
        event = json.loads(value)
    except (ValueError, RecursionError):
        return
    match event:
        case {"Records": list(records)}:
            for record in records:
                match record:
                    case {"eventName": str(what), "s3": {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}}}:
                        if "ObjectCreated:" in what:
                            yield bucket, unquote_plus(key)
        case {
            "detail-type": "Object Created",
            "detail": {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}},
        }:
            yield bucket, key
        case {"Type": "Notification", "Message": str(message)}:
            yield from _objects(message.encode(errors="surrogatepass"))
