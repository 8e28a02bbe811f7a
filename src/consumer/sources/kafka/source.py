"""A topic as the source of a stream, with offsets that Spark's own Kafka source fixes in the checkpoint.

Spark only finds the available offsets, and records those of each micro-batch. The tasks of a micro-batch read the
messages themselves, see :mod:`consumer.sources.kafka.read`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from consumer.bulletin import Bulletin
from consumer.sources.envelope import Envelope, Messages
from consumer.sources.kafka.past import KnownOfPast, at_most, known_of_past
from consumer.sources.kafka.read import MessagesLostError, OffsetRange, envelopes, lost, read_again
from consumer.sources.source import DeclinedError, Held, Source
from lakeproof.checkpoint import read_checkpoint, read_initial_offset, read_offset
from lakeproof.errors import LakeproofError
from lakeproof.kafka.client import spark_options
from lakeproof.kafka.offsets import Offsets, Range, past_between, without
from lakeproof.kafka.recorded import Recorded, check_comes_from, record_topic, recorded_topic
from lakeproof.kafka.topic import Topic, are_removed
from lakeproof.settings import KafkaSettings, Limits, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.given_up import given_up_before
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_message_columns

# A range is split into pieces for tasks, but not into smaller ones: each piece makes its own files in the tables.
_OFFSETS_PER_PIECE = 20_000
_PIECES_PER_CORE = 2
# Kafka's own default; a request may not take longer than its call.
_MOST_REQUEST_MILLISECONDS = 30_000


@dataclass(frozen=True)
class MessageReader:
    """Reads messages within a task; see :class:`consumer.sources.source.Reader`."""

    kafka: KafkaSettings

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
        return envelopes(parts, self.kafka, limits)

    def read_again(self, source: str, etag: str, limits: Limits) -> Envelope:  # noqa: ARG002 - messages do not change
        """Read a message."""
        return read_again(source, self.kafka, limits)

    def recover(self, source: str, value: bytes, limits: Limits) -> None:
        """Return None: messages are not compressed batches."""


class KafkaSource(Source[OffsetRange]):
    """The topic of a stream. With `available_now`, Spark's trigger ends with the messages available by now."""

    knows_its_end = True

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
        self._past: tuple[Range, ...] = ()
        self._resumed: Offsets | None = None
        self._partitions: list[int] = []
        self._bulletin: Bulletin | None = None

    @property
    def root(self) -> str:
        """The topic and its brokers."""
        return f"kafka://{self._kafka.bootstrap_servers}/{self._topic.name}"

    @property
    def reader(self) -> MessageReader:
        """The reader of messages for tasks."""
        return MessageReader(self._kafka)

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
            recorded = Recorded(topic_id, self._topic.starting(self._kafka.starting_offsets, self._partitions))
            record_topic(catalog, self._stream, recorded)
        recorded.check_id(topic_id)
        self._recorded = recorded
        ensure_message_columns(catalog, self._stream)

    def recall(self, catalog: Catalog) -> None:
        """Read the topic from the ledger, without a request to the brokers."""
        self._recorded = recorded_topic(catalog.load_table(stream_tables(self._stream).ledger).properties)

    def resume(self, ledger: Table, accounted: str | None) -> None:  # noqa: ARG002 - the position suffices
        """Find where to resume: checkpoint, tables and topic must agree."""
        place = self._place(accounted)
        self._past = place.past
        self._resumed = replace(place, past=())
        checkpoint = read_checkpoint(self._settings, self._query, Offsets.from_spark)
        if checkpoint and not checkpoint.fits(self._resumed):
            raise LakeproofError(
                f"The checkpoint of {self._query} is at {checkpoint.passed or checkpoint.end}, but its tables are at "
                f"{place}.",
                f"Run `consumer reset {self._stream}`, to resume from the position in the tables. Nothing is read "
                "twice.",
            )
        self._start = place
        self._check_offsets(place)

    def waiting(self) -> dict[str, int]:
        """Return the number of offsets after the start."""
        if not self._available_now or self._start is None:
            return {}
        return {"offsets": self._topic.behind(self._start, self._partitions)}

    def rows(self, spark: SparkSession, bulletin: Bulletin) -> DataFrame:
        """Return the streaming messages, which are not read: Spark only fixes their offsets."""
        if self._start is None:
            raise RuntimeError("A source is resumed before it is read.")
        self._bulletin = bulletin
        milliseconds = int(self._kafka.timeout_seconds * 1000)
        reader = spark.readStream.format("kafka").options(**spark_options(self._kafka))
        return (
            reader.option("subscribe", self._topic.name)
            .option("startingOffsets", self._start.as_spark(self._partitions))
            .option("maxOffsetsPerTrigger", self._kafka.max_offsets_per_micro_batch)
            .option("failOnDataLoss", "true")
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.default.api.timeout.ms", milliseconds)
            .option("kafka.request.timeout.ms", min(milliseconds, _MOST_REQUEST_MILLISECONDS))
            .load()
            .select("offset")
        )

    def held(self, rows: DataFrame, micro_batch_id: int) -> Held[OffsetRange] | None:  # noqa: ARG002 - see `rows`
        """Read the offsets of a micro-batch from the checkpoint."""
        if self._bulletin and self._bulletin.stop_file.exists():
            raise DeclinedError("The micro-batch was not begun: the consumer ends.")
        end = read_offset(self._settings, self._query, micro_batch_id, Offsets.from_spark)
        if micro_batch_id:
            start = read_offset(self._settings, self._query, micro_batch_id - 1, Offsets.from_spark)
        else:
            start = read_initial_offset(self._settings, self._query, Offsets.from_spark)
        if start == end or end == self._resumed:
            # Spark repeats a micro-batch that it has not recorded as done. A batch over the past may have committed
            # since, so the newest marker no longer shows that the tables have it.
            return None
        # The past ranges that batches have read are part of the position, but unknown to Spark.
        return self._begin(start.with_past(self._past), end.with_past(self._past))

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
        self._past = start.with_past(taken).past
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
                given_up[partition] = given_up_before(self._settings.state.database, self._stream, partition)
                if given_up[partition] < extent.first:
                    raise lost(self._topic.name, partition, wanted, extent.first)
            if extent.end < wanted:
                raise MessagesLostError(
                    f"Partition {partition} of {self._topic.name} ends at offset {extent.end:,}, but the tables are at "
                    f"{wanted:,}: brokers lost messages.",
                    "Restore the topic, or read it as a new stream: copy the contract under another name.",
                )
        return given_up

    @property
    def _known(self) -> Recorded:
        if self._recorded is None:
            raise RuntimeError("A source is prepared before it is resumed.")
        return self._recorded


def cut(parts: Sequence[OffsetRange], pieces: int) -> list[OffsetRange]:
    """Split ranges into about `pieces` pieces of about the same number of offsets, the largest first."""
    total = sum(part.size for part in parts)
    size = max(_OFFSETS_PER_PIECE, -(-total // max(pieces, 1)))
    found = []
    for part in parts:
        # Lost offsets are one dead letter, regardless of the number of tasks.
        begin = min(part.first, part.end) if part.given_up else part.start
        found += [replace(part, end=begin)] * part.given_up
        found += [replace(part, start=start, end=min(start + size, part.end)) for start in range(begin, part.end, size)]
    return sorted(found, key=lambda piece: -piece.size)
