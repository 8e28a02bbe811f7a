"""Topic: read the messages of a topic again, and compare each partition with bronze, dead letters and ledger.

Reads happen in an order that stays consistent beside a running consumer: the checkpoint before the ledger, which is
never behind the checkpoint; the ledger before the tables; all three before the ends of the partitions.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from lakeproof.checkpoint import bronze_query, read_checkpoint
from lakeproof.kafka.offsets import Offsets, source_name, without
from lakeproof.kafka.topic import Extent, Topic
from lakeproof.settings import Limits
from lakeproof.tables.names import MICRO_BATCH_ID, SOURCE
from lakeproof.wording import are, count_of
from reader.verify.check import Check, Result, Scope
from reader.verify.checks.discarded import MissingOfRanges
from reader.verify.checks.sources import (
    ROWS_AT_ONCE,
    SECTION,
    Compared,
    first_of,
    lost_attempts,
    replays_of,
    result_of,
    worst_of,
)
from reader.verify.findings import Finding, Status
from reader.verify.landed.messages import Message, messages
from reader.verify.landed.units import Units, find_units, whole_batch
from reader.verify.landed.values import Sample
from reader.verify.tables.accounts import difference, settle
from reader.verify.tables.layers import marker_in
from reader.verify.tables.since import messages_again
from reader.verify.tables.topic import ListedUnits, TablesOfTopic

Range = tuple[int, int]
"""A range of offsets: the first, and the end, which is exclusive."""
Letters = Mapping[tuple[int, int], Mapping[int, Sequence[str | None]]]
"""SHA-256 of the bytes of dead letters, by partition and offset, and by position."""


def check(scope: Scope) -> tuple[Result, ...]:
    """Compare the topic of a stream with its tables."""
    recorded = scope.topic
    if recorded is None:
        return ()
    settings, query = scope.settings, bronze_query(scope.stream)
    checkpoint = read_checkpoint(settings, query, Offsets.from_spark)
    replays = replays_of(scope)
    book = scope.book

    def accounted_for() -> Offsets:
        marker = marker_in(scope.ledger_properties(), query)
        return Offsets.parse(marker["end"]) if marker else recorded.start

    tables = TablesOfTopic(scope.session, book.tables, recorded.topic, accounted_for, replays, book.proven)
    settle(tables)
    if replays.is_lost:
        return (result_of([], [lost_attempts(scope.stream)]),)
    accounted = tables.accounted
    topic = Topic(settings.kafka, recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    extents = topic.extents(partitions)
    compared = Compared(scope, replays)
    taken = {partition: _taken(recorded.start, accounted, partition) for partition in partitions}
    unread = _unread(scope, taken)
    ranges = {partition: _left(unread.get(partition, []), extents[partition]) for partition in partitions}
    compared.draw(*_rows_of(recorded.topic, ranges))
    recount = _Recount(settings.limits, tables, recorded.topic, compared)
    due, done = sum(max(end - first, 0) for each in ranges.values() for first, end in each), 0
    contents: dict[int, list[str]] = {partition: [] for partition in partitions}
    for partition in partitions:
        if scope.values:
            recount.expect_discarded(partition, ranges[partition])
        for first, end in ranges[partition]:
            for group in messages(settings.kafka, recorded.topic, partition, first, end):
                contents[partition] += recount.take(partition, group)
                done += len(group)
                scope.show(f"{scope.stream}: topic {recorded.topic}, offsets", done, due)
        contents[partition] += recount.end()
    has_gaps = topic.is_compacted()
    erased = _erased(book.removals.erased())
    findings = [
        _judge(
            tables,
            f"{recorded.topic}/{number}",
            number,
            taken[number],
            ranges[number],
            extents[number],
            contents[number],
            has_gaps,
            erased[f"{recorded.topic}/{number}"],
        )
        for number in partitions
    ]
    book.note("offsets", [[number, *each] for number in partitions for each in taken[number]])
    bronze, dead = tables.totals()
    problems = [
        f"{foreign:,} rows of the {where} do not come from a partition of the topic {recorded.topic}."
        for where, foreign in zip(("tables", "ledger"), tables.foreign(partitions), strict=True)
        if foreign
    ]
    if checkpoint and (passed := checkpoint.passed) and _is_ahead(passed, accounted):
        problems.append(
            f"The checkpoint is at {passed}, but the tables are at {accounted}. The messages in between will not be "
            f"read. Run `consumer reset {scope.stream}`, then the consumer."
        )
    units, rows = tables.counted(), compared.rows
    return (result_of(findings, problems, units=units, bronze=bronze, dead_letters=dead, sampled=rows),)


class _Recount:
    """Counts the units of messages, and compares their bytes and values with the tables."""

    def __init__(self, limits: Limits, tables: TablesOfTopic, topic: str, compared: Compared) -> None:
        self._limits = limits
        self._tables = tables
        self._topic = topic
        self._letters: Letters = tables.letters()
        self._too_large = tables.too_large()
        self._compared = compared
        self._sample: Sample | None = None
        self._sampled = (-1, 0)  # partition, and the offset before which the sample is complete
        self._missing = MissingOfRanges()

    def expect_discarded(self, partition: int, spans: Sequence[Range]) -> None:
        """Begin a partition, whose rows may lack the values that the ledger has as discarded."""
        self._missing = MissingOfRanges(self._tables.discarding(partition, spans))

    def take(self, partition: int, group: Sequence[Message]) -> list[str]:
        """Count the units of messages; return texts about differences in the tables."""
        counts, told = [], []
        self._find_rows(partition, group)
        whole = self._whole(partition, group)
        for message in group:
            offset = message.offset
            letters = self._letters.get((partition, offset), {})
            source = source_name(self._topic, partition, offset)
            sampled = self._sample.positions(source) if self._sample else frozenset()
            found = _units(message, letters.keys() | sampled, self._limits.record_bytes, is_whole=offset in whole)
            now, is_changed = self._tables.recovered.get(source, (found.count, False))
            counts.append((offset, now if found.whole or is_changed else found.count, message.label))
            told += [
                f"the dead letter of unit {position} of offset {offset:,} differs from the message"
                for position, hashes in letters.items()
                if _is_other(message, found, position, hashes)
            ]
            if self._sample and sampled:
                compared = self._sample.compare(source, found.picked)
                self._compared.rows += compared.rows
                told += [f"offset {offset:,}: {text}" for text in compared.wrong]
                told += self._missing.add(offset, compared)
        self._tables.expect(partition, counts)
        return told

    def end(self) -> list[str]:
        """Return texts about the values that are missing at the end of a partition."""
        return list(self._missing.end())

    def _whole(self, partition: int, group: Sequence[Message]) -> AbstractSet[int]:
        """Return the offsets of messages that count as one unit, since they are too large to be split.

        The limit may have been different when a message was judged: the tables decide, if they have the message.
        """
        most, letters = self._limits.unpacked_bytes, self._too_large
        large = {each.offset for each in group if each.value is not None and len(each.value) > most}
        kept = {each.offset for each in group if letters.get((partition, each.offset))} if letters else set()
        # A replay has split a message whose dead letter is closed, and its units are known.
        unknown = {offset for offset in large if (partition, offset) not in letters}
        return kept | (large - self._tables.having_rows(partition, unknown) if unknown else large)

    def _find_rows(self, partition: int, group: Sequence[Message]) -> None:
        """Find the bronze rows to compare with these messages and with some that follow."""
        first, last = group[0].offset, group[-1].offset
        if self._sampled[0] == partition and last < self._sampled[1]:
            return
        end = max(first + ROWS_AT_ONCE, last + 1)
        low, high = (source_name(self._topic, partition, each) for each in (first, end))
        condition = f"{MICRO_BATCH_ID} BETWEEN ? AND ? AND {SOURCE} >= ? AND {SOURCE} < ?"
        self._sample = self._compared.of(condition, [*self._tables.micro_batches(partition, first, end), low, high])
        self._sampled = (partition, end)


def _rows_of(topic: str, ranges: Mapping[int, Sequence[Range]]) -> tuple[str, list[str]]:
    """Return SQL that selects the bronze rows of messages, from the first to the last range of each partition."""
    parameters = [
        source_name(topic, partition, offset)
        for partition, spans in ranges.items()
        if spans
        for offset in (spans[0][0], spans[-1][1])
    ]
    selected = [f"{SOURCE} >= ? AND {SOURCE} < ?"] * (len(parameters) // 2)
    return f"({' OR '.join(selected) or 'false'})", parameters


def _units(message: Message, wanted: AbstractSet[int], most: int, *, is_whole: bool) -> Units:
    value = message.value
    if value is None or is_whole:
        return Units(1, whole=True)
    if not message.has_readable_headers:
        return whole_batch(value, most)
    if value[:1] == b"{" and not wanted:
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            pass  # not UTF-8, or not JSON
        else:
            return Units(1)
    return find_units(value, wanted, most)


def _is_other(message: Message, found: Units, position: int, hashes: Sequence[str | None]) -> bool:
    """Return whether the dead letter of a unit has other bytes than the message; False if the unit is too large."""
    if message.value is None:
        return position == 0 and set(hashes) != {None}
    return position in found.picked and set(hashes) != {hashlib.sha256(found.picked[position]).hexdigest()}


def _taken(start: Offsets, accounted: Offsets, partition: int) -> list[Range]:
    """Return the offsets that the tables have, by their marker: read by batches from the past, and by the stream."""
    past = [(first, end) for of, first, end in accounted.past if of == partition]
    begin, end = start.next(partition), max(start.next(partition), accounted.next(partition))
    if past and past[-1][1] == begin:  # the ledger has no gap in between
        begin = past.pop()[0]
    return [*past, (begin, end)]


def _unread(scope: Scope, taken: Mapping[int, list[Range]]) -> dict[int, list[Range]]:
    """Return the offsets that were not proven, and those of old messages with new rows."""
    proven = scope.book.noted("offsets")
    if proven is None:
        return dict(taken)
    wanted = without([(number, *each) for number, ranges in taken.items() for each in ranges], map(tuple, proven))
    wanted += [(number, at, at + 1) for number, at in messages_again(scope.session)]
    found: dict[int, list[Range]] = {}
    for number, first, end in without(wanted, []):
        found.setdefault(number, []).append((first, end))
    return found


def _is_ahead(passed: Offsets, accounted: Offsets) -> bool:
    return any(offset > accounted.next(partition) for partition, offset in passed.entries)


def _left(taken: list[Range], extent: Extent) -> list[Range]:
    """Return the parts of the ranges that are still in the partition."""
    return [(max(first, extent.first), min(end, extent.end)) for first, end in taken]


def _judge(
    tables: TablesOfTopic,
    source: str,
    partition: int,
    taken: list[Range],
    read: list[Range],
    extent: Extent,
    contents: Sequence[str],
    has_gaps: bool,
    erased: int,
) -> Finding:
    """Return the status of a partition, with details."""
    end = taken[-1][1]
    told: list[tuple[Status, str]] = []
    if (missing := tables.missing(partition))[0]:
        told.append((Status.LOST, f"{_listed(missing)} in the topic are in no table"))
    if (surplus := tables.surplus(partition, read, has_gaps=has_gaps))[0]:
        told.append((Status.DOUBLED, f"{_listed(surplus)} in the tables have no message of their own"))
    if (unbooked := tables.unbooked(partition))[0]:
        told.append((Status.LOST, f"{_listed(unbooked)} in the tables are in no row of the ledger"))
    told += _gaps(tables.ranges(partition), taken)
    if extent.end < end:
        told.append((Status.CHANGED, f"the partition ends at offset {extent.end:,}, but {end:,} was read"))
    if (mislabelled := tables.mislabelled(partition))[0]:
        text = f"key or headers of {_listed(mislabelled)} in the tables differ from those of the message"
        told.append((Status.CHANGED, text))
    told += [(Status.CHANGED, text) for text in first_of(contents)]
    for at, booking, account in tables.books(partition):
        if text := difference(booking, account):
            told.append((Status.CHANGED, f"offsets from {at:,}: {text}"))
    if told:
        return worst_of(source, told)
    waiting = max(extent.end - end, 0)
    unread = (f"{are(waiting, 'offset')} not consumed yet",) if waiting else ()
    if erased:
        return Finding(source, Status.ERASED, waiting, (f"{count_of(erased, 'unit')} erased", *unread))
    if expired := sum(max(min(extent.first, behind) - first, 0) for first, behind in taken):
        text = f"{expired:,} offsets are gone; tables and ledger agree"
        return Finding(source, Status.EXPIRED, waiting, (text, *unread))
    return Finding(source, Status.PENDING if waiting else Status.OK, waiting, unread)


def _erased(units: Mapping[str, int]) -> Counter[str]:
    """Return the number of erased units by name of the partition."""
    found = Counter[str]()
    for message, count in units.items():
        found[message.rpartition("/")[0]] += count
    return found


def _gaps(ranges: list[Range], taken: list[Range]) -> list[tuple[Status, str]]:
    """Return gaps and overlaps of the ledger's ranges, from the start to the end of the consumed offsets."""
    told = []
    next_range = 0
    for number, (at, end) in enumerate(taken):
        last = number == len(taken) - 1
        while next_range < len(ranges) and (last or ranges[next_range][0] < end):
            begin, behind = ranges[next_range]
            next_range += 1
            if begin > at:
                told.append((Status.LOST, f"the ledger has no row for offsets {at:,} to {begin - 1:,}"))
            elif begin < at:
                text = f"the ledger has two rows for offsets {begin:,} to {min(at, behind) - 1:,}"
                told.append((Status.DOUBLED, text))
            at = max(at, behind)
        if at < end:
            told.append((Status.LOST, f"the ledger has no row for offsets {at:,} to {end - 1:,}"))
        elif at > end and not last:
            text = f"the ledger has a row for offsets {end:,} to {at - 1:,}, which were not read"
            told.append((Status.CHANGED, text))
    return told


def _listed(units: ListedUnits) -> str:
    count, first = units
    return f"{count:,} units (at {', '.join(first)}{', …' if count > len(first) else ''})"


CHECK = Check("topic", SECTION, check)
