"""Compare replayed dead letters with the bronze rows that replays appended; counted by DuckDB."""

from lakeproof.reasons import OF_BATCHES
from lakeproof.tables.names import (
    ATTEMPT,
    INGESTED_AT,
    LANDED_AT,
    MICRO_BATCH_ID,
    POSITION,
    RAW,
    SOURCE,
    ReplayOutcome,
    StreamTables,
)
from reader.connect import Session
from reader.verify.tables.accounts import CODES, rescued_of
from reader.verify.tables.reach import Reach
from reader.verify.tables.removals import not_removed
from reader.verify.tables.replays import ATTEMPTS, BOOKED, IS_REPLAYED, STATES, Replays
from reader.verify.tables.topic import label_of
from reader.verify.tables.under_way import IS_COMPARED, KNOWN, load_known
from reader.views import MEMORY

LETTERS = f"{MEMORY}.main.verify_replayed_letters"
"""Dead letters of replayed sources, with the outcome of their newest attempt (null without an attempt)."""
ROWS = f"{MEMORY}.main.verify_replayed_rows"
"""Rows of bronze of replayed sources, and of the micro-batches of replays."""
_WHOLE = ", ".join(f"'{code}'" for code in sorted(OF_BATCHES))
_IS_BATCH = f"dead.letter = 1 AND list_has_any(string_split(dead.codes, '+'), [{_WHOLE}])"
"""SQL that is true if a dead letter is a whole batch; a batch that is too large to keep has a second reason."""
_CLOSED = f"outcome = '{ReplayOutcome.CLOSED}'"
_OF_LETTER = "source, position, letter"

Fault = tuple[str, str]
"""The kind of a fault, and SQL of its rows: ``source``, ``position`` and ``text``."""


class ReplayedLetters:
    """Dead letters that were replayed, as of the last :meth:`load`."""

    def __init__(
        self, session: Session, tables: StreamTables, replays: Replays, proven: Reach, *, of_topic: bool
    ) -> None:
        self._session = session
        self._tables = tables
        self._proven = proven
        self._replays = replays
        # Each message is a source; the ledger has a row for each partition.
        self._booked_as = "regexp_replace({}, '/[0-9]+$', '')" if of_topic else "{}"

    def load(self) -> float | None:
        """Read all tables, the ledger first; return when the newest row that is not in the ledger was judged."""
        fetch, tables = self._session.fetch, self._tables
        load_known(self._session, tables.ledger)
        newest = self._replays.load()
        of_replays = f"SELECT source FROM {ATTEMPTS}"
        there = not_removed(self._session, tables.dead_letters)
        fetch(
            f"CREATE OR REPLACE TABLE {LETTERS} AS SELECT {SOURCE} AS source, {POSITION} AS position, "
            f"coalesce({ATTEMPT}, 1) AS letter, {CODES} AS codes, sha256({RAW}) AS raw_hash, "
            f"{LANDED_AT} AS landed_at, {label_of(self._session, tables.dead_letters)} AS label, "
            f"{MICRO_BATCH_ID} AS micro_batch, {INGESTED_AT} AS ingested_at, state.outcome, {there} AS is_there "
            f"FROM {tables.dead_letters} AS letter LEFT JOIN {STATES} AS state "
            f"ON state.source = {SOURCE} AND state.position = {POSITION} AND state.letter = coalesce({ATTEMPT}, 1) "
            f"WHERE ({SOURCE} IN ({of_replays}) OR {ATTEMPT} > 1) AND {IS_COMPARED}"
        )
        fetch(
            f"CREATE OR REPLACE TABLE {ROWS} AS SELECT {SOURCE} AS source, {POSITION} AS position, "
            f"{LANDED_AT} AS landed_at, {label_of(self._session, tables.bronze)} AS label, "
            f"{MICRO_BATCH_ID} AS micro_batch, {INGESTED_AT} AS ingested_at, {IS_REPLAYED} AS replayed, "
            f"{rescued_of(self._session, tables.bronze)} AS rescued "
            f"FROM {tables.bronze} WHERE ({SOURCE} IN ({of_replays}) OR {IS_REPLAYED}) AND {IS_COMPARED}"
        )
        ((later,),) = fetch(
            f"SELECT epoch(max(ingested_at)) FROM (SELECT micro_batch, ingested_at FROM {LETTERS} "
            f"UNION ALL SELECT micro_batch, ingested_at FROM {ROWS}) WHERE micro_batch NOT IN (FROM {KNOWN})"
        )
        return newest if later is None else max(float(later), newest or 0.0)

    def states(self) -> dict[str, int]:
        """Return the number of open, parked and closed dead letters."""
        ((letters,),) = self._session.fetch(f"SELECT count(*) FROM {self._tables.dead_letters} WHERE {IS_COMPARED}")
        ((parked, closed),) = self._session.fetch(
            f"SELECT count(*) FILTER (outcome = '{ReplayOutcome.PARKED}'), count(*) FILTER ({_CLOSED}) FROM {LETTERS}"
        )
        return {"open": letters - parked - closed, "parked": parked, "closed": closed}

    def replays(self) -> int:
        """Return the number of replays in the ledger and the attempts."""
        ((found,),) = self._session.fetch(
            f"SELECT count(*) FROM (SELECT replay FROM {BOOKED} UNION SELECT replay FROM {ATTEMPTS})"
        )
        return int(found)

    def of_attempts(self) -> list[Fault]:
        """Return the possible faults of attempts."""
        same = "dead.source = attempt.source AND dead.position = attempt.position AND dead.letter = attempt.letter"
        each = f"SELECT attempt.source, attempt.position, {{}} AS text FROM {ATTEMPTS} AS attempt"
        joined = f"JOIN (SELECT DISTINCT ON ({_OF_LETTER}) * FROM {LETTERS}) AS dead ON {same}"
        is_batch = f"({_IS_BATCH})"
        wrong = {
            "an outcome that does not exist": "attempt.outcome NOT IN ('closed', 'failed', 'parked') "
            "OR attempt.outcome IS NULL",
            "closed, with reasons": "attempt.outcome = 'closed' AND coalesce(attempt.reasons, 0) > 0",
            "not closed, without a reason": "attempt.outcome <> 'closed' AND coalesce(attempt.reasons, 0) = 0",
            "not closed, with salvaged records": "attempt.outcome <> 'closed' AND attempt.salvaged IS NOT NULL",
            "a record, with salvaged records": f"NOT {is_batch} AND attempt.salvaged IS NOT NULL",
            "a closed batch, without its number of records": f"{is_batch} AND attempt.outcome = 'closed' "
            "AND attempt.salvaged IS NULL",
            "a transform without a digest, or a digest alone": "(attempt.transform IS NULL) "
            "<> (attempt.digest IS NULL)",
            "changed bytes, without a transform": "attempt.raw_hash IS NOT NULL AND attempt.transform IS NULL "
            "AND dead.raw_hash IS NOT NULL",
            "changed bytes that are those of the dead letter": "attempt.raw_hash = dead.raw_hash",
            "reasons that are not those of the dead letter": "attempt.letter_reasons IS DISTINCT FROM dead.codes",
        }
        cases = " ".join(f"WHEN {condition} THEN '{text}'" for text, condition in wrong.items())
        number = "'attempt ' || coalesce(attempt.attempt::VARCHAR, 'null')"
        before = f"OVER (PARTITION BY {_OF_LETTER} ORDER BY attempt)"
        return [
            ("without a dead letter", f"{each.format(number)} ANTI JOIN {LETTERS} AS dead ON {same}"),
            (
                "attempts that are not numbered 2, 3, …",
                f"SELECT source, position, 'attempts ' || array_to_string(list_sort(list(attempt)), ', ') AS text "
                f"FROM {ATTEMPTS} GROUP BY {_OF_LETTER} "
                "HAVING list_sort(list(attempt)) IS DISTINCT FROM range(2, count(*) + 2)",
            ),
            (
                "attempts after the dead letter was closed",
                f"{each.format(number)} JOIN (SELECT {_OF_LETTER}, min(attempt) AS closed FROM {ATTEMPTS} "
                f"WHERE {_CLOSED} GROUP BY ALL) AS dead ON {same} WHERE attempt.attempt > closed",
            ),
            (
                "attempts that are older than the one before",
                f"SELECT source, position, 'attempt ' || attempt AS text FROM (SELECT *, "
                f"lag(replay) {before} >= replay "
                f"OR lag(micro_batch) {before} >= micro_batch AS is_older FROM {ATTEMPTS}) WHERE is_older",
            ),
            (
                "attempts whose columns contradict each other, or the dead letter",
                f"SELECT source, position, text FROM ({each.format(f'CASE {cases} END')} {joined}) "
                "WHERE text IS NOT NULL",
            ),
        ]

    def of_bronze(self) -> list[Fault]:
        """Return the possible faults of bronze rows that replays appended, or should have appended."""
        closed = (
            f"SELECT dead.*, attempt.micro_batch AS closed_by FROM {LETTERS} AS dead JOIN {ATTEMPTS} AS attempt "
            f"USING ({_OF_LETTER}) WHERE made AND attempt.{_CLOSED} AND salvaged IS NULL"
        )
        batches = f"SELECT * FROM {ATTEMPTS} WHERE made AND {_CLOSED} AND salvaged IS NOT NULL"
        counted = (
            "SELECT closed.source, closed.position, count(kept.source) AS times, "
            "count(*) FILTER (kept.micro_batch = closed_by) AS own, "
            "bool_and(NOT closed.is_there OR (kept.landed_at IS NOT DISTINCT FROM closed.landed_at "
            f"AND kept.label IS NOT DISTINCT FROM closed.label)) AS same FROM ({closed}) AS closed "
            f"LEFT JOIN {ROWS} AS kept ON kept.source = closed.source AND kept.position = closed.position GROUP BY ALL"
        )
        faults = {
            "closed, but not in bronze": ("times = 0", "''"),
            "closed, and in bronze several times": ("times > 1", "times || ' rows'"),
            "closed, but its row is not of that replay": ("times = 1 AND own = 0", "''"),
            "closed, but its row has another landing time, key or headers": ("times = 1 AND NOT same", "''"),
        }
        found = [
            (what, f"SELECT source, position, {text} AS text FROM ({counted}) WHERE {condition}")
            for what, (condition, text) in faults.items()
        ]
        found.append(
            (
                "open or parked, but in bronze",
                f"SELECT source, position, coalesce(outcome, 'not replayed') AS text FROM {LETTERS} AS dead "
                f"WHERE outcome IS DISTINCT FROM '{ReplayOutcome.CLOSED}' AND EXISTS (FROM {ROWS} AS kept "
                "WHERE kept.source = dead.source AND (kept.position = dead.position "
                f"OR {_IS_BATCH}))",
            )
        )
        found.append(
            (
                "in a micro-batch of a replay, but of no dead letter that it closed",
                f"SELECT source, position, 'micro-batch ' || micro_batch AS text FROM {ROWS} AS kept WHERE replayed "
                f"AND NOT EXISTS (FROM ({closed}) AS closed WHERE closed.source = kept.source "
                "AND closed.position = kept.position AND closed_by = kept.micro_batch) "
                f"AND NOT EXISTS (FROM ({batches}) AS batch WHERE batch.source = kept.source "
                "AND batch.micro_batch = kept.micro_batch AND kept.position < salvaged)",
            )
        )
        return found

    def of_letters(self) -> list[Fault]:
        """Return the possible faults of dead letters that replays appended."""
        return [
            (
                "of a replay, but of no batch that it closed",
                f"SELECT source, position, 'micro-batch ' || micro_batch AS text FROM {LETTERS} AS dead "
                f"WHERE letter > 1 AND NOT EXISTS (FROM {ATTEMPTS} AS batch WHERE {_CLOSED} AND salvaged IS NOT NULL "
                "AND batch.source = dead.source AND batch.micro_batch = dead.micro_batch "
                "AND dead.position <= salvaged)",
            ),
        ]

    def of_ledger(self) -> list[Fault]:
        """Return the possible differences between the ledger's rows of replays and the tables."""
        by = self._booked_as
        key = f"{by.format('source')} AS place, micro_batch"
        counts = ("units", "bronze", "rescued")
        held = (
            f"SELECT {key}, count(*) AS units, count(*) FILTER (in_bronze) AS bronze, "
            f"sum(rescued)::BIGINT AS rescued FROM ("
            f"SELECT source, micro_batch, true AS in_bronze, rescued FROM {ROWS} WHERE replayed "
            f"UNION ALL SELECT source, micro_batch, false, 0 FROM {LETTERS} WHERE letter > 1) GROUP BY ALL"
        )
        attempted = (
            f"SELECT {key}, min(source) AS first, min(replay) AS replay, max(replay) AS last "
            f"FROM {ATTEMPTS} GROUP BY ALL"
        )
        booked = (
            f"SELECT {key}, count(*) AS times, any_value(source) AS source, any_value(replay) AS replay, "
            f"any_value(size) AS size, any_value(units) AS units, any_value(bronze) AS bronze, "
            f"any_value(rescued) AS rescued, "
            f"any_value(dead_letters) AS dead, any_value(closed) AS closed FROM {BOOKED} GROUP BY ALL"
        )
        of_letters, of_attempts = (
            f"SELECT place, micro_batch, map(list(codes), list(rows)) AS counts FROM ("
            f"SELECT {key}, {codes} AS codes, count(*) AS rows FROM {table} WHERE {where} GROUP BY ALL) GROUP BY ALL"
            for codes, table, where in (
                ("codes", LETTERS, "letter > 1"),
                ("coalesce(letter_reasons, '')", ATTEMPTS, _CLOSED),
            )
        )
        differ = [
            f"CASE WHEN coalesce(booked.{name}, 0) <> coalesce(held.{name}, 0) THEN "
            f"format('{name}: ledger {{}}, tables {{}}', coalesce(booked.{name}, 0), coalesce(held.{name}, 0)) END"
            for name in counts
        ]
        differ += [
            f"CASE WHEN {_sorted(f'booked.{name}')} IS DISTINCT FROM {_sorted(f'{table}.counts')} THEN "
            f"'{what}: ledger ' || {_sorted(f'booked.{name}')}::VARCHAR || ', tables ' || "
            f"{_sorted(f'{table}.counts')}::VARCHAR END"
            for name, table, what in (("dead", "letters", "dead letters"), ("closed", "attempts", "closed"))
        ]
        differ += [
            "CASE WHEN booked.replay <> attempted.replay OR attempted.replay <> attempted.last "
            "THEN 'another number of the replay' END",
            "CASE WHEN booked.source <> attempted.first THEN 'it is named ' || booked.source END",
            "CASE WHEN coalesce(booked.size, 0) <> 0 THEN 'its size is not 0' END",
        ]
        text = (
            "CASE WHEN booked.place IS NULL THEN 'no row; the replay was interrupted, or the row was removed' "
            "WHEN booked.times > 1 THEN booked.times || ' rows' "
            "WHEN attempted.place IS NULL THEN 'there is no attempt of it' "
            f"ELSE nullif(array_to_string([{', '.join(differ)}], '; '), '') END"
        )
        joins = " ".join(
            f"LEFT JOIN ({rows}) AS {name} ON {name}.place = keys.place AND {name}.micro_batch = keys.micro_batch"
            for name, rows in {
                "booked": booked,
                "held": held,
                "attempted": attempted,
                "letters": of_letters,
                "attempts": of_attempts,
            }.items()
        )
        keys = " UNION ".join(f"SELECT place, micro_batch FROM ({rows})" for rows in (booked, held, attempted))
        return [
            (
                "wrong counts of a replay",
                f"SELECT source, position, text FROM (SELECT keys.place AS source, NULL AS position, "
                f"'micro-batch ' || keys.micro_batch || ': ' || {text} AS text FROM ({keys}) AS keys {joins} "
                f"WHERE keys.micro_batch IS NULL OR {self._proven.is_beyond('keys.micro_batch')}) "
                "WHERE text IS NOT NULL",
            )
        ]

    def fetch_first(self, rows: str, most: int) -> tuple[int, list[tuple[str | None, int | None, str]]]:
        """Return the number of rows with a fault, and the first `most` rows."""
        return self._session.fetch_first(
            f"SELECT source, position, text FROM ({rows})",
            "source, position, text",
            most,
        )


def _sorted(counts: str) -> str:
    """Return SQL of the entries of a map of counts, sorted, without zeros; null is an empty map."""
    entries = f"coalesce(map_entries({counts}), [])"
    return f"list_sort([entry.key || '=' || entry.value FOR entry IN {entries} IF entry.value <> 0])"
