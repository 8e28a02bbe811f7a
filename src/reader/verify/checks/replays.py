"""Replays: check the outcome of replayed dead letters.

Attempts must be consecutive, the records of a closed dead letter must be in bronze once, those of an open or parked one
not at all, and the ledger must have a row for each source of a replay. The reader's own splitter recomputes the units
of a batch, and a record that a transform changed is compared with the bytes in the attempt.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeproof.reasons import Reason
from lakeproof.tables.names import (
    ATTEMPT,
    LETTER,
    MICRO_BATCH_ID,
    OUTCOME,
    POSITION,
    RAW,
    SALVAGED,
    SOURCE,
    TRANSFORM,
    TRANSFORM_DIGEST,
    ReplayOutcome,
    StreamTables,
    stream_tables,
)
from lakeproof.wording import count_of
from reader.verify.check import Check, Result, Scope, Section
from reader.verify.checks.discarded import Missing
from reader.verify.checks.sources import columns_of, contracts_of, lost_attempts, replays_of
from reader.verify.findings import SHOWN_EXAMPLES, Findings
from reader.verify.landed.units import complete_units, find_units, salvage
from reader.verify.landed.unpack import unpack_beginning
from reader.verify.landed.values import Sample
from reader.verify.silver.compare import place
from reader.verify.tables.accounts import CODES, settle, value_columns
from reader.verify.tables.letters import ReplayedLetters
from reader.verify.tables.removals import not_removed
from reader.verify.tables.replays import ATTEMPTS, BOOKED, CHANGED
from reader.views import MEMORY, identifier

LEFT_BEHIND = "records of a batch that were left behind"
OTHER_REST = "the rest of a batch is not what its records leave"
OTHER_NUMBER = "another number of records than the batch has"
OTHER_BYTES = "other bytes than the batch has at its place"
OTHER_VALUES = "values that differ from the bytes that were replayed"

_COMPARED = f"{MEMORY}.main.verify_replayed_values"
_GROUP_BYTES = 32 << 20
_GROUP_BATCHES = 500
_ROWS_AT_ONCE = 20_000
_LISTED_TRANSFORMED = 100
_GZIP = b"\x1f\x8b"
_BETWEEN = b", \t\r\n"
_BYTES = f"coalesce(attempt.{RAW}, letter.{RAW})"
"""SQL of the judged bytes: the attempt has them if a transform changed them, or the dead letter lacks them."""
_CHANGED = f"(attempt.{RAW} IS NOT NULL AND attempt.{TRANSFORM} IS NOT NULL)"
"""SQL that is true if a transform changed the bytes."""

_Letter = tuple[bytes | None, str]
"""Bytes and reasons of a dead letter."""
_REMOVED: _Letter = (None, "removed")
"""A dead letter that was removed: only its place is known."""


def check(scope: Scope) -> tuple[Result, ...]:
    """Check the replays of a stream; no result without replays."""
    replays = replays_of(scope)
    book = scope.book
    letters = ReplayedLetters(scope.session, book.tables, replays, book.proven, of_topic=scope.topic is not None)
    settle(letters)
    if replays.is_lost:
        return (_result({}, problems=(lost_attempts(scope.stream),)),)
    if not replays.has_table:
        return ()
    names, found = stream_tables(scope.stream), Findings()
    for table, faults in (
        (names.attempts, letters.of_attempts()),
        (names.bronze, letters.of_bronze()),
        (names.dead_letters, letters.of_letters()),
        (names.ledger, letters.of_ledger()),
    ):
        for what, rows in faults:
            count, first = letters.fetch_first(rows, SHOWN_EXAMPLES)
            if count:
                found.add(table, what, count, [_example(*each) for each in first])
    differences = _Differences(scope, found)
    _Batches(scope, found, differences).compare()
    values = _Values(scope, differences)
    values.compare()
    differences.end()
    facts = {
        "replays": letters.replays(),
        "attempts": replays.attempts,
        **letters.states(),
        "transformed_records": values.count(),
        "transformed": values.transformed(),
    }
    return (_result(facts, found),)


def _result(facts: Mapping[str, Any], found: Findings | None = None, problems: tuple[str, ...] = ()) -> Result:
    remarks = []
    if records := facts.get("transformed_records"):
        files = sorted({f"{each['transform']} (SHA-256 {each['digest'][:12]}…)" for each in facts["transformed"]})
        text = f"{count_of(records, 'transformed record')}, by {', '.join(files)}; --format json shows their bytes."
        remarks.append(text)
    empty = dict.fromkeys(("replays", "attempts", "open", "parked", "closed", "transformed_records"), 0)
    return Result(
        {**empty, "transformed": [], **facts}, found.whole() if found else (), problems, remarks=tuple(remarks)
    )


def _example(source: str | None, position: int | None, text: str) -> str:
    if position is None and source is not None:
        return f"{source}, {text}"
    return place(source, position, text)


def _closed(tables: StreamTables) -> str:
    """Return SQL to follow ``FROM``: attempts that closed a dead letter, joined with the dead letter."""
    return (
        f"{tables.attempts} AS attempt JOIN {tables.dead_letters} AS letter ON letter.{SOURCE} = attempt.{SOURCE} "
        f"AND letter.{POSITION} = attempt.{POSITION} AND coalesce(letter.{ATTEMPT}, 1) = attempt.{LETTER} "
        f"JOIN {ATTEMPTS} AS made ON made.source = attempt.{SOURCE} AND made.position = attempt.{POSITION} "
        f"AND made.letter = attempt.{LETTER} AND made.attempt = attempt.{ATTEMPT} "
        f"WHERE attempt.{OUTCOME} = '{ReplayOutcome.CLOSED}' AND made.made"
    )


@dataclass(frozen=True)
class _Batch:
    """A batch that a replay closed: the bytes that were split, and data of the attempt."""

    source: str
    content: bytes
    packed: bytes | None  # the packed file if it is damaged: `content` is the part that can be unpacked
    is_changed: bool  # whether a transform changed the bytes
    salvaged: int


class _Batches:
    """Splits closed batches again, and compares their units with bronze and the dead letters."""

    def __init__(self, scope: Scope, found: Findings, differences: "_Differences") -> None:
        self._scope = scope
        self._session = scope.session
        self._tables = scope.book.tables
        self._names = stream_tables(scope.stream)
        self._limits = scope.settings.limits
        self._found = found
        self._differences = differences

    def compare(self) -> None:
        """Compare all closed batches, a few at a time."""
        listed = self._session.fetch(
            f"SELECT attempt.{SOURCE}, octet_length({_BYTES}) AS bytes FROM {_closed(self._tables)} "
            f"AND attempt.{SALVAGED} IS NOT NULL AND bytes IS NOT NULL ORDER BY ALL"
        )
        for sources in _grouped(listed):
            held = self._held(sources)
            units: dict[str, dict[int, bytes]] = {}
            for batch in self._batches(sources):
                found = self._compare(batch, held.get(batch.source, {}))
                if batch.is_changed or self._scope.values:
                    units[batch.source] = dict(enumerate(found))
            if units:
                self._compare_values(units)

    def _batches(self, sources: Sequence[str]) -> Iterator[_Batch]:
        for source, content, is_changed, salvaged in self._session.fetch(
            f"SELECT attempt.{SOURCE}, {_BYTES}, {_CHANGED}, attempt.{SALVAGED} "
            f"FROM {_closed(self._tables)} AND attempt.{SALVAGED} IS NOT NULL "
            f"AND attempt.{SOURCE} IN (SELECT unnest(?::VARCHAR[]))",
            [list(sources)],
        ):
            beginning = self._beginning(source, content)
            packed = None if beginning is None else content
            yield _Batch(source, content if beginning is None else beginning, packed, is_changed, salvaged)

    def _beginning(self, source: str, content: bytes) -> bytes | None:
        """Return the part of a damaged gzip file that can be unpacked; None for other content."""
        if not (source.endswith(".gz") and content.startswith(_GZIP)):
            return None
        return unpack_beginning(content, self._limits.unpacked_bytes)

    def _held(self, sources: Sequence[str]) -> dict[str, dict[int, list[_Letter | None]]]:
        """Return bytes and reasons of dead letters, and None for each bronze row, by source and position."""
        held: dict[str, dict[int, list[_Letter | None]]] = {}
        there = not_removed(self._session, self._tables.dead_letters)
        for source, position, in_bronze, is_there, raw, codes in self._session.fetch(
            f"SELECT {SOURCE}, {POSITION}, true, true, NULL, NULL FROM {self._tables.bronze} "
            f"WHERE {SOURCE} IN (SELECT unnest(?::VARCHAR[])) UNION ALL "
            f"SELECT {SOURCE}, {POSITION}, false, {there}, {RAW}, {CODES} FROM {self._tables.dead_letters} "
            f"WHERE {SOURCE} IN (SELECT unnest(?::VARCHAR[])) AND {ATTEMPT} > 1",
            [list(sources), list(sources)],
        ):
            letter = (raw, codes) if is_there else _REMOVED
            held.setdefault(source, {}).setdefault(position, []).append(None if in_bronze else letter)
        return held

    def _compare(self, batch: _Batch, held: Mapping[int, Sequence[_Letter | None]]) -> list[bytes]:
        """Compare the units of a batch with the rows at their places; return the units."""
        units, rest = _split(batch.content) if batch.packed is None else (complete_units(batch.content), batch.packed)
        add, name = self._found.add, self._names.dead_letters
        if len(units) != batch.salvaged:
            text = f"the attempt has {batch.salvaged:,}, the batch {len(units):,}"
            add(self._names.attempts, OTHER_NUMBER, 1, [place(batch.source, 0, text)])
        lost = [position for position in range(len(units)) if not held.get(position)]
        if lost:
            add(name, LEFT_BEHIND, len(lost), [place(batch.source, position) for position in lost[:SHOWN_EXAMPLES]])
        # A dead letter of the batch that was itself replayed may have a bronze row at the same place.
        for position, unit in enumerate(units):
            for letter in held.get(position, ()):
                if letter is None or letter == _REMOVED:
                    continue
                if letter[0] != unit and not _is_too_large(*letter):
                    add(name, OTHER_BYTES, 1, [place(batch.source, position)])
        self._compare_rest(batch, rest, [each for each in held.get(len(units), ()) if each])
        for position in sorted(position for position in held if not 0 <= position <= len(units)):
            add(name, OTHER_NUMBER, len(held[position]), [place(batch.source, position, "of no record of the batch")])
        return units

    def _compare_rest(self, batch: _Batch, rest: bytes | None, letters: Sequence[_Letter]) -> None:
        """Compare the rest: one dead letter, with or without the leading separator; a blank rest needs none."""
        add, name, at = self._found.add, self._names.dead_letters, batch.salvaged
        if rest is None:
            if letters:
                add(name, OTHER_REST, len(letters), [place(batch.source, at, "the batch was split to its end")])
        elif not letters:
            if rest.strip(_BETWEEN):
                add(name, OTHER_REST, 1, [place(batch.source, at, f"{len(rest):,} bytes are in no dead letter")])
        elif any(
            (raw or b"").strip(_BETWEEN) != rest.strip(_BETWEEN) and not _is_too_large(raw, codes)
            for raw, codes in letters
            if (raw, codes) != _REMOVED
        ):
            add(name, OTHER_REST, 1, [place(batch.source, at, "other bytes")])

    def _compare_values(self, units: Mapping[str, Mapping[int, bytes]]) -> None:
        contracts = contracts_of(self._scope)
        names = value_columns(self._session, self._tables.bronze, columns_of(contracts))
        with self._session.errors():
            table = self._session.connection.execute(
                f"SELECT {', '.join(map(identifier, names))} FROM {self._tables.bronze} AS bronze "
                f"WHERE {SOURCE} IN (SELECT unnest(?::VARCHAR[])) AND EXISTS (FROM {ATTEMPTS} AS batch "
                f"WHERE batch.source = bronze.{SOURCE} AND batch.micro_batch = bronze.{MICRO_BATCH_ID} "
                "AND batch.salvaged IS NOT NULL)",
                [list(units)],
            ).to_arrow_table()
        self._differences.add(Sample(contracts, table), units)


def _split(content: bytes) -> tuple[list[bytes], bytes | None]:
    """Return the units of a batch; and the bytes after the complete units, if it cannot be split to its end."""
    count = find_units(content)
    if count.whole:
        return salvage(content)
    picked = find_units(content, frozenset(range(count.count))).picked
    return [picked[position] for position in range(count.count)], None


def _is_too_large(raw: bytes | None, codes: str) -> bool:
    """Return whether a dead letter has no bytes because they were too large; the limit may be another one today."""
    return raw is None and (Reason.RECORD_TOO_LARGE in codes or Reason.BATCH_TOO_LARGE in codes)


def _grouped(listed: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for source, length in listed:
        if group and (size + length > _GROUP_BYTES or len(group) == _GROUP_BATCHES):
            yield group
            group, size = [], 0
        group.append(source)
        size += length
    if group:
        yield group


class _Values:
    """Compares bronze rows with the replayed bytes: all rows that a transform changed, and a sample of the others."""

    def __init__(self, scope: Scope, differences: "_Differences") -> None:
        self._scope = scope
        self._session = scope.session
        self._tables = scope.book.tables
        self._differences = differences

    def compare(self) -> None:
        """Compare all transformed records and, with `values`, all or a sample of the others."""
        contracts = contracts_of(self._scope)
        names = value_columns(self._session, self._tables.bronze, columns_of(contracts))
        some = self._scope.sample
        sample = "" if some is None else f" USING SAMPLE reservoir({some} ROWS)"
        sampled = f"UNION ALL (SELECT * FROM pairs WHERE NOT changed{sample})"
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_COMPARED} AS WITH pairs AS ("
            f"SELECT attempt.{SOURCE} AS source, attempt.{POSITION} AS position, "
            f"attempt.{MICRO_BATCH_ID} AS micro_batch, {_BYTES} AS bytes, {_CHANGED} AS changed "
            f"FROM {_closed(self._tables)} AND attempt.{SALVAGED} IS NULL AND bytes IS NOT NULL) "
            "SELECT *, row_number() OVER () AS number FROM "
            f"(SELECT * FROM pairs WHERE changed {sampled if self._scope.values else ''})"
        )
        columns = ", ".join(f"bronze.{identifier(name)}" for name in names)
        for start in range(1, self._session.count(_COMPARED) + 1, _ROWS_AT_ONCE):
            with self._session.errors():
                table = self._session.connection.execute(
                    f"SELECT {columns}, compared.bytes AS _bytes FROM {_COMPARED} AS compared "
                    f"JOIN {self._tables.bronze} AS bronze ON bronze.{SOURCE} = compared.source "
                    f"AND bronze.{POSITION} = compared.position AND bronze.{MICRO_BATCH_ID} = compared.micro_batch "
                    f"WHERE number BETWEEN {start} AND {start + _ROWS_AT_ONCE - 1}"
                ).to_arrow_table()
            units: dict[str, dict[int, bytes]] = {}
            places = (table[name].to_pylist() for name in (SOURCE, POSITION, "_bytes"))
            for source, position, content in zip(*places, strict=True):
                units.setdefault(source, {})[position] = content
            self._differences.add(Sample(contracts, table), units)

    def count(self) -> int:
        """Return the number of records that were closed with bytes changed by a transform."""
        ((records,),) = self._session.fetch(
            f"SELECT coalesce(sum(coalesce(salvaged, 1)), 0)::BIGINT FROM {ATTEMPTS} "
            f"WHERE outcome = '{ReplayOutcome.CLOSED}' AND {CHANGED}"
        )
        return int(records)

    def transformed(self) -> list[dict[str, Any]]:
        """Return the first transformed records and batches: the landed bytes, and the bytes judged in their place."""
        names = ("source", "position", "transform", "digest", "salvaged", "original", "landed")
        rows = self._session.fetch(
            f"SELECT attempt.{SOURCE}, attempt.{POSITION}, attempt.{TRANSFORM}, "
            f"coalesce(attempt.{TRANSFORM_DIGEST}, ''), attempt.{SALVAGED}, "
            f"{MEMORY}.main.as_text(letter.{RAW}), {MEMORY}.main.as_text(attempt.{RAW}) "
            f"FROM {_closed(self._tables)} AND {_CHANGED} ORDER BY ALL LIMIT {_LISTED_TRANSFORMED}"
        )
        return [dict(zip(names, row, strict=True)) for row in rows]


class _Differences:
    """Collects the values of bronze rows that differ from the replayed bytes.

    The contract may discard values. The ledger has their number by file or partition, not by record.
    """

    def __init__(self, scope: Scope, found: Findings) -> None:
        self._found = found
        self._bronze = stream_tables(scope.stream).bronze
        self._is_topic = scope.topic is not None
        part = "regexp_replace(source, '/[0-9]+$', '')" if self._is_topic else "source"
        self._booked = {
            name: (discarded, bronze)
            for name, discarded, bronze in scope.session.fetch(
                f"SELECT {part}, sum(discarded)::BIGINT AS values, sum(bronze)::BIGINT "
                f"FROM {BOOKED} GROUP BY ALL HAVING values > 0"
            )
        }
        self._missing = {name: Missing() for name in self._booked}

    def add(self, sample: Sample, units: Mapping[str, Mapping[int, bytes]]) -> None:
        """Compare rows with the replayed bytes."""
        for source, contents in units.items():
            compared = sample.compare(source, contents)
            told = compared.wrong
            missing = self._missing.get(source.rpartition("/")[0] if self._is_topic else source)
            if missing is None:
                told = told + compared.missing
            else:
                missing.add(compared, f"{source}: ")
            for text in told:
                self._found.add(self._bronze, OTHER_VALUES, 1, [f"{source}: {text}"])

    def end(self) -> None:
        """Compare the missing values with the discarded ones; of rows that were not compared, nothing is known."""
        for name, (discarded, rows) in self._booked.items():
            missing = self._missing[name]
            if told := list(missing.excess(f"{name}: ", discarded, rows)):
                self._found.add(self._bronze, OTHER_VALUES, max(missing.values, 1), told)


def _rows(result: Result) -> list[tuple[int, ...]]:
    facts = result.facts
    return [tuple(facts[name] for name in ("replays", "attempts", "open", "parked", "closed", "transformed_records"))]


SECTION = Section(
    key="replays",
    title="Replayed dead letters",
    columns=("replays", "attempts", "open", "parked", "closed", "transformed records"),
    rows=_rows,
    faults="replays with problems",
    wrong="replays are not what the dead letters make of them",
    right="Each dead letter is open, parked, or closed with its records in bronze, once.",
)
CHECK = Check("replays", SECTION, check)
