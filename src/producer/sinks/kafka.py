"""Send records to a Kafka topic, each as a message with its id as key."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import structlog

from lakeproof.kafka.create import TopicSpec, ensure_topic
from lakeproof.kafka.offsets import source_name
from lakeproof.kafka.sending import Outgoing, Sending, SendingError, Sent
from lakeproof.settings import Settings
from producer.sinks import Sink

if TYPE_CHECKING:
    from producer.batches import Batch


def connect(topic: str, settings: Settings) -> Sink:
    """Create the topic if it does not exist, and open a sink for it."""
    if ensure_topic(settings.kafka, TopicSpec.of(topic, settings.topics)):
        structlog.get_logger().info("topic created", topic=topic, partitions=settings.topics.partitions)
    return _KafkaSink(Sending(settings.kafka, topic))


class _KafkaSink(Sink):
    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._messages = 0
        self._bytes = 0
        self._places: dict[int, tuple[int, int]] = {}
        self._unfinished: Sent | None = None

    def write(self, batch: "Batch") -> None:
        messages = list(_messages(batch))
        try:
            sent = self._sending.send(messages)
        except SendingError as error:
            self._unfinished = error.sent
            raise
        self._messages += sent.acknowledged
        self._bytes += sum(len(message.value or b"") for message in messages)
        for partition, (first, last) in sent.places.items():
            self._places[partition] = (self._places.get(partition, (first, last))[0], last)

    def landed(self) -> dict[str, Any]:
        """Return the first and last message of each partition, named as in ``_source``."""
        topic = self._sending.topic
        kafka: dict[str, Any] = {
            "topic": topic,
            "messages": self._messages,
            "partitions": {
                str(partition): {
                    "first": source_name(topic, partition, first),
                    "last": source_name(topic, partition, last),
                }
                for partition, (first, last) in sorted(self._places.items())
            },
        }
        if self._unfinished:
            kafka["unfinished"] = {
                "acknowledged": self._unfinished.acknowledged,
                "in_doubt": self._unfinished.in_doubt,
            }
        return {"bytes": self._bytes, "kafka": kafka}


def _messages(batch: "Batch") -> Iterator[Outgoing]:
    if batch.corrupt:
        yield Outgoing(batch.data)  # a truncated batch has no key
        return
    for record in batch.records:
        yield Outgoing(record.data, record.key.encode() if record.key else None)
