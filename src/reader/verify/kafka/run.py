"""Verify a stream that comes from Kafka, in the order that a running consumer cannot disturb."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic, sleep, time

from lakeproof.checkpoint import bronze_query, read_checkpoint
from lakeproof.kafka.offsets import Offsets, source_name
from lakeproof.kafka.recorded import Recorded
from lakeproof.kafka.topic import Extent, Topic
from lakeproof.settings import Limits, Settings
from lakeproof.tables.names import MARKER
from reader.connect import Session
from reader.verify.findings import Finding, Status, difference
from reader.verify.kafka.lake import Place, TopicLake, Units
from reader.verify.kafka.messages import Message, messages
from reader.verify.units import Units as Found
from reader.verify.units import find_units
from reader.verify.values import Sample

# As for files: rows beyond the ledger may be those of a micro-batch that is being appended.
_YOUNG_SECONDS = 600.0
_WAIT_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 1.0
_SHOWN = 5

Span = tuple[int, int]
"""Offsets from one up to another, which is not one of them."""
Letters = Mapping[Place, Mapping[int, list[str | None]]]


@dataclass(frozen=True)
class TopicVerification:
    """What was found between a topic and the tables.

    Parameters
    ----------
    findings
        Of each partition.
    problems
        What is wrong with the stream as a whole, in words.
    units
        Units that were counted in the topic.
    bronze, dead_letters
        Rows in the tables.
    """

    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    units: int
    bronze: int
    dead_letters: int


def verify_topic(
    settings: Settings,
    session: Session,
    stream: str,
    recorded: Recorded,
    ledger_properties: Callable[[], Mapping[str, str]],
    sample: Callable[[], Sample | None],
    show: Callable[[int, int], None],
) -> TopicVerification:
    """Recount a stream's topic and compare it with its tables and its ledger.

    Parameters
    ----------
    settings, session, stream
        Where everything is, and the name of the stream.
    recorded
        The topic that the stream comes from.
    ledger_properties
        Reads the properties of the ledger.
    sample
        Takes the rows of bronze whose values are compared.
    show
        Called with the offsets that are done and those that are to be done.

    Raises
    ------
    LakeproofError
        The topic or a table cannot be read.
    """
    query = bronze_query(stream)
    checkpoint = read_checkpoint(settings, query, Offsets.from_spark)  # before the ledger, which is never behind it
    lake = TopicLake(session, stream, recorded.topic)
    patience = monotonic() + _WAIT_SECONDS
    while True:
        accounted = _accounted(ledger_properties(), query) or recorded.start  # before its rows, likewise
        newest = lake.load()
        if newest is None or time() - newest > _YOUNG_SECONDS or monotonic() > patience:
            break
        sleep(_LOOK_AGAIN_SECONDS)
    topic = Topic(settings.kafka, recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    extents = topic.extents(partitions)
    rows = sample()
    recount = _Recount(settings, lake, lake.letters(), rows, lake.discarded())
    taken = {partition: _taken(recorded.start, accounted, partition) for partition in partitions}
    spans = {
        partition: [(max(first, extent.first), min(end, extent.end)) for first, end in taken[partition]]
        for partition, extent in extents.items()
    }
    due, done = sum(max(end - first, 0) for each in spans.values() for first, end in each), 0
    contents: dict[int, list[str]] = {partition: [] for partition in spans}
    for partition, first, end in ((partition, *span) for partition, each in spans.items() for span in each):
        for group in messages(settings.kafka, recorded.topic, partition, first, end):
            contents[partition] += recount.take(recorded.topic, partition, group)
            done += len(group)
            show(done, due)
    has_gaps = topic.is_compacted()
    findings = tuple(
        _judge(lake, recorded, taken[partition], partition, extents[partition], contents[partition], has_gaps=has_gaps)
        for partition in partitions
    )
    bronze, dead, foreign = lake.totals()
    problems = []
    if foreign:
        problems.append(f"{foreign:,} rows of the tables do not come from the topic {recorded.topic}.")
    if checkpoint and (passed := checkpoint.passed) and _is_ahead(passed, accounted):
        problems.append(
            f"The checkpoint is at {passed}, but the tables are at {accounted}. The messages in between will not be "
            f"read. Run `consumer reset {stream}`, then the consumer."
        )
    return TopicVerification(findings, tuple(problems), lake.counted(), bronze, dead)


class _Recount:
    """Counts the units of messages, and compares what the tables keep of them."""

    def __init__(self, settings: Settings, lake: TopicLake, letters: Letters, sample: Sample | None, lost: int) -> None:
        self._limits = settings.limits
        self._lake = lake
        self._letters = letters
        self._sample = sample
        self._discarded = lost

    def take(self, topic: str, partition: int, group: list[Message]) -> list[str]:
        """Count the units of messages; return what is kept and is not what was sent, in words."""
        counts, told = [], []
        for message in group:
            offset, value = message.offset, message.value
            letters = self._letters.get((partition, offset), {})
            source = source_name(topic, partition, offset)
            sampled = self._sample.positions(source) if self._sample else frozenset()
            found = _units(value, letters.keys() | sampled, self._limits)
            counts.append((offset, found.count, message.label))
            told += [
                f"the dead letter of unit {position} of offset {offset:,} differs from the message"
                for position, hashes in letters.items()
                if position < found.count and set(hashes) != {_hash(value, found, position)}
            ]
            if self._sample and sampled:
                differences = self._sample.differences(source, found.picked, self._discarded)
                told += [f"offset {offset:,}: {text}" for text in differences]
        self._lake.expect(partition, counts)
        return told


def _units(value: bytes | None, wanted: "set[int] | frozenset[int]", limits: Limits) -> Found:
    if value is None or len(value) > limits.unpacked_bytes:
        return Found(1, whole=True)
    if value[:1] == b"{" and not wanted:
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            pass  # not UTF-8, or not JSON
        else:
            return Found(1)
    return find_units(value, wanted, limits.record_bytes)


def _hash(value: bytes | None, found: Found, position: int) -> str | None:
    """SHA-256 of a unit; None for a message without a value."""
    return None if value is None else hashlib.sha256(found.picked.get(position, b"")).hexdigest()


def _accounted(ledger: Mapping[str, str], query: str) -> Offsets | None:
    text = ledger.get(MARKER + query)
    return Offsets.parse(json.loads(text)["marker"]["end"]) if text else None


def _taken(start: Offsets, accounted: Offsets, partition: int) -> list[Span]:
    """The offsets that the tables have, by their marker: what batches read of the past, and what the stream read."""
    past = [(first, end) for of, first, end in accounted.past if of == partition]
    begin, end = start.next(partition), max(start.next(partition), accounted.next(partition))
    if past and past[-1][1] == begin:  # the ledger has no gap in between
        begin = past.pop()[0]
    return [*past, (begin, end)]


def _is_ahead(passed: Offsets, accounted: Offsets) -> bool:
    return any(offset > accounted.next(partition) for partition, offset in passed.entries)


def _judge(
    lake: TopicLake,
    recorded: Recorded,
    taken: list[Span],
    partition: int,
    extent: Extent,
    contents: list[str],
    *,
    has_gaps: bool,
) -> Finding:
    """Say what a partition is."""
    end = taken[-1][1]
    told: list[tuple[Status, str]] = []
    if (missing := lake.missing(partition))[0]:
        told.append((Status.LOST, f"{_listed(missing)} in the topic are in no table"))
    spans = [(max(first, extent.first), min(behind, extent.end)) for first, behind in taken]
    if (surplus := lake.surplus(partition, spans, has_gaps=has_gaps))[0]:
        told.append((Status.DOUBLED, f"{_listed(surplus)} in the tables have no message of their own"))
    if (unbooked := lake.unbooked(partition))[0]:
        told.append((Status.LOST, f"{_listed(unbooked)} in the tables are in no row of the ledger"))
    told += _gaps(lake.ranges(partition), taken)
    if extent.end < end:
        told.append((Status.CHANGED, f"the partition ends at offset {extent.end:,}, but {end:,} was read"))
    if (mislabelled := lake.mislabelled(partition))[0]:
        told.append(
            (Status.CHANGED, f"key or headers of {_listed(mislabelled)} in the tables differ from those of the message")
        )
    told += [(Status.CHANGED, text) for text in contents[:_SHOWN]]
    if len(contents) > _SHOWN:
        told.append((Status.CHANGED, f"and {len(contents) - _SHOWN:,} more of this kind"))
    for at, booking, account in lake.books(partition):
        if found := difference(booking, account):
            told.append((Status.CHANGED, f"offsets from {at:,}: {found}"))
    source = f"{recorded.topic}/{partition}"
    if told:
        worst = min((status for status, _ in told), key=list(Status).index)
        return Finding(source, worst, tuple(text for _, text in told))
    if expired := sum(max(min(extent.first, behind) - first, 0) for first, behind in taken):
        return Finding(source, Status.EXPIRED, (f"{expired:,} offsets are gone; tables and ledger agree",))
    if extent.end > end:
        waiting = extent.end - end
        are = "1 offset is" if waiting == 1 else f"{waiting:,} offsets are"
        return Finding(source, Status.PENDING, (f"{are} not consumed yet",), waiting)
    return Finding(source, Status.OK)


def _gaps(ranges: list[Span], taken: list[Span]) -> list[tuple[Status, str]]:
    """Say where the ledger's ranges do not follow each other from the start to the end of what was taken."""
    told = []
    left = list(ranges)
    for number, (at, end) in enumerate(taken):
        last = number == len(taken) - 1
        while left and (last or left[0][0] < end):
            begin, behind = left.pop(0)
            if begin > at:
                told.append((Status.LOST, f"the ledger has no row for offsets {at:,} to {begin - 1:,}"))
            elif begin < at:
                text = f"the ledger has two rows for offsets {begin:,} to {min(at, behind) - 1:,}"
                told.append((Status.DOUBLED, text))
            at = max(at, behind)
        if at < end:
            told.append((Status.LOST, f"the ledger has no row for offsets {at:,} to {end - 1:,}"))
    return told


def _listed(units: Units) -> str:
    count, first = units
    return f"{count:,} units (at {', '.join(first)}{', …' if count > len(first) else ''})"
