"""Send messages that all in-sync replicas acknowledge."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lakeproof.errors import LakeproofError, UsageError
from lakeproof.kafka.client import accepted_settings, client_properties
from lakeproof.kafka.topic import unavailable
from lakeproof.settings import KafkaSettings

Headers = list[tuple[str, str | bytes | None]]

_BY_KEY = -1  # partition of a message: chosen by its key
_POLL_SECONDS = 0.1
_MORE_SECONDS = 5.0
_OPTIONS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "compression.type": "lz4",
    "message.max.bytes": 1_000_000_000,  # the topic decides what is too large
    "partitioner": "murmur2_random",  # as in Java clients, so that a key is always in the same partition
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 64 * 1024,  # limits memory: a full queue blocks the sender
}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int = _BY_KEY


@dataclass(slots=True)
class Sent:
    """Result of sending several messages."""

    acknowledged: int = 0
    in_doubt: int = 0  # not acknowledged, but possibly in the topic
    # First and last acknowledged offset by partition, if the brokers reported it.
    places: dict[int, tuple[int, int]] = field(default_factory=dict)


class TooLargeError(UsageError):
    """A message is larger than the topic or the client allows."""


class SendingError(LakeproofError):
    """Some messages were not acknowledged, see `sent`. Has the exit code of the cause."""

    def __init__(self, cause: LakeproofError, sent: Sent) -> None:
        doubt = f"{sent.in_doubt:,} messages were not acknowledged and may be in the topic or not."
        super().__init__(f"{cause.message} {doubt}", cause.hint)
        self.exit_code = cause.exit_code  # type: ignore[misc]
        self.retryable = cause.retryable  # type: ignore[misc]
        self.cause = cause
        self.sent = sent


class Sending:
    """Sends messages to one topic."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self.topic = topic
        self._kafka = kafka
        self._problems: list[KafkaError] = []
        own = {"delivery.timeout.ms": round(kafka.timeout_seconds * 1000), "error_cb": self._problems.append}
        with accepted_settings():
            self._producer = Producer({**client_properties(kafka), **_OPTIONS, **own})

    def send(self, messages: Iterable[Outgoing]) -> Sent:
        """Send messages and wait until all are acknowledged."""
        sent, failed = Sent(), list[KafkaError]()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                sent.in_doubt += 1
                failed.append(error)
                return
            sent.acknowledged += 1
            partition, offset = message.partition(), message.offset()
            # The broker does not report the offset of a repeated request.
            if partition is not None and offset is not None and offset >= 0:
                first, last = sent.places.get(partition, (offset, offset))
                sent.places[partition] = (min(first, offset), max(last, offset))

        self._problems.clear()
        for message in messages:
            if failed:
                break
            try:
                self._produce(message, delivered)
            except KafkaException as error:
                sent.in_doubt += 1
                failed.append(error.args[0])
        # Every message has a delivery timeout, so the queue is empty soon after the last one.
        left = self._producer.flush(self._kafka.timeout_seconds + _MORE_SECONDS)
        if failed or left:
            sent.in_doubt += left
            raise SendingError(self._why(failed[0] if failed else None), sent)
        return sent

    def _produce(self, message: Outgoing, delivered: Any) -> None:
        deadline = time.monotonic() + self._kafka.timeout_seconds + _MORE_SECONDS
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    message.value,
                    message.key,
                    message.partition,
                    headers=message.headers,
                    on_delivery=delivered,
                )
            except BufferError:  # the queue is full until messages are acknowledged or time out
                if not len(self._producer):  # the message does not even fit into an empty queue
                    raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)) from None
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
                self._producer.poll(_POLL_SECONDS)
            else:
                self._producer.poll(0)
                return

    def _why(self, error: KafkaError | None) -> LakeproofError:
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return TooLargeError(
                f"A message is larger than Kafka accepts for the topic {self.topic}.",
                "Raise max.message.bytes of the topic and message.max.bytes of the brokers, up to 64 MiB, or send less "
                "at once.",
            )
        return unavailable(self._kafka, self.topic, error, self._problems)
