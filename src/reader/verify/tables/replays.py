"""Replays of dead letters in the ledger and the table of attempts, for both files and topics.

A replay appends to the attempts, to bronze, to the dead letters, then to the ledger. The ledger is read first, and the
attempts right after it, so each replay in the ledger has its attempts. Rows of a micro-batch that is not in the ledger
belong to a replay that is in progress or was interrupted.
"""

from collections.abc import Callable

from lakeproof.tables.names import (
    ATTEMPT,
    CLOSED,
    CONTRACT_VERSION,
    INGESTED_AT,
    LETTER,
    LETTER_REASONS,
    MICRO_BATCH_ID,
    OUTCOME,
    POSITION,
    RAW,
    REASONS,
    REPLAY,
    SALVAGED,
    SOURCE,
    TRANSFORM,
    TRANSFORM_DIGEST,
    ReplayOutcome,
    StreamTables,
)
from reader.connect import Session
from reader.verify.tables.under_way import IS_COMPARED, IS_KNOWN, KNOWN, load_begun
from reader.views import MEMORY

BOOKED = f"{MEMORY}.main.verify_replays_booked"
"""Rows of the ledger of replays: ``source``, ``replay``, ``micro_batch``, and counts."""
ATTEMPTS = f"{MEMORY}.main.verify_attempts"
"""Attempts; ``made`` is true if the resulting rows are in the tables."""
BATCHES = f"{MEMORY}.main.verify_replay_batches"
"""Numbers of the micro-batches of replays, as ``micro_batch``."""
CHANGED = "raw_hash IS NOT NULL AND transform IS NOT NULL"
"""SQL that is true if a transform changed the bytes. An attempt also has bytes that its dead letter lacks."""
STATES = f"{MEMORY}.main.verify_letter_states"
"""Replayed dead letters: ``source``, ``position``, ``letter``, and ``outcome`` of the newest attempt."""
IS_CLOSED = (
    f"EXISTS (FROM {STATES} AS state WHERE state.source = letter.{SOURCE} AND state.position = letter.{POSITION} "
    f"AND state.letter = coalesce(letter.{ATTEMPT}, 1) AND state.outcome = '{ReplayOutcome.CLOSED}')"
)
"""SQL that is true if the dead letter ``letter`` is closed."""
IS_REPLAYED = f"coalesce({MICRO_BATCH_ID} IN (FROM {BATCHES}), false)"
"""SQL that is true if a replay appended the row."""


class Replays:
    """Replays of a stream's dead letters, as of the last :meth:`load`; `exists`: whether the attempts table exists."""

    def __init__(self, session: Session, tables: StreamTables, exists: Callable[[], bool]) -> None:
        self._session = session
        self._tables = tables
        self._exists = exists
        self.booked = 0  # number of ledger rows of replays
        self.attempts = 0
        self.has_table = False
        self._has_begun = False

    @property
    def is_lost(self) -> bool:
        """Whether the ledger has replays, but there is no table of attempts."""
        return bool(self.booked) and not self.has_table

    def load(self) -> float | None:
        """Read replays and attempts, after :func:`~reader.verify.tables.under_way.load_known`.

        Returns the time of the newest attempt outside the ledger, in seconds since 1970.
        """
        self._load_ledger()
        self.has_table = self._exists()
        if not self._has_begun:
            tables = self._tables
            load_begun(self._session, [tables.bronze, tables.dead_letters, *[tables.attempts] * self.has_table])
            self._has_begun = True
        self._load_attempts()
        fetch = self._session.fetch
        beyond = f"micro_batch NOT IN (FROM {KNOWN})"
        ((self.attempts, newest),) = fetch(
            f"SELECT count(*), epoch(max(ingested_at) FILTER ({beyond})) FROM {ATTEMPTS}"
        )
        if newest is not None:
            # Either its rows are in bronze, or nothing was appended yet and the dead letters are unchanged.
            fetch(
                f"UPDATE {ATTEMPTS} SET made = micro_batch IN (SELECT {MICRO_BATCH_ID} FROM {self._tables.bronze} "
                f"WHERE {MICRO_BATCH_ID} NOT IN (FROM {KNOWN})) WHERE {beyond}"
            )
        fetch(
            f"CREATE OR REPLACE TABLE {BATCHES} AS SELECT micro_batch FROM {BOOKED} WHERE micro_batch IS NOT NULL "
            f"UNION SELECT micro_batch FROM {ATTEMPTS} WHERE micro_batch IS NOT NULL"
        )
        fetch(
            f"CREATE OR REPLACE TABLE {STATES} AS SELECT source, position, letter, "
            f"arg_max(outcome, attempt) AS outcome FROM {ATTEMPTS} WHERE made GROUP BY ALL"
        )
        return None if newest is None else float(newest)

    def recovered(self) -> dict[str, tuple[int, bool]]:
        """Return, for each closed batch by source, its number of units now, and whether a transform changed it.

        The units are the salvaged ones, plus one for the rest of the batch, if any.
        """
        return {
            source: (units, changed)
            for source, units, changed in self._session.fetch(
                "SELECT batch.source, max(salvaged + (rest.source IS NOT NULL)::BIGINT)::BIGINT, "
                f"bool_or({CHANGED}) FROM {ATTEMPTS} AS batch LEFT JOIN "
                f"(SELECT DISTINCT {SOURCE} AS source, {POSITION} AS position FROM {self._tables.dead_letters} "
                f"WHERE {ATTEMPT} > 1) AS rest ON rest.source = batch.source AND rest.position = batch.salvaged "
                f"WHERE made AND outcome = '{ReplayOutcome.CLOSED}' AND salvaged IS NOT NULL AND letter = 1 "
                "GROUP BY ALL"
            )
        }

    def landed_as_it_is(self) -> str:
        """Return SQL that is true if a bronze row has the values of the landed bytes at its place."""
        closed = f"SELECT 1 FROM {ATTEMPTS} AS attempt WHERE attempt.source = {SOURCE} AND outcome = 'closed' AND "
        return (
            f"NOT EXISTS ({closed} salvaged IS NOT NULL) "
            f"AND NOT EXISTS ({closed} {CHANGED} AND attempt.position = {POSITION})"
        )

    def _load_ledger(self) -> None:
        fetch, ledger = self._session.fetch, self._tables.ledger
        known = self._session.columns(ledger)
        drift = ", ".join(
            f"list_sum(map_values({name}))::BIGINT AS {name}" if name in known else f"NULL::BIGINT AS {name}"
            for name in ("rescued", "discarded")
        )
        # A ledger from before replays existed lacks these columns.
        columns = f"{REPLAY}, {CLOSED}" if REPLAY in known else f"NULL::BIGINT AS {REPLAY}, NULL AS {CLOSED}"
        where = f"{REPLAY} IS NOT NULL AND {IS_KNOWN}" if REPLAY in known else "false"
        fetch(
            f"CREATE OR REPLACE TABLE {BOOKED} AS SELECT source, {columns}, micro_batch_id AS micro_batch, "
            f"size, units, bronze, dead_letters, {drift} FROM {ledger} WHERE {where}"
        )
        self.booked = self._session.count(BOOKED)

    def _load_attempts(self) -> None:
        columns = {
            "source VARCHAR": SOURCE,
            "position BIGINT": POSITION,
            "letter INTEGER": LETTER,
            "letter_reasons VARCHAR": LETTER_REASONS,
            "attempt INTEGER": ATTEMPT,
            "replay BIGINT": REPLAY,
            "outcome VARCHAR": OUTCOME,
            "reasons BIGINT": f"len({REASONS})",
            "salvaged BIGINT": SALVAGED,
            "transform VARCHAR": TRANSFORM,
            "digest VARCHAR": TRANSFORM_DIGEST,
            "raw_hash VARCHAR": f"sha256({RAW})",
            "micro_batch BIGINT": MICRO_BATCH_ID,
            "ingested_at TIMESTAMPTZ": INGESTED_AT,
            "version VARCHAR": CONTRACT_VERSION,
            "made BOOLEAN": "true",
        }
        self._session.fetch(f"CREATE OR REPLACE TABLE {ATTEMPTS} ({', '.join(columns)})")
        if self.has_table:
            self._session.fetch(
                f"INSERT INTO {ATTEMPTS} SELECT {', '.join(columns.values())} FROM {self._tables.attempts} "
                f"WHERE {IS_COMPARED}"
            )
