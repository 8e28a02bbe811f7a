"""Rows that were removed from the tables by erasures and retention, as recorded in the accounts of removals.

Checks of landed sources read views of the tables in which a substitute stands for each removed row, with its place,
reasons and counts, but without values. So an erased unit is not lost, and must not appear again. The account of
erasures has each row. The account of retention has totals; the expired dead letters follow from the attempts that
closed them.
"""

from collections.abc import Mapping
from dataclasses import astuple, replace

from lakeproof.catalog import CATALOG
from lakeproof.tables.expired import Expired
from lakeproof.tables.names import (
    ATTEMPT,
    LETTER,
    LETTER_REASONS,
    MICRO_BATCH_ID,
    OUTCOME,
    POSITION,
    REASONS,
    REPLAY,
    REQUEST,
    RESCUED,
    SALVAGED,
    SOURCE,
    Removal,
    ReplayOutcome,
    StreamTables,
)
from reader.connect import Session
from reader.views import MEMORY

IS_REMOVED = "_removed"
"""Column of the views: true if the row was removed."""
_VIEW = f"{MEMORY}.main.verify_whole_"
_ACCOUNT = f"{MEMORY}.main.verify_removals"
_EXPIRED = f"{MEMORY}.main.verify_expired_letters"
_CODED = "[{'code': code, 'path': NULL::VARCHAR, 'detail': NULL::VARCHAR} FOR code IN string_split(codes, '+')]"
_FAILED = (
    "CASE WHEN (facts ->> 'reasons')::BIGINT > 0 THEN [{'code': '', 'path': NULL::VARCHAR, 'detail': NULL::VARCHAR} "
    "FOR each IN range((facts ->> 'reasons')::BIGINT)] END"
)
_FACTS = {
    LETTER: "INTEGER",
    LETTER_REASONS: "VARCHAR",
    ATTEMPT: "INTEGER",
    REPLAY: "BIGINT",
    OUTCOME: "VARCHAR",
    SALVAGED: "BIGINT",
    "transform": "VARCHAR",
    "transform_digest": "VARCHAR",
    "_ingested_at": "TIMESTAMPTZ",
    "_contract_version": "VARCHAR",
}


class Removals:
    """The account of a stream; `exists` says whether it has erasures, `expired` are the totals of retention by table.

    A row of the account that is still in its table does not count as removed. To find it, the places of all rows are
    read; with `is_trusted`, only if an erasure is unfinished.
    """

    def __init__(
        self,
        session: Session,
        names: StreamTables,
        *,
        exists: bool,
        expired: Mapping[str, Expired] | None = None,
        is_trusted: bool = False,
    ) -> None:
        self._session = session
        self._names = names
        self._has_attempts = False
        self._is_trusted = is_trusted
        self.exists = exists
        self.expired: Mapping[str, Expired] = expired or {}
        self.unfinished: list[str] = []
        """Ids of the unfinished erasures."""

    def load(self, *, has_attempts: bool) -> None:
        """Read the account."""
        self._has_attempts = has_attempts
        if not self.exists:
            return
        fetch, names = self._session.fetch, self._names
        fetch(f"CREATE OR REPLACE TABLE {_ACCOUNT} AS SELECT *, false AS is_there FROM {names.removals}")
        self.unfinished = unfinished(self._session, _ACCOUNT)
        if self._is_trusted and not self.unfinished:
            return
        for table, same in (
            (names.bronze, ""),
            (names.dead_letters, f"AND coalesce(held.{ATTEMPT}, 1) = coalesce(gone.{LETTER}, 1)"),
            *[(names.attempts, f"AND held.{LETTER} = gone.{LETTER} AND held.{ATTEMPT} = gone.{ATTEMPT}")]
            * has_attempts,
        ):
            fetch(
                f"UPDATE {_ACCOUNT} AS gone SET is_there = true FROM {table} AS held "
                f"WHERE gone.\"table\" = '{table}' AND held.{SOURCE} = gone.source "
                f"AND held.{POSITION} = gone.{POSITION} {same}"
            )

    def whole(self) -> StreamTables:
        """Create the views with removed rows; return the table names with the views in their place."""
        names = self._names
        has_expired = self.expired_of(names.dead_letters).rows > 0 and self._has_attempts
        if not self.exists:
            return self._with_expired(names) if has_expired else names
        rescued = f"map(range(rescued)::VARCHAR[], ['' FOR each IN range(rescued)]) AS {RESCUED}"
        has_rescued = RESCUED in self._session.columns(names.bronze)
        place = f"source AS {SOURCE}, {POSITION}, micro_batch_id AS {MICRO_BATCH_ID}, true AS {IS_REMOVED}"
        letter = f"coalesce({LETTER}, 1) AS {ATTEMPT}, {_CODED} AS {REASONS}"
        views = {
            "bronze": self._view("bronze", names.bronze, f"{place}{f', {rescued}' * has_rescued}"),
            "dead_letters": self._view("dead_letters", names.dead_letters, f"{place}, {letter}"),
        }
        if self._has_attempts:
            facts = ", ".join(f"(facts ->> '{name}')::{kind} AS {name}" for name, kind in _FACTS.items())
            views["attempts"] = self._view("attempts", names.attempts, f"{place}, {facts}, {_FAILED} AS {REASONS}")
        whole = replace(names, **views)
        return self._with_expired(whole) if has_expired else whole

    def _view(self, kind: str, table: str, columns: str) -> str:
        view = f"{_VIEW}{kind}"
        self._session.fetch(
            f"CREATE OR REPLACE VIEW {view} AS SELECT *, false AS {IS_REMOVED} FROM {CATALOG}.{table} "
            f"UNION ALL BY NAME SELECT {columns} FROM {_gone(table)}"
        )
        return view

    def _with_expired(self, names: StreamTables) -> StreamTables:
        """Add the dead letters that retention has removed: an attempt has closed them, and their rows are missing.

        An attempt does not record the micro-batch of its dead letter. For the rest of a replayed batch, it is the
        micro-batch that closed the batch.
        """
        attempts, letters = qualified(names).attempts, qualified(names).dead_letters
        view = f"{_VIEW}with_expired"
        closed = f"FROM {attempts} WHERE {OUTCOME} = '{ReplayOutcome.CLOSED}'"
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_EXPIRED} AS WITH closed AS (SELECT DISTINCT {SOURCE}, {POSITION}, "
            f"{LETTER} AS {ATTEMPT}, {LETTER_REASONS} AS codes {closed}), batch AS (SELECT {SOURCE}, "
            f"max({MICRO_BATCH_ID}) AS number {closed} AND {LETTER} = 1 AND {SALVAGED} IS NOT NULL GROUP BY ALL) "
            f"SELECT closed.*, CASE WHEN closed.{ATTEMPT} > 1 THEN batch.number END AS {MICRO_BATCH_ID} FROM closed "
            f"ANTI JOIN (SELECT {SOURCE}, {POSITION}, coalesce({ATTEMPT}, 1) AS {ATTEMPT} FROM {letters}) "
            f"AS held USING ({SOURCE}, {POSITION}, {ATTEMPT}) LEFT JOIN batch USING ({SOURCE})"
        )
        is_removed = IS_REMOVED if self.exists else "false"
        self._session.fetch(
            f"CREATE OR REPLACE VIEW {view} AS SELECT * {f'EXCLUDE ({IS_REMOVED})' * self.exists}, "
            f"{is_removed} AS {IS_REMOVED} FROM {letters} UNION ALL BY NAME "
            f"SELECT * EXCLUDE (codes), {_CODED} AS {REASONS}, true AS {IS_REMOVED} FROM {_EXPIRED}"
        )
        return replace(names, dead_letters=view)

    def expired_of(self, table: str) -> Expired:
        """Return the totals that retention has removed from a table."""
        return self.expired.get(table, Expired())

    def unaccounted(self, ledgers: Mapping[str, tuple[str, str]]) -> list[tuple[str, int]]:
        """Return tables in which more or fewer rows are missing than retention has removed, and the difference.

        `ledgers` has the ledger of each table, and SQL of the number of table rows that a ledger row counts.
        """
        found = []
        for table, each in self.expired.items():
            if table == self._names.dead_letters:
                gone = self._session.count(_EXPIRED) if self._has_attempts and each.rows else 0
            elif table not in ledgers:
                continue
            else:
                ledger, counted = ledgers[table]
                ((booked,),) = self._session.fetch(
                    f"SELECT coalesce(sum({counted}), 0)::BIGINT FROM {ledger} WHERE micro_batch_id < {each.before}"
                )
                gone = booked - self._session.count(f"{table} WHERE {MICRO_BATCH_ID} < {each.before}")
            if gone != each.rows:
                found.append((table, gone - each.rows))
        return found

    def hashes_of(self, table: str) -> str | None:
        """Return SQL of the hashes of the rows removed from a table, by micro-batch; None without erasures."""
        if not self.exists:
            return None
        return f"SELECT micro_batch_id AS micro_batch, rows, hash FROM {_gone(table)}"

    def erased(self) -> dict[str, int]:
        """Return the number of erased units of each source."""
        if not self.exists:
            return {}
        tables = f"'{self._names.bronze}', '{self._names.dead_letters}'"
        return dict(
            self._session.fetch(
                f"SELECT source, count(DISTINCT {POSITION}) FROM {_ACCOUNT} "
                f"WHERE what = '{Removal.ERASED}' AND NOT is_there AND \"table\" IN ({tables}) GROUP BY source"
            )
        )

    def totals(self) -> list[tuple[str, int]]:
        """Return the number of erased rows, by table."""
        if not self.exists:
            return []
        return self._session.fetch(
            f'SELECT "table", sum(rows)::BIGINT FROM {_ACCOUNT} '
            f"WHERE NOT is_there AND what = '{Removal.ERASED}' GROUP BY ALL ORDER BY ALL"
        )

    def still_there(self) -> list[tuple[str, int, list[str]]]:
        """Return tables that still have rows that the account lists as removed, with their number and the first few."""
        if not self.exists:
            return []
        return self._session.fetch(
            f"SELECT \"table\", count(*), list(source || ', position ' || {POSITION})[:5] "
            f"FROM {_ACCOUNT} WHERE is_there GROUP BY ALL ORDER BY ALL"
        )


def unfinished(session: Session, account: str) -> list[str]:
    """Return the ids of unfinished erasures; `account` is the table of removals, or SQL of its rows."""
    rows = session.fetch(
        f"SELECT {REQUEST} FROM {account} "
        f"GROUP BY {REQUEST} HAVING NOT bool_or(what = '{Removal.COMPLETE}') ORDER BY ALL"
    )
    return [request for (request,) in rows]


def _gone(table: str) -> str:
    return f"(SELECT * FROM {_ACCOUNT} WHERE NOT is_there AND \"table\" = '{table}')"


def not_removed(session: Session, table: str) -> str:
    """Return SQL that is true for rows of a table, or of its view, that were not removed."""
    return f"NOT {IS_REMOVED}" if IS_REMOVED in session.columns(table) else "true"


def qualified(names: StreamTables) -> StreamTables:
    """Return names qualified with the catalog: a view resolves unqualified names in its own catalog."""
    return StreamTables(*(each if each.startswith(MEMORY) else f"{CATALOG}.{each}" for each in astuple(names)))
