"""Receipts: check that each event accepted by the collector is in the right table, once.

The ledger is read before the tables, and the marker of silver before its tables. So rows up to the ledger and the
marker must be in the tables, and rows beyond them are in progress. A replay appends the attempt that closes a dead
letter before the record: neither counts before the ledger has their micro-batch, so the dead letter is open until then.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from lakeproof.catalog import catalog_errors, quoted, table_or_none
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract
from lakeproof.errors import UsageError
from lakeproof.kafka.offsets import OFFSET_DIGITS, Offsets
from lakeproof.kafka.recorded import Recorded
from lakeproof.tables.expired import expired_of
from lakeproof.tables.names import (
    ATTEMPT,
    HEADERS,
    MICRO_BATCH_ID,
    REASONS,
    SOURCE,
    silver_query,
    silver_tables,
    stream_tables,
)
from lakeproof.wording import are
from reader.letters import not_closed
from reader.verify.check import Check, Result, Scope, Section
from reader.verify.findings import SHOWN_EXAMPLES, Findings
from reader.verify.landed.receipts import read_receipts
from reader.verify.silver.content import key
from reader.verify.tables.layers import marker_end, marker_in, missing_silver, newest_marker, silver_contract
from reader.verify.tables.under_way import IS_COMPLETE, IS_KNOWN, load_known
from reader.views import MEMORY, identifier

_GIVEN = f"{MEMORY}.main.verify_given_receipts"
_STARTS = f"{MEMORY}.main.verify_receipt_starts"
_PAST = f"{MEMORY}.main.verify_receipt_past"
_ENDS = f"{MEMORY}.main.verify_receipt_ends"
_RECEIPTS = f"{MEMORY}.main.verify_receipts"
_ROWS = f"{MEMORY}.main.verify_receipt_rows"
_ERASED = f"{MEMORY}.main.verify_receipt_erasures"
_FOUND = f"{MEMORY}.main.verify_receipt_outcomes"

_WRONG_ID = "wrong correlation id"


class Outcome(StrEnum):
    """Outcome of an event with a receipt."""

    KEPT = "kept"  # in bronze once, and in silver
    DUPLICATE = "duplicate"  # in bronze once; silver has another copy of it
    CONFLICT = "conflict"  # in bronze once, and among the conflicts: silver has another event with its key
    LATE = "late"  # in bronze once, and among the late rows
    EXPIRED = "expired"  # in bronze once, not in silver: retention has removed conflicts or late rows of its time
    BRONZE = "bronze"  # in bronze once; the stream has no silver
    DEAD_LETTER = "dead letter"  # violates the contract
    ERASED = "erased"  # in no table, and in the account of removals
    UNDECIDED = "undecided"  # in bronze once; silver has not read it yet
    PENDING = "pending"  # not consumed yet
    BEFORE = "before the beginning"  # from before the beginning of the stream, and not read since by a batch
    LOST = "lost"  # in no table
    DOUBLED = "doubled"  # in several rows of bronze and the dead letters
    LOST_IN_SILVER = "lost in silver"  # silver has read it, but it is in no silver table
    DOUBLED_IN_SILVER = "doubled in silver"  # silver has several rows with its key
    FOREIGN = "foreign"  # from a topic that the stream does not read


_BROKEN = {Outcome.LOST, Outcome.DOUBLED, Outcome.LOST_IN_SILVER, Outcome.DOUBLED_IN_SILVER, Outcome.FOREIGN}


def check(scope: Scope) -> tuple[Result, ...]:
    """Check each receipt of a file against the tables; no result without a file."""
    if not scope.receipts:
        return ()
    recorded = scope.topic
    if recorded is None:
        raise UsageError(
            f"The stream {scope.stream} does not come from a topic, so it has no receipts.", "Leave out --receipts."
        )
    past = _past(scope)  # before the ledger, so that it has all of these ranges
    receipts = _Receipts(scope)
    try:
        receipts.take(scope.receipts, recorded, past)
        with catalog_errors():
            contract, end = _silver(scope)
        receipts.find_rows(contract)
        receipts.find_erased(list(scope.book.removals.erased()))
        receipts.judge(contract, end)
        found = Findings()
        outcomes, conflicts = receipts.outcomes(found)
        receipts.compare_ids(contract, found)
        return (result_of(outcomes, found, conflicts),)
    finally:
        receipts.close()


def result_of(outcomes: Mapping[Outcome, int], found: Findings, conflicts: Sequence[str] = ()) -> Result:
    """Return the result for all receipts; `conflicts` are examples of events with the same key as another event."""
    warnings = []
    if conflicts:
        more = ", …" * (outcomes[Outcome.CONFLICT] > len(conflicts))
        warnings.append(f"silver has another event with the same key as {', '.join(conflicts)}{more}")
    if before := outcomes[Outcome.BEFORE]:
        text = f"{are(before, 'event with a receipt', 'events with receipts')} from before the beginning of the stream"
        warnings.append(f"{text}: `consumer run … --from … --to …` reads them.")
    facts = {"receipts": sum(outcomes.values()), "outcomes": outcomes, "conflicts": list(conflicts)}
    waiting = outcomes[Outcome.PENDING] + outcomes[Outcome.UNDECIDED]
    return Result(facts, found.whole(), waiting=waiting, warnings=tuple(warnings))


def _past(scope: Scope) -> Sequence[tuple[int, int, int]]:
    """Return the ranges from before the beginning of the stream that batches have read."""
    marker = marker_in(scope.ledger_properties(), bronze_query(scope.stream))
    return Offsets.parse(marker["end"]).past if marker else ()


def _silver(scope: Scope) -> tuple[Contract, int | None]:
    """Return the contract, and the micro-batch before which silver has decided all rows; None without silver."""
    settings, catalog, stream = scope.settings, scope.catalog, scope.stream
    if missing_silver(catalog, stream):
        return silver_contract(settings, catalog, stream, {}), None
    marker = newest_marker(catalog.load_table(silver_tables(stream).kept), silver_query(stream))
    contract = silver_contract(settings, catalog, stream, marker)
    return contract, marker_end(marker) if contract.silver else None


class _Receipts:
    """The receipts of one file."""

    def __init__(self, scope: Scope) -> None:
        self._session = scope.session
        self._names = stream_tables(scope.stream)
        self._silver = silver_tables(scope.stream)
        load_known(self._session, self._names.ledger)
        with catalog_errors():
            attempts = self._names.attempts if scope.catalog.table_exists(self._names.attempts) else None
            found = [table_or_none(scope.catalog, name) for name in (self._silver.conflicts, self._silver.late)]
        self._expired = [expired_of(table.properties).before if table else 0 for table in found]
        self._letters = not_closed(
            f"(FROM {self._names.dead_letters} WHERE {IS_COMPLETE} OR coalesce({ATTEMPT}, 1) = 1)",
            attempts and f"(FROM {attempts} WHERE {IS_COMPLETE})",
        )

    def take(self, path: Path, recorded: Recorded, past: Sequence[tuple[int, int, int]]) -> None:
        """Read the file, and the end of the consumed offsets of each partition from the ledger.

        `past` has the ranges from before the beginning of the stream that were read.
        """
        fetch, topic = self._session.fetch, recorded.topic
        fetch(f"CREATE OR REPLACE TABLE {_STARTS} (part BIGINT, start BIGINT)")
        fetch(f"CREATE OR REPLACE TABLE {_PAST} (part BIGINT, past_from BIGINT, past_to BIGINT)")
        for name, rows in ((_STARTS, recorded.start.entries), (_PAST, past)):
            for row in rows:
                fetch(f"INSERT INTO {name} VALUES ({', '.join(map(str, row))})")
        fetch(f"CREATE OR REPLACE TABLE {_GIVEN} (topic VARCHAR, part INTEGER, place BIGINT)")
        for chunk in read_receipts(path):
            self._session.insert(_GIVEN, chunk)
        source = f"topic || '/' || part || '/' || lpad(place::VARCHAR, {OFFSET_DIGITS}, '0')"
        fetch(
            f"CREATE OR REPLACE TABLE {_RECEIPTS} AS SELECT DISTINCT {source} AS source, part, place, "
            f"topic <> {quoted(topic)} AS is_foreign, place < coalesce(start, 0) AND past_to IS NULL AS is_before "
            f"FROM {_GIVEN} LEFT JOIN {_STARTS} USING (part) "
            f"LEFT JOIN {_PAST} AS past ON past.part = {_GIVEN}.part AND place >= past_from AND place < past_to"
        )
        fetch(
            f"CREATE OR REPLACE TABLE {_ENDS} AS SELECT split_part(source, '/', -2)::INTEGER AS part, "
            f"max(etag::BIGINT) AS behind FROM {self._names.ledger} WHERE {IS_KNOWN} GROUP BY ALL"
        )

    def find_rows(self, contract: Contract) -> None:
        """Find the bronze rows of the receipts, with their keys."""
        keys = "".join(f", any_value({value}) AS key_{index}" for index, value in enumerate(key(contract, "_bronze")))
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_ROWS} AS SELECT {SOURCE} AS source, count(*) AS rows, "
            f"max({MICRO_BATCH_ID}) AS micro_batch{keys} FROM {self._names.bronze} AS _bronze "
            f"SEMI JOIN {_RECEIPTS} AS receipt ON receipt.source = _bronze.{SOURCE} "
            f"WHERE {IS_COMPLETE} OR {SOURCE} NOT IN (SELECT {SOURCE} FROM {self._names.dead_letters}) "
            f"GROUP BY {SOURCE}"
        )

    def find_erased(self, sources: Sequence[str]) -> None:
        """Store the sources with erased units."""
        import pyarrow as pa

        self._session.fetch(f"CREATE OR REPLACE TABLE {_ERASED} (source VARCHAR)")
        self._session.insert(_ERASED, pa.table([pa.array(sources, pa.string())], ["source"]))

    def judge(self, contract: Contract, end: int | None) -> None:
        """Determine the outcome of each receipt."""
        # An offset that was given up (reason `absent`) does not count as a dead letter: its event is lost.
        letters = (
            f"SELECT {SOURCE} AS source, count(*) AS rows FROM {self._letters} AS letter "
            f"SEMI JOIN {_RECEIPTS} AS receipt ON receipt.source = letter.{SOURCE} "
            f"WHERE NOT list_contains([reason.code FOR reason IN {REASONS}], 'absent') GROUP BY ALL"
        )
        in_silver, joins = f"WHEN true THEN '{Outcome.BRONZE}'", ""
        if end is not None:
            in_silver, joins = self._judge_in_silver(contract, end)
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_FOUND} AS SELECT receipt.source, CASE "
            f"WHEN is_foreign THEN '{Outcome.FOREIGN}' "
            f"WHEN coalesce(landed.rows, 0) + coalesce(letters.rows, 0) > 1 THEN '{Outcome.DOUBLED}' "
            f"WHEN letters.rows = 1 THEN '{Outcome.DEAD_LETTER}' "
            f"WHEN landed.rows IS NULL AND erased.source IS NOT NULL THEN '{Outcome.ERASED}' "
            f"WHEN landed.rows IS NULL AND is_before THEN '{Outcome.BEFORE}' "
            f"WHEN landed.rows IS NULL AND place >= coalesce(behind, 0) THEN '{Outcome.PENDING}' "
            f"WHEN landed.rows IS NULL THEN '{Outcome.LOST}' "
            f"{in_silver} END AS outcome "
            f"FROM {_RECEIPTS} AS receipt LEFT JOIN {_ENDS} USING (part) "
            f"LEFT JOIN {_ROWS} AS landed ON landed.source = receipt.source "
            f"LEFT JOIN ({letters}) AS letters ON letters.source = receipt.source "
            f"LEFT JOIN {_ERASED} AS erased ON erased.source = receipt.source {joins}"
        )

    def _judge_in_silver(self, contract: Contract, end: int) -> tuple[str, str]:
        """Return SQL of the outcome of a bronze row, and the joins for it."""
        kept_keys = key(contract, "_kept")
        same_key = " AND ".join(f"_own.key_{index} = {value}" for index, value in enumerate(kept_keys))
        of_key = (
            f"SELECT _own.source, count(*) AS rows, bool_or(_kept.{SOURCE} = _own.source) AS itself "
            f"FROM {_ROWS} AS _own JOIN {self._silver.kept} AS _kept ON {same_key} GROUP BY ALL"
        )
        aside = {
            name: f"SELECT DISTINCT {SOURCE} AS source FROM {table} AS _aside "
            f"SEMI JOIN {_ROWS} AS _own ON _own.source = _aside.{SOURCE}"
            for name, table in (("conflicts", self._silver.conflicts), ("late", self._silver.late))
        }
        joins = " ".join(
            f"LEFT JOIN ({rows}) AS _{name} ON _{name}.source = receipt.source"
            for name, rows in {"kept": of_key, **aside}.items()
        )
        conflicts, late = self._expired
        outcome = (
            f"WHEN landed.micro_batch IS NULL OR landed.micro_batch >= {end} THEN '{Outcome.UNDECIDED}' "
            f"WHEN _kept.rows > 1 THEN '{Outcome.DOUBLED_IN_SILVER}' "
            f"WHEN _conflicts.source IS NOT NULL THEN '{Outcome.CONFLICT}' "
            f"WHEN _late.source IS NOT NULL THEN '{Outcome.LATE}' "
            f"WHEN _kept.itself IS NOT true AND landed.micro_batch < CASE WHEN _kept.rows IS NULL THEN {late} "
            f"ELSE {max(conflicts, late)} END THEN '{Outcome.EXPIRED}' "
            f"WHEN _kept.rows IS NULL THEN '{Outcome.LOST_IN_SILVER}' "
            f"WHEN _kept.itself THEN '{Outcome.KEPT}' ELSE '{Outcome.DUPLICATE}'"
        )
        return outcome, joins

    def outcomes(self, found: Findings) -> tuple[dict[Outcome, int], tuple[str, ...]]:
        """Count the receipts by outcome, with examples of conflicts; add broken ones to the findings."""
        counts, conflicts = dict.fromkeys(Outcome, 0), ()
        for outcome, count, examples in self._session.fetch(
            f"SELECT outcome, count(*), min(source, {SHOWN_EXAMPLES}) FROM {_FOUND} GROUP BY outcome"
        ):
            counts[Outcome(outcome)] = count
            if Outcome(outcome) in _BROKEN:
                found.add("receipts", outcome, count, examples)
            if Outcome(outcome) is Outcome.CONFLICT:
                conflicts = tuple(examples)
        return counts, conflicts

    def compare_ids(self, contract: Contract, found: Findings) -> None:
        """Recompute the correlation ids of the rows; add different ones to the findings."""
        for field in contract.derived:
            if field.derived and field.derived.field:
                expected = _correlation_id(f"_bronze.{identifier(field.derived.field)}")
                rows, first = self._session.fetch_first(
                    f"SELECT {SOURCE} FROM {self._names.bronze} AS _bronze "
                    f"SEMI JOIN {_ROWS} AS _own ON _own.source = _bronze.{SOURCE} "
                    f"WHERE _bronze.{identifier(field.name)} IS DISTINCT FROM {expected}",
                    SOURCE,
                    SHOWN_EXAMPLES,
                )
                if rows:
                    found.add(self._names.bronze, _WRONG_ID, rows, [source for (source,) in first])

    def close(self) -> None:
        """Free the memory."""
        for table in (_GIVEN, _STARTS, _PAST, _ENDS, _RECEIPTS, _ROWS, _ERASED, _FOUND):
            self._session.fetch(f"DROP TABLE IF EXISTS {table}")


def _correlation_id(identity: str) -> str:
    """Return SQL of the correlation id of a bronze row, as docs/contracts/schema.md defines it."""

    def header(name: str) -> str:
        return f"list_filter(_bronze.{HEADERS}, LAMBDA _header: _header.key = '{name}')[1].value"

    def digest(*lines: str) -> str:
        joined = r" || '\x0A'::BLOB || ".join(lines)
        return f"left(sha256({joined}), 32)"

    client = f"coalesce({header('client')}, ''::BLOB)"
    post = digest("'post'::BLOB", client, header("idempotency-key"), header("idempotency-index"))
    event = digest("'event'::BLOB", client, f"encode({identity}::VARCHAR)")
    has_key = f"{header('idempotency-key')} IS NOT NULL AND {header('idempotency-index')} IS NOT NULL"
    return f"CASE WHEN {has_key} THEN {post} ELSE {event} END"


def _pending(results: Sequence[Result]) -> str:
    waiting = sum(result.waiting for result in results)
    return f"{are(waiting, 'receipt')} not in silver yet." if waiting else ""


def _caveat(results: Sequence[Result]) -> str:
    conflicts, before = (
        sum(result.facts["outcomes"][outcome] for result in results) for outcome in (Outcome.CONFLICT, Outcome.BEFORE)
    )
    texts = []
    if conflicts:
        texts.append(
            f"But {are(conflicts, 'event with a receipt', 'events with receipts')} not in silver: it has another event "
            "with the same key. Send a post again with the same events in the same order."
        )
    if before:
        of = are(before, "event with a receipt", "events with receipts")
        texts.append(f"But {of} from before the beginning of the stream, and in no table.")
    return " ".join(texts)


SECTION = Section(
    key="receipts",
    title="Receipts",
    columns=("outcome", "receipts"),
    rows=lambda result: [(name, count) for name, count in result.facts["outcomes"].items() if count],
    faults="receipts with problems",
    wrong="receipts are not kept",
    right="Each receipt is in one table, once.",
    pending=_pending,
    caveat=_caveat,
    has_problems=False,
)
CHECK = Check("receipts", SECTION, check)
