"""Read the messages of a topic again, with the reader's own client."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import methodcaller
from time import monotonic
from typing import Any

from lakeproof.kafka.client import client_properties, is_about_group
from lakeproof.kafka.topic import unavailable
from lakeproof.settings import KafkaSettings

_GROUP = 5_000
_POLL_SECONDS = 0.5
# The client returns a list although it has set an error, which Python notices only in a call from C: after
# `message.headers()`, it would raise the error in a later call.
_headers_of = methodcaller("headers")


@dataclass(frozen=True)
class Message:
    """A message: its offset, its bytes (None for a tombstone), and the SHA-256 of its key and headers.

    Without readable headers, a message is not split, and its label is that of a message without headers.
    """

    offset: int
    value: bytes | None
    label: str
    has_readable_headers: bool = True


def label_of(key: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> str:
    """Return the SHA-256 of key and headers, as :func:`reader.verify.tables.topic.label_of` computes it for a row."""
    pairs = (f"{_hex(name.encode())}={_hex(value)}" for name, value in headers)
    return hashlib.sha256(f"{_hex(key)}|{','.join(pairs)}".encode()).hexdigest()


def _hex(value: bytes | None) -> str:
    return "-" if value is None else value.hex().upper()


def messages(kafka: KafkaSettings, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
    """Read the committed messages of a partition from `start` to before `end`, in groups."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    if start >= end:
        return
    own: dict[str, Any] = {
        "group.id": "lakeproof-reader",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",  # messages that retention removes during the check have expired
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**client_properties(kafka), **own})
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        patience = monotonic() + kafka.timeout_seconds
        at = start
        while at < end:
            group: list[Message] = []
            # Not more than are left: `consume` waits until it has as many, or for the whole time.
            for message in consumer.consume(min(_GROUP, end - at), _POLL_SECONDS):
                error = message.error()
                if error is None:
                    at = (message.offset() or 0) + 1
                    if at <= end:
                        headers = _headers(message)
                        label = label_of(message.key(), headers or ())
                        group.append(Message(at - 1, message.value(), label, headers is not None))
                elif error.code() == KafkaError._PARTITION_EOF:
                    at = end  # the remaining offsets have no message
                elif not (error.retriable() or error.code() == KafkaError._TRANSPORT or is_about_group(error)):
                    raise unavailable(kafka, topic, error, at=(partition, message.offset()))
            if group:
                patience = monotonic() + kafka.timeout_seconds
                yield group
            elif monotonic() > patience:
                raise unavailable(kafka, topic, None)
    finally:
        consumer.close()


def _headers(message: Any) -> Sequence[tuple[str, bytes | None]] | None:
    """Return the headers of a message; None if the client cannot decode the name of one of them."""
    try:
        return _headers_of(message) or ()
    except (UnicodeDecodeError, SystemError):
        return None
