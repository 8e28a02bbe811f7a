"""Sending messages: acknowledged by all replicas in sync, or an error; never silently dropped."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeproof.errors import LakeproofError, UsageError
from lakeproof.kafka.client import client_properties
from lakeproof.kafka.topic import unavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from lakeproof.settings import KafkaSettings

ID_HEADER = "lakeproof-id"
"""Header with the id of a message: one that is sent again has the same, so that a reader can drop it."""

_MOST_BYTES = 1_000_000_000


class Sender:
    """Sends messages to a topic.

    Parameters
    ----------
    kafka, topic
        Where.
    """

    def __init__(self, kafka: "KafkaSettings", topic: str) -> None:
        from confluent_kafka import KafkaException, Producer

        self._kafka = kafka
        self._topic = topic
        self._error: KafkaError | None = None
        self._problems: list[str] = []
        properties: dict[str, Any] = {
            **client_properties(kafka),
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "message.max.bytes": _MOST_BYTES,  # the broker knows what the topic accepts
            "message.timeout.ms": int(kafka.timeout_seconds * 1000),
            "error_cb": lambda error: self._problems.append(error.str()),
        }
        try:
            self._producer = Producer(properties)
        except (KafkaException, ValueError, TypeError) as error:
            raise UsageError(f"Kafka's client does not accept the settings: {error}.", "Check LAKE_KAFKA_….") from error

    def send(self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> None:
        """Send a message; wait while the queue is full.

        Raises
        ------
        LakeproofError
            A message that was sent before cannot be delivered.
        """
        while True:
            self._check()
            try:
                self._producer.produce(self._topic, value, key, headers=list(headers), on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.2)
            else:
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Wait until all messages are acknowledged.

        Raises
        ------
        LakeproofError
            One cannot be delivered.
        """
        while self._producer.flush(1.0):
            self._check()
        self._check()

    def _delivered(self, error: "KafkaError | None", _message: object) -> None:
        self._error = self._error or error

    def _check(self) -> None:
        from confluent_kafka import KafkaError

        if self._error is None:
            return
        if self._error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise LakeproofError(
                f"A message is too large for the topic {self._topic}.",
                "Raise max.message.bytes of the topic, then run the command again.",
            )
        raise unavailable(self._kafka, self._topic, self._error, self._problems)


@contextmanager
def sending(kafka: "KafkaSettings", topic: str) -> Iterator[Sender]:
    """Send messages; at the end of the context, all are acknowledged.

    Raises
    ------
    LakeproofError
        One cannot be delivered.
    """
    sender = Sender(kafka, topic)
    yield sender
    sender.finish()
