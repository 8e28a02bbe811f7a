"""Read messages into envelopes, within the tasks of a micro-batch."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import methodcaller
from time import monotonic
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition

from consumer.sources.envelope import SMALL_BYTES, Envelope, Headers, Message, Messages
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka.client import client_properties
from lakeproof.kafka.offsets import OFFSET_DIGITS, place_of, source_name
from lakeproof.kafka.topic import Topic, unavailable
from lakeproof.reasons import Reason
from lakeproof.settings import KafkaSettings, Limits

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MILLISECOND = 253_402_300_799_999  # of the year 9999
_MESSAGES_AT_ONCE = 10_000
_WAIT_SECONDS = 0.2
_FETCH = {
    # Offsets come from the checkpoint; none are stored in Kafka, and none are skipped if they do not exist.
    "group.id": "lakeproof",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    # Only messages that their producer has committed.
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "check.crcs": True,
    # Data prefetched into memory for a task, in KB.
    "queued.max.messages.kbytes": 32 << 10,
    "fetch.wait.max.ms": 100,
    # Messages prefetched for a task. By default, the client prefetches 100,000, more than most ranges have, and then
    # waits for a second before it fetches again.
    "queued.min.messages": _MESSAGES_AT_ONCE,
    "fetch.queue.backoff.ms": 1,
}
_NO_HEADERS = "a header has a name that is not UTF-8, so none of the headers can be read"
# The client returns a list although it has set an error. Only calls from C check for that, and raise a SystemError;
# after `message.headers()`, Python would raise the error in a later call, whatever it is.
_ask_for_headers = methodcaller("headers")
_OF_THE_TOPIC = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
# The client connects again by itself, and then continues at the same offset.
_PASSING = (
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
)


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of a partition in a micro-batch, from `start` to before `end`, or a piece of the range for a task."""

    topic: str
    partition: int
    start: int
    end: int
    begin: int  # beginning of the whole range, if this is a piece
    first: int = 0  # the first offset that the partition still has, if earlier ones are lost and were given up

    @property
    def name(self) -> str:
        """Name in the ledger: the ``_source`` of the first offset."""
        return source_name(self.topic, self.partition, self.begin)

    @property
    def size(self) -> int:
        """Number of offsets: some may have no message."""
        return self.end - self.start

    @property
    def etag(self) -> str:
        """End of the range, for the ledger."""
        return str(self.end)

    @property
    def landed_at(self) -> None:
        """None: each message has its own time."""

    @property
    def given_up(self) -> bool:
        """Whether some of the offsets are lost and were given up."""
        return self.start < self.first


class MessagesLostError(LakeproofError):
    """Offsets of a micro-batch have been removed from the topic."""


def lost(topic: str, partition: int, start: int, first: int) -> MessagesLostError:
    """Return the error for lost offsets."""
    return MessagesLostError(
        f"Offsets {start:,} to {first - 1:,} of partition {partition} of {topic} were removed from the topic before "
        "they were read: its retention is too short, or the consumer was stopped for too long.",
        "`consumer give-up STREAM` lists them. With --yes, the stream resumes behind them, with a dead letter for each "
        "range.",
    )


def truncated(topic: str, partition: int, end: int, but: str) -> MessagesLostError:
    """Return the error for a partition that is shorter than before."""
    return MessagesLostError(
        f"Partition {partition} of {topic} ends at offset {end:,}, but {but}",
        "Restore the topic, or read it as a new stream: copy the contract under another name.",
    )


def envelopes(
    parts: Iterable[OffsetRange], kafka: KafkaSettings, limits: Limits, *, in_order: bool = True
) -> Iterator[Envelope | Messages]:
    """Yield the messages of ranges of offsets, in the order of the offsets unless a caller needs no order.

    Offsets without a message (compaction, aborted transactions, markers of transactions) are skipped.
    """
    problems: list[KafkaError] = []
    options: dict[str, Any] = {**client_properties(kafka), **_FETCH, "error_cb": problems.append}
    with closing(Consumer(options)) as consumer:
        for part in parts:
            start = part.start
            if part.given_up:
                yield _given_up(part)
                start = min(part.first, part.end)
            if start < part.end:
                for messages in _range(consumer, part, start, kafka, problems):
                    yield from _read(messages, part, limits, in_order=in_order)


def read_again(source: str, kafka: KafkaSettings, limits: Limits) -> Envelope:
    """Read one message, by its ``_source``."""
    topic, partition, at = place_of(source)
    try:
        found = list(envelopes([OffsetRange(topic, partition, at, at + 1, at)], kafka, limits))
    except MessagesLostError as error:
        return Envelope(None, source, None, (Reason.ABSENT, error.message))
    for each in found:
        if isinstance(each, Messages):
            return Envelope(each.values[0], source, None)
        # Only the value is judged again.
        return replace(each, failure=None) if each.failure and each.failure[0] == Reason.INVALID_HEADERS else each
    return Envelope(None, source, None, (Reason.ABSENT, f"offset {at:,} has no message any more"))


def _range(
    consumer: Consumer,
    part: OffsetRange,
    start: int,
    kafka: KafkaSettings,
    problems: list[KafkaError],
) -> Iterator[list[Any]]:
    """Yield the messages that the client returns at once: how many they are depends on its prefetching."""
    consumer.assign([TopicPartition(part.topic, part.partition, start)])
    give_up_at = monotonic() + kafka.timeout_seconds
    at = start
    while at < part.end:
        try:
            # Returns at once if every offset has a message.
            found: list[Any] = consumer.consume(min(_MESSAGES_AT_ONCE, part.end - at), _WAIT_SECONDS)
        except KafkaException as error:
            raise unavailable(kafka, part.topic, error.args[0], problems) from error
        messages = []
        for message in found:
            if not message.error():
                messages.append(message)
            elif (message.offset() or 0) >= part.end:
                at = part.end  # errors are in order: all messages before this one have been read
            else:
                _check(message, part, kafka)
        if messages:
            at = max(at, messages[-1].offset() + 1)
            yield messages
            give_up_at = monotonic() + kafka.timeout_seconds
            problems.clear()
        elif at < part.end and monotonic() > give_up_at:
            raise _why_not(part, kafka, problems)


def _check(message: Any, part: OffsetRange, kafka: KafkaSettings) -> None:
    """Raise errors that waiting does not resolve.

    After a message that is damaged, the client may continue with a later one.
    """
    error, offset = message.error(), message.offset()
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise _why_not(part, kafka, ())
    if error.code() in _OF_THE_TOPIC:
        raise unavailable(kafka, part.topic, error)
    # Errors without an offset are about the consumer group, which is not used.
    if offset is not None and error.code() not in _PASSING and not error.retriable():
        raise unavailable(kafka, part.topic, error, at=(part.partition, offset))


def _why_not(part: OffsetRange, kafka: KafkaSettings, problems: Iterable[KafkaError]) -> LakeproofError:
    """Return why a range has no more messages although its end was not reached."""
    try:
        extent = Topic(kafka, part.topic).extents([part.partition])[part.partition]
    except UnavailableError as error:
        return error
    if extent.first > part.start:
        return lost(part.topic, part.partition, part.start, extent.first)
    if extent.end < part.end:
        but = f"the checkpoint is at {part.end:,}: brokers lost messages, or the topic was created again."
        return truncated(part.topic, part.partition, extent.end, but)
    return unavailable(kafka, part.topic, None, problems)


def _given_up(part: OffsetRange) -> Envelope:
    last = min(part.first, part.end) - 1
    detail = f"offsets {part.start:,} to {last:,} were removed from the topic before they were read"
    source = source_name(part.topic, part.partition, part.start)
    return Envelope(b"", source, None, (Reason.ABSENT, detail), message=Message(part.name, None, ()))


def _read(messages: list[Any], part: OffsetRange, limits: Limits, *, in_order: bool) -> Iterator[Envelope | Messages]:
    """Yield small messages as columns, and all others as envelopes; without order, all small ones together at the end.

    Without order, the result depends on how many messages the client has returned at once.
    """
    prefix = f"{part.topic}/{part.partition}/"
    small: list[Any] = []
    values: list[bytes] = []
    headers: list[Headers] = []
    for message in messages:
        if message.offset() >= part.end:
            break
        value, own = message.value(), headers_of(message)
        if value is None or len(value) > SMALL_BYTES or own is None:
            if small and in_order:
                yield _together(small, values, headers, prefix, part.name)
                small, values, headers = [], [], []
            yield _envelope(message, value, own, prefix, part.name, limits)
        else:
            small.append(message)
            values.append(value)
            headers.append(own)
    if small:
        yield _together(small, values, headers, prefix, part.name)


def _together(small: list[Any], values: list[bytes], headers: list[Headers], prefix: str, part: str) -> Messages:
    return Messages(
        part=part,
        prefix=prefix,
        offsets=[message.offset() for message in small],
        landed_at=[_landed_at(*message.timestamp()) for message in small],
        values=values,
        keys=[message.key() for message in small],
        headers=headers,
    )


def headers_of(message: Any) -> Headers | None:
    """Return the headers of a message; None if the client cannot decode the name of one of them.

    They can be asked for only once: after an error, the client returns a list without the names.
    """
    try:
        return _ask_for_headers(message) or ()
    except (UnicodeDecodeError, SystemError):
        return None


def _envelope(
    message: Any, value: bytes | None, headers: Headers | None, prefix: str, part: str, limits: Limits
) -> Envelope:
    milliseconds = _landed_at(*message.timestamp())
    landed_at = None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
    source = f"{prefix}{message.offset():0{OFFSET_DIGITS}}"
    own = Message(part, message.key(), headers or ())
    also = f"; {_NO_HEADERS}" if headers is None else ""
    if value is None:
        return Envelope(None, source, landed_at, (Reason.TOMBSTONE, f"message has no value{also}"), message=own)
    if len(value) > limits.unpacked_bytes:
        detail = f"message has {len(value):,} bytes, but LAKE_MAX_UNPACKED_BYTES is {limits.unpacked_bytes:,}{also}"
        return Envelope(None, source, landed_at, (Reason.BATCH_TOO_LARGE, detail), message=own)
    failure = (Reason.INVALID_HEADERS, _NO_HEADERS) if headers is None else None
    return Envelope(value, source, landed_at, failure, message=own)


def _landed_at(kind: int, milliseconds: int) -> int | None:
    return milliseconds if kind != TIMESTAMP_NOT_AVAILABLE and 0 <= milliseconds <= _LAST_MILLISECOND else None
