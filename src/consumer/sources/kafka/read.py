"""Read messages into envelopes, within the tasks of a micro-batch."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition

from consumer.sources.envelope import Envelope, Message
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka.client import client_properties
from lakeproof.kafka.offsets import OFFSET_DIGITS, source_name
from lakeproof.kafka.topic import Topic, unavailable
from lakeproof.reasons import Reason
from lakeproof.settings import KafkaSettings, Limits

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MILLISECOND = 253_402_300_799_999  # of the year 9999
_MESSAGES_AT_ONCE = 2_000
_WAIT_SECONDS = 0.2
_FETCH = {
    # Offsets come from the checkpoint; nothing is stored in Kafka, and nothing is skipped where they do not exist.
    "group.id": "lakeproof",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    # Only what its producer has committed.
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "check.crcs": True,
    # Bytes that wait in memory for a task.
    "queued.max.messages.kbytes": 32 << 10,
    "fetch.wait.max.ms": 100,
}


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of a partition in a micro-batch, or a piece of them for a task.

    Parameters
    ----------
    topic, partition
        Where.
    start, end
        Offsets from `start` up to `end`, which is not one of them.
    begin
        Where the range begins that this is a piece of.
    first
        The first offset that the partition still has, where those before it are lost and were given up; else 0.
    """

    topic: str
    partition: int
    start: int
    end: int
    begin: int
    first: int = 0

    @property
    def name(self) -> str:
        """What the ledger calls it: the ``_source`` of its first offset."""
        return source_name(self.topic, self.partition, self.begin)

    @property
    def size(self) -> int:
        """Offsets: some may have no message."""
        return self.end - self.start

    @property
    def etag(self) -> str:
        """Where it ends, for the ledger."""
        return str(self.end)

    @property
    def landed_at(self) -> None:
        """Nothing: its messages have times of their own."""

    @property
    def given_up(self) -> bool:
        """Whether some of its offsets are lost and were given up."""
        return self.start < self.first


class MessagesLostError(LakeproofError):
    """Offsets of a micro-batch are not in the topic any more."""


def lost(topic: str, partition: int, start: int, first: int) -> MessagesLostError:
    """Say which offsets are lost."""
    return MessagesLostError(
        f"Offsets {start:,} to {first - 1:,} of partition {partition} of {topic} were removed from the topic before "
        "they were read: its retention is too short, or the consumer was stopped for too long.",
        "`consumer give-up STREAM` lists them. With --yes, the stream resumes behind them, with a dead letter for each "
        "range.",
    )


def envelopes(parts: Iterable[OffsetRange], kafka: KafkaSettings, limits: Limits) -> Iterator[Envelope]:
    """Read the messages of ranges of offsets.

    Offsets without a message (compaction, aborted transactions, markers of transactions) are skipped.

    Raises
    ------
    MessagesLostError
        Offsets do not exist any more.
    UnavailableError
        The brokers do not respond.
    """
    problems: list[str] = []

    def note(error: KafkaError) -> None:
        problems.append(error.str())

    options: dict[str, Any] = {**client_properties(kafka), **_FETCH, "error_cb": note}
    with closing(Consumer(options)) as consumer:
        for part in parts:
            start = part.start
            if part.given_up:
                yield _given_up(part)
                start = min(part.first, part.end)
            if start < part.end:
                yield from _range(consumer, part, start, kafka, limits, problems)


def _range(
    consumer: Consumer,
    part: OffsetRange,
    start: int,
    kafka: KafkaSettings,
    limits: Limits,
    problems: list[str],
) -> Iterator[Envelope]:
    consumer.assign([TopicPartition(part.topic, part.partition, start)])
    messages = _Messages(part, limits)
    give_up_at = monotonic() + kafka.timeout_seconds
    while True:
        try:
            found = consumer.consume(_MESSAGES_AT_ONCE, _WAIT_SECONDS)
        except KafkaException as error:
            raise unavailable(kafka, part.topic, error.args[0], problems) from error
        for message in found:
            problem = message.error()
            if problem:
                _check(problem, part, kafka)
                if problem.code() != KafkaError._PARTITION_EOF:
                    continue
            # The first offset at or behind the end ends it. Where nothing is behind it, the end of the partition does.
            offset = message.offset()
            if offset is not None and offset >= part.end:
                return
            if not problem:
                yield messages.envelope(message)
        if any(not message.error() for message in found):
            give_up_at = monotonic() + kafka.timeout_seconds
            problems.clear()
        elif monotonic() > give_up_at:
            raise _why_not(part, kafka, problems)


def _check(error: KafkaError, part: OffsetRange, kafka: KafkaSettings) -> None:
    """Raise what waiting does not mend."""
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise _why_not(part, kafka, ())
    if error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    ):
        raise unavailable(kafka, part.topic, error)


def _why_not(part: OffsetRange, kafka: KafkaSettings, problems: Iterable[str]) -> LakeproofError:
    """Say why a range has no more messages although its end was not reached."""
    try:
        extent = Topic(kafka, part.topic).extents([part.partition])[part.partition]
    except UnavailableError as error:
        return error
    if extent.first > part.start:
        return lost(part.topic, part.partition, part.start, extent.first)
    if extent.end < part.end:
        return MessagesLostError(
            f"Partition {part.partition} of {part.topic} ends at offset {extent.end:,}, but the checkpoint is at "
            f"{part.end:,}: brokers lost messages, or the topic was created again.",
            "Restore the topic, or read it as a new stream: copy the contract under another name.",
        )
    return unavailable(kafka, part.topic, None, problems)


def _given_up(part: OffsetRange) -> Envelope:
    last = min(part.first, part.end) - 1
    detail = f"offsets {part.start:,} to {last:,} were removed from the topic before they were read"
    source = source_name(part.topic, part.partition, part.start)
    return Envelope(b"", source, None, (Reason.ABSENT, detail), message=Message(part.name, None, ()))


class _Messages:
    """Makes envelopes of messages. What all of a range have in common is made once: this is the innermost loop."""

    def __init__(self, part: OffsetRange, limits: Limits) -> None:
        self._limits = limits
        self._prefix = f"{part.topic}/{part.partition}/"
        self._part = part.name
        self._plain = Message(self._part, None, ())

    def envelope(self, message: Any) -> Envelope:
        kind, milliseconds = message.timestamp()
        known = kind != TIMESTAMP_NOT_AVAILABLE and 0 <= milliseconds <= _LAST_MILLISECOND
        landed_at = _EPOCH + timedelta(milliseconds=milliseconds) if known else None
        source = self._prefix + str(message.offset()).zfill(OFFSET_DIGITS)
        key, headers, value = message.key(), message.headers(), message.value()
        own = self._plain if key is None and not headers else Message(self._part, key, headers or ())
        if value is None:
            return Envelope(None, source, landed_at, (Reason.TOMBSTONE, "message has no value"), message=own)
        if len(value) > self._limits.unpacked_bytes:
            detail = f"message has {len(value):,} bytes, but LAKE_MAX_UNPACKED_BYTES is {self._limits.unpacked_bytes:,}"
            return Envelope(None, source, landed_at, (Reason.BATCH_TOO_LARGE, detail), message=own)
        return Envelope(value, source, landed_at, message=own)
