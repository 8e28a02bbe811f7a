"""The tasks of a micro-batch: read messages, judge them, set aside bad and late ones, and write kept ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from consumer.modes.events import BadMessageError, Event, parser
from consumer.modes.plan import Micros
from consumer.modes.sinks import ASIDE, KEPT, Folder, aside_messages, kept_messages
from consumer.modes.windows import AMOUNT
from consumer.sources.envelope import Envelope, Headers, Messages, header_column
from consumer.sources.kafka.read import OffsetRange, envelopes
from lakeproof.errors import UnavailableError
from lakeproof.kafka.modes import Mode, ModeName
from lakeproof.kafka.offsets import OFFSET_DIGITS
from lakeproof.kafka.sending import Sending
from lakeproof.reasons import Reason
from lakeproof.settings import KafkaSettings, Limits, S3Settings

LATE = "late"
"""The reason of a message that is set aside although it is an event."""
# Maximum bytes of messages set aside that are buffered in memory.
_ASIDE_BYTES = 64 << 20


@dataclass(frozen=True)
class Work:
    """Parameters of a task, in addition to its input. Can be pickled."""

    mode: Mode
    number: int
    watermark: Micros | None
    at: Micros
    kafka: KafkaSettings
    limits: Limits
    s3: S3Settings


@dataclass
class Piece:
    """The results of a task."""

    index: int  # number of the task
    events: pa.Table = field(default_factory=lambda: pa.table({}))  # in order: id and time, and user and amount
    rows: pa.Table | None = None  # the same events as rows of the sinks; None if the sinks get no events
    bad: int = 0
    late: int = 0
    newest: Micros | None = None  # the greatest time of an event, none later than the micro-batch
    digest: bytes = b""  # hash of the offsets of the rows, in order


class Mask(NamedTuple):
    """The rows of a piece that are kept, by their position."""

    rows: int
    bits: bytes
    digest: bytes

    @classmethod
    def of(cls, piece: Piece, kept: Any) -> Self:
        """Return the mask of a piece; `kept` has a boolean for each event."""
        return cls(len(kept), np.packbits(kept).tobytes(), piece.digest)


def judge(work: Work, index: int, parts: Sequence[OffsetRange]) -> Piece:
    """Read the messages of ranges, and set aside bad and late ones."""
    aside = _Aside(work, index)
    events = _Events(work, aside)
    for found in envelopes(parts, work.kafka, work.limits):
        events.add(found)
    aside.close()
    newest = max((min(time, work.at) for time in events.times), default=None)
    return Piece(index, events.table(), events.rows(), aside.bad, aside.late, newest, events.digest())


def write_kept(work: Work, kept: Sequence[Mask], piece: Piece) -> None:
    """Write the rows of a piece whose bits are set in its item of `kept`."""
    table = KEPT.empty_table() if piece.rows is None else piece.rows
    mask = kept[piece.index]
    # An executor was lost, and the messages were read again. As many of them are not always the same ones.
    if table.num_rows != mask.rows or piece.digest != mask.digest:
        raise UnavailableError(
            f"Messages of {work.mode.topic} changed while a micro-batch was processed: the topic was compacted.",
            "Run the consumer again, to repeat the micro-batch.",
        )
    bits = np.unpackbits(np.frombuffer(mask.bits, np.uint8), count=mask.rows).astype(bool)
    rows = table.filter(pa.array(bits))
    mode = work.mode
    if mode.parquet:
        Folder(mode.parquet, work.s3).write("part", work.number, f"{piece.index:04}", rows)
    if mode.kafka:
        Sending(work.kafka, mode.kafka).send(kept_messages(rows))


@dataclass
class _Message:
    """A message that is being judged."""

    source: str
    value: bytes | None
    key: bytes | None
    headers: Headers | None
    landed_at: int | None  # in milliseconds since 1970


class _Events:
    """Collects the events of a task."""

    def __init__(self, work: Work, aside: "_Aside") -> None:
        self._parse = parser(work.mode.fields, work.mode.time)
        self._watermark = work.watermark
        self._mode = work.mode
        self._aside = aside
        self._with_rows = work.mode.name is ModeName.DEDUPE
        self._found: list[Event] = []
        self._messages: list[_Message] = []
        self.times: list[Micros] = []

    def add(self, found: Envelope | Messages) -> None:
        """Judge one or more messages."""
        if isinstance(found, Envelope):
            landed_at = None if found.landed_at is None else round(found.landed_at.timestamp() * 1000)
            own = found.message
            message = _Message(
                found.source, found.value, own.key if own else None, own.headers if own else None, landed_at
            )
            if found.failure or found.value is None:
                self._aside.add(message, *(found.failure or (Reason.TOMBSTONE, "message has no value")))
            else:
                self._judge(found.value, message)
            return
        columns = zip(found.offsets, found.values, found.keys, found.headers, found.landed_at, strict=True)
        for offset, value, key, headers, landed in columns:
            source = f"{found.prefix}{offset:0{OFFSET_DIGITS}}"
            self._judge(value, _Message(source, value, key, headers, landed))

    def _judge(self, value: bytes, message: _Message) -> None:
        try:
            event = self._parse(value)
        except BadMessageError as error:
            self._aside.add(message, error.reason, error.detail)
            return
        if self._watermark is not None and event.time < self._watermark:
            before = f"{(self._watermark - event.time) / 1_000_000:g} s"
            self._aside.add(message, LATE, f"{self._mode.fields.event_time} is {before} before the watermark")
            return
        self.times.append(event.time)
        self._found.append(event)
        if self._with_rows:
            self._messages.append(message)

    def table(self) -> pa.Table:
        """Return the events, for the driver."""
        columns: dict[str, Any] = {
            "id": pa.array([event.id for event in self._found], pa.string()),
            "time": pa.array(self.times, pa.int64()),
        }
        if self._mode.window:
            columns["user"] = pa.array([event.user for event in self._found], pa.string())
            columns["amount"] = pa.array([event.amount for event in self._found], AMOUNT)
        return pa.table(columns)

    def rows(self) -> pa.Table | None:
        """Return the events as rows of the sinks, in the same order; None if the sinks get no events."""
        if not self._with_rows:
            return None
        columns: dict[str, Any] = {
            "event_id": pa.array([event.id for event in self._found], pa.string()),
            "event_time": pa.array(self.times, pa.int64()).cast(KEPT.field("event_time").type),
            "value": pa.array([message.value for message in self._messages], pa.binary()).cast(pa.string()),
        }
        return pa.table(columns | _of_messages(self._messages), schema=KEPT)

    def digest(self) -> bytes:
        """Return a hash of the offsets of the rows, in order."""
        return blake2b("\n".join(message.source for message in self._messages).encode(), digest_size=16).digest()


@dataclass
class _Aside:
    """Sets messages aside."""

    work: Work
    index: int
    bad: int = 0
    late: int = 0
    _files: int = 0
    _bytes: int = 0
    _rows: list[tuple[_Message, str, str]] = field(default_factory=list)

    def add(self, message: _Message, reason: str, detail: str) -> None:
        """Set a message aside."""
        self.late += reason == LATE
        self.bad += reason != LATE
        self._rows.append((message, reason, detail))
        self._bytes += len(message.value or b"")
        if self._bytes >= _ASIDE_BYTES:
            self.close()

    def close(self) -> None:
        """Write the remaining messages."""
        if not self._rows:
            return
        messages = [message for message, _, _ in self._rows]
        columns: dict[str, Any] = {
            "reason": pa.array([str(reason) for _, reason, _ in self._rows], pa.string()),
            "detail": pa.array([detail for _, _, detail in self._rows], pa.string()),
            "value": pa.array([message.value for message in messages], pa.binary()),
        }
        rows = pa.table(columns | _of_messages(messages), schema=ASIDE)
        mode = self.work.mode
        if mode.aside_topic:
            Sending(self.work.kafka, mode.aside_topic).send(aside_messages(rows))
        else:
            piece = f"{self.index:04}_{self._files:04}"
            Folder(mode.aside, self.work.s3).write("aside", self.work.number, piece, rows)
        self._rows, self._bytes = [], 0
        self._files += 1


def _of_messages(messages: Sequence[_Message]) -> dict[str, Any]:
    landed_at: Any = pa.array([message.landed_at for message in messages], pa.timestamp("ms", "UTC"))
    return {
        "_key": pa.array([message.key for message in messages], pa.binary()),
        "_headers": header_column([message.headers for message in messages]),
        "_source": pa.array([message.source for message in messages], pa.string()),
        "_landed_at": landed_at.cast(pa.timestamp("us", "UTC")),
    }
