"""Judge landed units by a contract that is not applied, and count the units that would change sides."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.contracts import Contract
from lakeproof.history.applied import applied_contracts
from lakeproof.judge.batch import Judge
from lakeproof.judge.judged import ArrowColumn
from lakeproof.judge.split import Refused, split
from lakeproof.reasons import OF_BATCHES, WITHOUT_BYTES, Reason, reason_sets
from lakeproof.settings import Limits, Settings
from lakeproof.tables.names import (
    ATTEMPT,
    CONTRACT_VERSION,
    LANDED_AT,
    MICRO_BATCH_ID,
    POSITION,
    RAW,
    REASONS,
    RESCUED,
    SOURCE,
)
from lakeproof.whatif.landed import Landed, keys_of, landed, read, rows_of
from lakeproof.whatif.records import record_texts
from lakeproof.whatif.unseen import Reading, reading

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

MAX_EXAMPLES = 3
_GZIP_MAGIC = b"\x1f\x8b"
_LARGEST_RECORD = 1 << 30
"""Maximum bytes of a judged record from bronze: as JSON written by lakeproof, it may be longer than the landed text."""
_EPOCH = date(1970, 1, 1)
ResultT = TypeVar("ResultT")
Advance = Callable[[int], None]


class Effect(StrEnum):
    """The effect of a contract on a unit."""

    STAYS = "stays"  # no change; a dead letter also keeps its set of reasons
    TO_DEAD_LETTERS = "to_dead_letters"  # a row of bronze would be a dead letter
    TO_BRONZE = "to_bronze"  # a dead letter would be a row of bronze
    OTHER_REASONS = "other_reasons"  # a dead letter would have another set of reasons
    SPLIT = "split"  # a dead letter that is a whole batch would be split into units
    NOT_JUDGED = "not_judged"  # a dead letter whose bytes the table does not have


@dataclass(frozen=True)
class Example:
    """A unit that would change sides, and a reason: one that would be new, or else one that the unit has."""

    source: str
    position: int
    path: str
    detail: str


@dataclass
class Tally:
    """Number of units, and the first ones as examples."""

    units: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add the units of later rows."""
        self.units += other.units
        self.examples += other.examples[: MAX_EXAMPLES - len(self.examples)]


Move = tuple[Effect, str, str]
"""Change of units, and their current and new sets of reasons, joined by ``+``; empty for bronze."""


@dataclass
class Counts:
    """Counts of the judged units of a table."""

    rows: int = 0  # rows of the table
    chosen: int = 0  # rows that were chosen to be judged, including closed dead letters
    judged: int = 0  # units that were judged, or counted as not judged
    moves: dict[Move, Tally] = field(default_factory=dict)
    days: Counter[tuple[int | None, Effect]] = field(default_factory=Counter)  # by landing day, in days since 1970
    # Units of batches that would be split, by set of reasons; empty for bronze.
    split_units: Counter[str] = field(default_factory=Counter)

    @property
    def sampled(self) -> bool:
        """Whether only some rows of the table were chosen."""
        return self.chosen < self.rows

    def add(self, other: "Counts") -> None:
        """Add the counts of later rows."""
        self.judged += other.judged
        for move, tally in other.moves.items():
            self.moves.setdefault(move, Tally()).add(tally)
        self.days.update(other.days)
        self.split_units.update(other.split_units)

    def units(self, change: Effect) -> int:
        """Return the number of units with a change."""
        return sum(tally.units for move, tally in self.moves.items() if move[0] is change)

    def scaled(self, units: int) -> int:
        """Scale a number of units from the sample to the whole table."""
        return round(units * self.rows / self.chosen) if self.sampled else units


@dataclass(frozen=True)
class Forecast:
    """The changes that a contract would make to landed units."""

    contract: Contract
    bronze: Counts
    dead_letters: Counts
    unseen: tuple[str, ...] = ()  # unknown, since rows of bronze are judged from their columns

    @property
    def sampled(self) -> bool:
        """Whether only some rows were judged."""
        return self.bronze.sampled or self.dead_letters.sampled

    def days(self) -> dict[date | None, Counter[Effect]]:
        """Return units by landing day (UTC), oldest first, units without a time last."""
        found: dict[int | None, Counter[Effect]] = {}
        for counts in (self.bronze, self.dead_letters):
            for (day, change), units in counts.days.items():
                found.setdefault(day, Counter())[change] += units
        order = sorted(found, key=lambda day: (day is None, day or 0))
        return {None if day is None else _EPOCH + timedelta(days=day): found[day] for day in order}


def forecast(
    catalog: "Catalog",
    settings: Settings,
    contract: Contract,
    sample: int | None = None,
    progress: Callable[[int], Advance] | None = None,
) -> Forecast:
    """Judge the landed units of a stream by another contract. Nothing is changed.

    `sample` is the number of rows to judge of bronze, and of the dead letters; all by default. `progress` is called
    with the number of rows to judge; it returns a function to call with the number of each judged group.
    """
    found = landed(catalog, contract.stream)
    if found is None:
        return Forecast(contract, Counts(), Counts())
    bronze, dead_letters = (
        Counts(rows := rows_of(table), min(rows, rows if sample is None else sample))
        for table in (found.bronze, found.dead_letters)
    )
    advance = progress(bronze.chosen + dead_letters.chosen) if progress else lambda _: None
    letters = read(found.dead_letters, _LETTER_COLUMNS, found.newest, sample)
    work = partial(_letters, judge=Judge(contract, settings.limits, settings.judge), closed=found.closed)
    for counts in _in_threads(letters, work, advance):
        dead_letters.add(counts)
    readings = _Readings(catalog, contract, found, settings)
    for counts in _in_threads(readings.rows(sample), readings.judge, advance):
        bronze.add(counts)
    return Forecast(contract, bronze, dead_letters, readings.unseen())


_LETTER_COLUMNS = (REASONS, RAW, SOURCE, POSITION, LANDED_AT, MICRO_BATCH_ID, ATTEMPT)


def _in_threads(
    groups: Iterable[pa.RecordBatch], work: Callable[[pa.RecordBatch], Counts], advance: Advance
) -> Iterator[Counts]:
    """Process groups of rows in order. Threads suffice: Arrow and the native judge run in parallel to Python."""
    threads = os.cpu_count() or 1
    waiting: deque[tuple[int, Future[Counts]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for rows in groups:
                waiting.append((rows.num_rows, pool.submit(work, rows)))
                if len(waiting) > 2 * threads:
                    count, future = waiting.popleft()
                    yield future.result()
                    advance(count)
            while waiting:
                count, future = waiting.popleft()
                yield future.result()
                advance(count)
        finally:
            pool.shutdown(cancel_futures=True)


class _Readings:
    """Reads rows of bronze, each by the contract that judged it."""

    def __init__(self, catalog: "Catalog", contract: Contract, found: Landed, settings: Settings) -> None:
        self._found = found
        self._contract = contract
        past = applied_contracts(catalog, contract.stream)
        self._by_version = {each.version: each.contract() for each in past}
        self._newest = past[-1].contract() if past else contract
        self._limits = Limits(record_bytes=_LARGEST_RECORD)
        self._choice = settings.judge
        self._made: dict[str | None, tuple[Reading, Judge]] = {}

    def rows(self, sample: int | None) -> Iterator[pa.RecordBatch]:
        """Yield rows of bronze; each group has rows of a single version."""
        # Also of dropped fields: rows may have been judged by a contract that had them.
        fields = [field.name for field in self._newest.fields if not field.derived]
        columns = [*fields, RESCUED, SOURCE, POSITION, LANDED_AT, MICRO_BATCH_ID, CONTRACT_VERSION]
        for rows in read(self._found.bronze, columns, self._found.newest, sample):
            versions = rows.column(CONTRACT_VERSION)
            for version in versions.unique().to_pylist():
                self._prepare(version)
                same = pc.equal(versions, version) if version is not None else pc.is_null(versions)
                yield rows if pc.all(same).as_py() else rows.filter(same)

    def judge(self, rows: pa.RecordBatch) -> Counts:
        """Judge rows of one version."""
        of, judge = self._made[rows.column(CONTRACT_VERSION)[0].as_py()]
        texts = record_texts(rows, of.judged_by, self._newest.renamed, of.times)
        counts = Counts(judged=rows.num_rows)
        judged = list(judge.judge(_as_array(texts)))
        bad = pa.concat_arrays([each.bad.positions for each in judged]).to_numpy()
        order = np.argsort(bad)
        reasons = pa.concat_arrays([each.bad.reasons for each in judged]).take(pa.array(order))
        moves = [(Effect.TO_DEAD_LETTERS, "", each) for each in reason_sets(reasons)]
        _count(counts, moves, rows.take(pa.array(bad[order])), lambda index: (reasons, index))
        good = np.ones(rows.num_rows, bool)
        good[bad] = False
        if stay := rows.num_rows - len(bad):
            counts.moves[Effect.STAYS, "", ""] = Tally(stay)
            for each in pc.value_counts(_days(rows).filter(pa.array(good))).to_pylist():
                counts.days[each["values"], Effect.STAYS] += each["counts"]
        return counts

    def unseen(self) -> tuple[str, ...]:
        """List what the columns do not show, for the contracts of the rows that were read."""
        return tuple(dict.fromkeys(text for of, _ in self._made.values() for text in of.unseen))

    def _prepare(self, version: str | None) -> None:
        if version in self._made:
            return
        # Rows of an unknown contract are read by the newest one.
        judged_by = self._by_version.get(version or "", self._newest)
        of = reading(judged_by, self._contract, discarded=version in self._found.discarded)
        self._made[version] = of, Judge(of.contract, self._limits, self._choice)


def _as_array(texts: ArrowColumn) -> bytes:
    """Join records into a batch: a JSON array."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: Any = pc.binary_join(whole, ",")
    text: bytes = joined[0].as_buffer().to_pybytes()
    return b"[" + text + b"]"


def _letters(rows: pa.RecordBatch, judge: Judge, closed: frozenset[str]) -> Counts:
    """Judge dead letters like a replay. Closed dead letters are left out: their units are counted in bronze."""
    if closed:
        rows = rows.filter(pa.array([key not in closed for key in keys_of(rows)]))
    counts = Counts(judged=rows.num_rows)
    now = reason_sets(rows.column(REASONS))
    raws: Any = rows.column(RAW).to_pylist()
    landed_so = pc.equal(rows.column(ATTEMPT), 1).fill_null(True).to_pylist() if ATTEMPT in rows.schema.names else None
    moves: list[Move] = [(Effect.STAYS, old, old) for old in now]
    records: list[int] = []
    for index, (old, raw) in enumerate(zip(now, raws, strict=True)):
        codes = old.split("+")
        # The part of a batch that a replay could not read became a dead letter that is a record.
        is_batch = not OF_BATCHES.isdisjoint(codes) and (landed_so is None or landed_so[index])
        if is_batch and not WITHOUT_BYTES.isdisjoint(codes):
            continue
        if raw is None:
            moves[index] = (Effect.NOT_JUDGED, old, old)
        elif not is_batch:
            records.append(index)
        elif isinstance(found := split(raw, judge.limits.record_bytes), Refused):
            # A replay keeps the reason of gzip that cannot be unpacked.
            if found.code != old and not (Reason.UNDECODABLE in codes and raw.startswith(_GZIP_MAGIC)):
                moves[index] = (Effect.OTHER_REASONS, old, found.code.value)
        else:
            moves[index] = (Effect.SPLIT, old, "")
            for judged in judge.judge(raw):
                counts.split_units[""] += len(judged.good)
                counts.split_units.update(reason_sets(judged.bad.reasons))
    shown: dict[int, Any] = {}
    for together in judge.judge_units([raws[index] for index in records]):
        for unit in together.good_of.tolist():
            moves[records[unit]] = (Effect.TO_BRONZE, now[records[unit]], "")
        reasons = together.judged.bad.reasons
        for row, (unit, new) in enumerate(zip(together.bad_of.tolist(), reason_sets(reasons), strict=True)):
            index = records[unit]
            if new != now[index]:
                moves[index] = (Effect.OTHER_REASONS, now[index], new)
                shown[index] = reasons, row
    of_rows = rows.column(REASONS)
    _count(counts, moves, rows, lambda index: shown.get(index, (of_rows, index)))
    return counts


def _count(
    counts: Counts, moves: Sequence[Move], rows: pa.RecordBatch, reasons: Callable[[int], tuple[Any, int]]
) -> None:
    """Count the changes of rows; `reasons` returns the array that has the reasons of a row, and the index in it."""
    counts.days.update(zip(_days(rows).to_pylist(), (move[0] for move in moves), strict=True))
    counts.moves.update({move: Tally(units) for move, units in Counter(moves).items()})
    for index, move in enumerate(moves):
        if move[0] is Effect.STAYS or len(examples := counts.moves[move].examples) == MAX_EXAMPLES:
            continue
        column, at = reasons(index)
        listed = column[at].as_py() or [{}]
        first = next((reason for reason in listed if reason.get("code") not in move[1].split("+")), listed[0])
        source, position = rows.column(SOURCE)[index].as_py(), rows.column(POSITION)[index].as_py()
        examples.append(Example(source or "", position or 0, first.get("path") or "", first.get("detail") or ""))


def _days(rows: pa.RecordBatch) -> Any:
    """Return the landing days of rows, in days since 1970."""
    return rows.column(LANDED_AT).cast(pa.timestamp("us")).cast(pa.date32(), safe=False).cast(pa.int32())
