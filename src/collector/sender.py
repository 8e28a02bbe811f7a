"""Sends events to Kafka and tracks their acknowledgements.

All Python code runs in the event loop: librdkafka sends in its own threads, and :meth:`Sender._serve` polls for its
delivery reports while some are outstanding. So there are no locks, and no Python thread competes for the interpreter.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from collector.answers import Receipt
from collector.events import Events
from lakeproof.errors import UnavailableError
from lakeproof.kafka.client import accepted_settings
from lakeproof.kafka.create import TopicSpec, create_topics
from lakeproof.settings import CollectorSettings, Settings

Headers = list[tuple[str, str | bytes | None]]

_SERVE_SECONDS = 0.001  # adds to the latency of a post
_PROBE_SECONDS = 1.0
_PREPARE_SECONDS = 1.0
_PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "partitioner": "murmur2_random",  # as in Java clients
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 100,
    # The default of 10 s is as long as a post may take.
    "reconnect.backoff.max.ms": 1_000,
    "log.connection.close": False,
    "log_level": 4,
    # The collector's own budget is the limit; it is checked before an event gets here.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_097_151,
}


class _Post:
    """The events of a post in flight."""

    __slots__ = ("done", "outcomes", "pending", "sender")

    def __init__(self, sender: "Sender", count: int, done: asyncio.Future[None]) -> None:
        self.sender = sender
        self.outcomes: list[Receipt | str] = ["not sent"] * count
        self.pending = count
        self.done = done

    def delivered(self, index: int, error: KafkaError | None, message: Message) -> None:
        """Handle a delivery report; called per event, so it is short."""
        if error is not None:
            self.outcomes[index] = error.str()
        else:
            self.sender.acknowledged = True
            partition, offset = message.partition(), message.offset()
            if partition is None or offset is None or offset < 0:
                # A retried batch that the broker already had: it does not return the offset.
                self.outcomes[index] = "acknowledged without an offset"
            else:
                self.outcomes[index] = Receipt(self.sender.topic, partition, offset)
        self.settle()

    def settle(self) -> None:
        self.pending -= 1
        if not self.pending and not self.done.done():
            self.done.set_result(None)


class Sender:
    """Sends messages to one topic."""

    def __init__(
        self, client: Mapping[str, Any], settings: CollectorSettings, on_fatal: Callable[[Exception], None]
    ) -> None:
        self.topic = settings.topic
        self.acknowledged = False
        """Whether Kafka has acknowledged a message since the last poll."""
        self._settings = settings
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        own = {"delivery.timeout.ms": round(settings.deadline_seconds * 1000), "error_cb": self._on_error}
        with accepted_settings():
            self._producer = Producer({**client, **_PRODUCER, **own}, logger=logging.getLogger("librdkafka"))
        self._posts: dict[_Post, float] = {}
        """Posts in flight, oldest first, with the time at which they were sent."""
        self._serving = False
        self._probing = False
        self._acknowledged_at = float("-inf")

    @property
    def why_not_ready(self) -> str | None:
        """Why posts are refused; None if Kafka acknowledges messages."""
        limit = self._settings.ready_seconds
        now = self._loop.time()
        if self._acknowledged_at == float("-inf"):
            return "Kafka has not acknowledged anything yet"
        if now - self._acknowledged_at > limit:
            return f"Kafka has not acknowledged anything for {now - self._acknowledged_at:.0f} s"
        oldest = next(iter(self._posts.values()), now)
        if now - oldest > limit:
            return f"Kafka has not acknowledged an event for {now - oldest:.0f} s"
        return None

    async def send(self, events: Events, headers: Sequence[Headers | None]) -> list[Receipt | str]:
        """Send events and wait until all are acknowledged or the deadline has passed."""
        post = _Post(self, len(events.values), self._loop.create_future())
        self._posts[post] = self._loop.time()
        produce, topic, delivered = self._producer.produce, self.topic, post.delivered
        for index, (value, key, each) in enumerate(zip(events.values, events.keys, headers, strict=True)):
            try:
                produce(topic, value, key, headers=each, on_delivery=partial(delivered, index))
            except (BufferError, KafkaException) as error:
                post.outcomes[index] = str(error)
                post.settle()
        self._serve_soon()
        try:
            await post.done
        finally:
            self._posts.pop(post, None)
        return post.outcomes

    def probe(self) -> None:
        """Send a probe, unless one is in flight or a message was just acknowledged."""
        if not self._probing and self._loop.time() - self._acknowledged_at >= _PROBE_SECONDS:
            try:
                self._producer.produce(self._settings.probe_topic, b"", on_delivery=self._probed)
            except (BufferError, KafkaException) as error:
                structlog.get_logger().warning("probe not sent", why=str(error))
            else:
                self._probing = True
        self._serve_soon()

    def close(self) -> None:
        """Drop queued probes and posts whose clients will not be answered."""
        with suppress(KafkaException):
            self._producer.purge()
        self._producer.flush(1.0)

    def _serve_soon(self) -> None:
        if not self._serving:
            self._serving = True
            self._loop.call_later(_SERVE_SECONDS, self._serve)

    def _serve(self) -> None:
        self._serving = False
        self._producer.poll(0)
        if self.acknowledged:
            self.acknowledged = False
            self._acknowledged_at = self._loop.time()
        if len(self._producer):
            self._serve_soon()

    def _probed(self, error: KafkaError | None, _message: Message) -> None:
        self._probing = False
        if error is None:
            self.acknowledged = True

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._on_fatal(UnavailableError(f"The Kafka producer failed: {error.str()}.", "Start the collector again."))
        elif error.code() != KafkaError._TRANSPORT:  # logged by librdkafka, once per connection
            structlog.get_logger().warning("kafka", message=error.str())


@asynccontextmanager
async def open_sender(
    client: Mapping[str, Any], settings: Settings, on_fatal: Callable[[Exception], None]
) -> AsyncIterator[Sender]:
    """Open a sender; create its topics when a broker answers. `on_fatal` gets fatal errors."""
    sender = Sender(client, settings.collector, on_fatal)
    upkeep = asyncio.create_task(_keep_up(sender, client, settings, on_fatal))
    try:
        yield sender
    finally:
        upkeep.cancel()
        sender.close()


async def _keep_up(
    sender: Sender, client: Mapping[str, Any], settings: Settings, on_fatal: Callable[[Exception], None]
) -> None:
    try:
        await _create_topics(client, settings)
        while True:
            sender.probe()
            await asyncio.sleep(_PROBE_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever it is: without probes, no post would be accepted again
        on_fatal(error)


async def _create_topics(client: Mapping[str, Any], settings: Settings) -> None:
    """Create the topics or log how they differ; retry until a broker answers."""
    log = structlog.get_logger()
    while True:
        try:
            found = await asyncio.to_thread(create_topics, client, topics_of(settings))
        except UnavailableError as error:
            log.warning("waiting for Kafka", message=error.message, hint=error.hint)
            await asyncio.sleep(_PREPARE_SECONDS)
            continue
        for difference in found:
            log.warning(
                "topic differs",
                topic=difference.topic,
                what=difference.what,
                expected=difference.expected,
                found=difference.found,
            )
        return


def topics_of(settings: Settings) -> list[TopicSpec]:
    """Return the collector's topics for events and probes."""
    events = TopicSpec.of(settings.collector.topic, settings.topics)
    probes = TopicSpec(
        settings.collector.probe_topic,
        1,
        events.replication,
        {name: value for name, value in events.config.items() if name == "min.insync.replicas"}
        | {"cleanup.policy": "delete", "retention.ms": "3600000"},
    )
    return [events, probes]
