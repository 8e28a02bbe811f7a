"""A topic as the source of a stream: a micro-batch is a range of offsets of each partition.

The driver finds the available offsets. The tasks of a micro-batch read the messages, see
:mod:`consumer.sources.kafka.read`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from time import monotonic, sleep

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from consumer.sources.envelope import Envelope, Messages
from consumer.sources.kafka.past import KnownOfPast, at_most, known_of_past
from consumer.sources.kafka.read import OffsetRange, envelopes, lost, read_again, truncated
from consumer.sources.source import Held, Source
from lakeproof.checkpoint import read_checkpoint
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka.offsets import Offsets, Range, past_between, without
from lakeproof.kafka.recorded import Recorded, check_comes_from, record_topic, recorded_topic
from lakeproof.kafka.topic import Topic, are_removed
from lakeproof.reasons import Reason
from lakeproof.settings import KafkaSettings, Limits, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.given_up import forget_given_up, given_up_before
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_message_columns

# A range is split into pieces for tasks, but not into smaller ones: each piece makes its own files in the tables.
_OFFSETS_PER_PIECE = 20_000
_PIECES_PER_CORE = 2
_AGAIN_SECONDS = 1.0  # between two requests to brokers that are away


@dataclass(frozen=True)
class MessageReader:
    """Reads messages within a task; see :class:`consumer.sources.source.Reader`."""

    kafka: KafkaSettings
    recorded: Recorded

    def groups(self, parts: Sequence[OffsetRange], cores: int) -> list[list[OffsetRange]]:
        """Split ranges into pieces of about the same number of offsets, one per task."""
        return [[piece] for piece in cut(parts, _PIECES_PER_CORE * cores)]

    def envelopes(
        self,
        parts: Iterable[OffsetRange],
        limits: Limits,
        touched: Callable[[OffsetRange], None] | None,  # noqa: ARG002 - messages do not change
    ) -> Iterator[Envelope | Messages]:
        """Read ranges, one after the other."""
        # Rows of bronze need no order, and judging a few small messages between two large ones takes 100 times as long.
        return envelopes(parts, self.kafka, limits, in_order=False)

    def read_again(self, source: str, etag: str, limits: Limits) -> Envelope:  # noqa: ARG002 - messages do not change
        """Read a message."""
        if not self._is_recorded_topic:
            return Envelope(None, source, None, (Reason.ABSENT, "the topic was created again"))
        return read_again(source, self.kafka, limits)

    @cached_property
    def _is_recorded_topic(self) -> bool:
        """Whether the topic still is the one with the messages of the stream; brokers are asked once per task."""
        return Topic(self.kafka, self.recorded.topic).identity()[0] == self.recorded.topic_id

    def recover(self, source: str, value: bytes, limits: Limits) -> None:
        """Return None: messages are not compressed batches."""


class KafkaSource(Source[OffsetRange]):
    """The topic of a stream. With `available_now`, it ends with the messages available by now."""

    def __init__(self, settings: Settings, stream: str, query: str, available_now: bool) -> None:
        self._settings = settings
        self._available_now = available_now
        self._kafka = settings.kafka
        self._stream = stream
        self._query = query
        self._topic = Topic(settings.kafka, settings.topic_of(stream))
        self._contracts = ContractLog(settings.state.database)
        self._recorded: Recorded | None = None
        self._start: Offsets | None = None
        self._ends: Mapping[int, int] | None = None  # with `available_now`: where the partitions ended at the start
        self._partitions: list[int] = []

    @property
    def root(self) -> str:
        """The topic and its brokers."""
        return f"kafka://{self._kafka.bootstrap_servers}/{self._topic.name}"

    @property
    def reader(self) -> MessageReader:
        """The reader of messages for tasks."""
        return MessageReader(self._kafka, self._known)

    def check_without_tables(self) -> None:
        """Refuse to start from the beginning if a checkpoint shows that there were tables."""
        checkpoint = read_checkpoint(self._settings, self._query, Offsets.from_spark)
        if checkpoint:
            raise LakeproofError(
                f"The catalog has no table {stream_tables(self._stream).bronze}, but the checkpoint of {self._query} "
                f"is at {checkpoint.end}.",
                f"Restore the catalog, or check LAKE_CATALOG_URI. Or run `consumer reset {self._stream}`: then the "
                "topic is read again from LAKE_KAFKA_STARTING_OFFSETS.",
            )

    def prepare(self, catalog: Catalog) -> None:
        """Check that the topic is the recorded one; the first time, record it, and where the stream begins."""
        ledger = catalog.load_table(stream_tables(self._stream).ledger).properties
        check_comes_from(self._stream, ledger, self._topic.name)
        topic_id, self._partitions = self._topic.identity()
        recorded = recorded_topic(ledger)
        if recorded is None:
            forget_given_up(self._settings.state.database, self._stream)
            recorded = Recorded(topic_id, self._topic.starting(self._kafka.starting_offsets, self._partitions))
            record_topic(catalog, self._stream, recorded)
        recorded.check_id(topic_id)
        self._recorded = recorded
        ensure_message_columns(catalog, self._stream)

    def recall(self, catalog: Catalog) -> None:
        """Read the topic from the ledger, without a request to the brokers."""
        self._recorded = recorded_topic(catalog.load_table(stream_tables(self._stream).ledger).properties)

    def resume(self, ledger: Table, accounted: str | None) -> str:  # noqa: ARG002 - the position suffices
        """Find where to resume: checkpoint, tables and topic must agree."""
        place = self._place(accounted)
        checkpoint = read_checkpoint(self._settings, self._query, Offsets.from_spark)
        if checkpoint and not checkpoint.fits(replace(place, past=())):
            raise LakeproofError(
                f"The checkpoint of {self._query} is at {checkpoint.passed or checkpoint.end}, but its tables are at "
                f"{place}.",
                f"Run `consumer reset {self._stream}`, to resume from the position in the tables. Nothing is read "
                "twice.",
            )
        self._start = place
        self._check_offsets(place)
        if self._available_now:
            self._ends = self._ends_now()
        return str(place)

    def waiting(self) -> dict[str, int]:
        """Return the number of offsets after the start."""
        if self._ends is None or self._start is None:
            return {}
        start = self._start
        return {"offsets": sum(max(end - start.next(number), 0) for number, end in self._ends.items())}

    def next(self, after: str, cores: int) -> Held[OffsetRange] | None:  # noqa: ARG002 - the setting is the limit
        """Return the next offsets of each partition; wait for brokers that are away."""
        deadline = monotonic() + self._kafka.timeout_seconds
        while True:
            try:
                return self._next(Offsets.parse(after))
            except UnavailableError:
                if monotonic() >= deadline:
                    raise
                sleep(_AGAIN_SECONDS)

    def _next(self, start: Offsets) -> Held[OffsetRange] | None:
        ends = self._ends_now() if self._ends is None else self._ends
        for partition, end in ends.items():
            self._check_end(partition, end, start.next(partition))
        taken = advanced(start, ends, self._kafka.max_offsets_per_micro_batch)
        if taken == start:
            return None
        return replace(self._begin(start, taken), more=any(end > taken.next(each) for each, end in ends.items()))

    def offset(self, position: str, contract: str) -> str:  # noqa: ARG002 - the state database has it
        """Return a position as Spark's Kafka source writes it, without ranges of the past."""
        at = Offsets.parse(position)
        return at.as_spark(sorted({*self._partitions, *(partition for partition, _ in at.entries)}))

    def parse_offset(self, offset: str) -> Offsets:
        """Parse an offset of Spark's Kafka source."""
        return Offsets.from_spark(offset)

    def _ends_now(self) -> dict[int, int]:
        """Return where each partition ends, also of partitions that were added."""
        topic_id, self._partitions = self._topic.identity()
        self._known.check_id(topic_id)
        return {partition: extent.end for partition, extent in self._topic.extents(self._partitions).items()}

    def still_next(self, start: str, end: str, accounted: str | None) -> tuple[str, str] | None:
        """Return the current range of a paused micro-batch: the stream or batches over the past may have advanced."""
        first, last, place = Offsets.parse(start), Offsets.parse(end), self._place(accounted)
        if past := last.past_since(first):
            left = without(past, place.past)
            return None if self._are_removed(left) else (str(place), str(place.with_past(left)))
        if replace(first, past=()) != replace(place, past=()):
            return None
        return str(place), str(last.with_past(place.past))

    def takes_of_past(self, start: str, end: str, wanted: Sequence[Range]) -> bool:
        """Return whether a micro-batch of the past has some of the wanted offsets, or none that the topic still has."""
        past = past_between(start, end)
        return without(past, wanted) != past or self._are_removed(past)

    def _are_removed(self, ranges: Sequence[Range]) -> bool:
        return not ranges or are_removed(ranges, self._topic.extents({partition for partition, _, _ in ranges}))

    def next_of_past(self, accounted: str | None, wanted: Sequence[Range]) -> Held[OffsetRange] | None:
        """Return the next micro-batch over the past: wanted offsets before the stream's beginning; None if none."""
        start = self._place(accounted)
        taken = at_most(self._kafka.max_offsets_per_micro_batch, self.known_of(accounted, wanted).left)
        if not taken:
            return None
        return self._begin(start, start.with_past(taken))

    def known_of(self, accounted: str | None, wanted: Sequence[Range]) -> KnownOfPast:
        """Split ranges into those in the tables, those that the stream will read, and those that are left to read."""
        return known_of_past(wanted, self._known.start, self._place(accounted))

    def _place(self, accounted: str | None) -> Offsets:
        return Offsets.parse(accounted) if accounted else self._known.start

    def between(self, since: datetime, until: datetime) -> list[Range]:
        """Return the ranges of offsets between two times."""
        found = self._topic.between(since, until, self._partitions)
        return [(partition, first, end) for partition, (first, end) in found.items() if first < end]

    def _begin(self, start: Offsets, end: Offsets) -> Held[OffsetRange]:
        parts = self._ranges(start, end)
        contract = self._contracts.begin(self._stream, str(start), str(end))
        if contract is None:
            raise LakeproofError(
                f"The landing log has no contract for the stream {self._stream!r}.",
                "Run `consumer run` again, to use the one in the contracts folder.",
            )
        return Held(parts, str(start), str(end), contract)

    def held_between(self, start: str, end: str, names: Callable[[], Iterable[str]]) -> list[OffsetRange]:  # noqa: ARG002
        """Return the ranges between two positions, which define them completely."""
        return self._ranges(Offsets.parse(start), Offsets.parse(end))

    def check(self) -> None:
        """Check that the brokers respond, the topic is the recorded one, and no offset is lost."""
        if self._start:
            self._check_offsets(self._start)

    def is_origin(self, position: str) -> bool:
        """Return whether a position is the beginning of the stream."""
        return position == str(self._known.start)

    def size_of(self, parts: Sequence[OffsetRange]) -> dict[str, int]:
        """Return the number of partitions, and their offsets."""
        return {"partitions": len(parts), "offsets": sum(part.size for part in parts)}

    def _ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        self._start = start
        given_up = self._check_offsets(start, end)
        found = [
            OffsetRange(end.topic, partition, begin, behind, begin, given_up.get(partition, 0))
            for partition, behind in end.entries
            if behind > (begin := start.next(partition))
        ]
        return found + self._ranges_of_past(end.past_since(start))

    def _ranges_of_past(self, past: Sequence[Range]) -> list[OffsetRange]:
        extents = self._topic.extents({partition for partition, _, _ in past}) if past else {}
        found = []
        for partition, begin, behind in past:
            first = extents[partition].first
            if begin < first and given_up_before(self._settings.state.database, self._stream, partition) < first:
                raise lost(self._topic.name, partition, begin, min(first, behind))
            found.append(OffsetRange(self._topic.name, partition, begin, behind, begin, first if begin < first else 0))
        return found

    def _check_offsets(self, start: Offsets, end: Offsets | None = None) -> dict[int, int]:
        """Check that the topic has the offsets after `start`; return where given-up offsets end, by partition."""
        topic_id, partitions = self._topic.identity()
        self._known.check_id(topic_id)
        given_up = {}
        for partition, extent in self._topic.extents(partitions).items():
            wanted = start.next(partition)
            if extent.first > wanted and (end is None or end.next(partition) > wanted):
                if given_up_before(self._settings.state.database, self._stream, partition) < extent.first:
                    raise lost(self._topic.name, partition, wanted, extent.first)
                given_up[partition] = extent.first
            self._check_end(partition, extent.end, wanted)
        return given_up

    def _check_end(self, partition: int, end: int, wanted: int) -> None:
        """Check that the brokers still have the messages that the tables have."""
        if end < wanted:
            raise truncated(self._topic.name, partition, end, f"the tables are at {wanted:,}: brokers lost messages.")

    @property
    def _known(self) -> Recorded:
        if self._recorded is None:
            raise RuntimeError("A source is prepared before it is resumed.")
        return self._recorded


def advanced(start: Offsets, ends: Mapping[int, int], most: int) -> Offsets:
    """Move a position towards the ends of partitions by about `most` offsets, in proportion to what each one has.

    Every partition moves by at least one offset, so that a small one does not starve beside a large one.
    """
    waiting = {partition: end - start.next(partition) for partition, end in ends.items()}
    total = sum(count for count in waiting.values() if count > 0)
    offsets = dict(start.entries)
    passed = dealt = 0
    for partition, count in waiting.items():
        if count > 0:
            passed += count
            # What rounding takes from a partition goes to the next one: no rest is left for another micro-batch.
            share = passed * most // total - dealt
            dealt += share
            offsets[partition] = start.next(partition) + min(count, max(share, 1))
    return replace(start, entries=Offsets.of(start.topic, offsets).entries)


def cut(parts: Sequence[OffsetRange], pieces: int) -> list[OffsetRange]:
    """Split ranges into about `pieces` pieces of about the same number of offsets, the largest first."""
    total = sum(part.size for part in parts)
    wanted = max(_OFFSETS_PER_PIECE, -(-total // max(pieces, 1)))
    found = []
    for part in parts:
        # Lost offsets are one dead letter, regardless of the number of tasks.
        begin = min(part.first, part.end) if part.given_up else part.start
        found += [replace(part, end=begin)] * part.given_up
        size = max(-(-(part.end - begin) // max(round((part.end - begin) / wanted), 1)), 1)
        found += [replace(part, start=start, end=min(start + size, part.end)) for start in range(begin, part.end, size)]
    return sorted(found, key=lambda piece: -piece.size)
