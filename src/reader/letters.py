"""State of dead letters: SQL shared by verify, the views and the commands.

A dead letter never changes. Its state follows from the outcome of its newest attempt, in the table of attempts.
"""

from enum import StrEnum

from lakeproof.catalog import catalog_errors
from lakeproof.settings import Settings
from lakeproof.tables.names import (
    ATTEMPT,
    INGESTED_AT,
    LETTER,
    OUTCOME,
    POSITION,
    RAW,
    REASONS,
    SOURCE,
    ReplayOutcome,
    stream_tables,
)
from reader.catalogs import catalog_of, table_of

ATTEMPT_COLUMNS = {
    SOURCE: "string",
    POSITION: "long",
    LETTER: "int",
    ATTEMPT: "int",
    OUTCOME: "string",
    INGESTED_AT: "timestamptz",
}
"""Iceberg types of the columns of attempts that :func:`newest_attempts` reads."""


class LetterState(StrEnum):
    """State of a dead letter."""

    OPEN = "open"  # not replayed yet, or the newest attempt failed
    PARKED = "parked"  # the number of failed attempts has reached the limit
    CLOSED = "closed"  # the records are in bronze


def state_of(outcome: str) -> str:
    """Return SQL of the state of a dead letter, from the outcome of its newest attempt, or null."""
    kept = ", ".join(f"'{each}'" for each in (ReplayOutcome.PARKED, ReplayOutcome.CLOSED))
    return f"CASE WHEN {outcome} IN ({kept}) THEN {outcome} ELSE '{LetterState.OPEN}' END"


def newest_attempts(attempts: str) -> str:
    """Return SQL of the newest attempt of each dead letter, given SQL of the table of attempts."""
    return (
        f"SELECT {SOURCE} AS of_source, {POSITION} AS of_position, {LETTER} AS of_letter, count(*) AS attempts, "
        f"arg_max({OUTCOME}, {ATTEMPT}) AS {OUTCOME}, max({INGESTED_AT}) AS last_attempt FROM {attempts} GROUP BY ALL"
    )


def with_attempts(letters: str, attempts: str) -> str:
    """Return SQL to follow ``FROM``: dead letters with ``attempts``, and outcome and time of the newest attempt."""
    return (
        f"{letters} AS letter LEFT JOIN ({newest_attempts(attempts)}) AS newest ON letter.{SOURCE} = newest.of_source "
        f"AND letter.{POSITION} = newest.of_position AND coalesce(letter.{ATTEMPT}, 1) = newest.of_letter"
    )


def text_of_letters(letters: str, attempts: str, as_text: str) -> str:
    """Return SQL of dead letters with `raw` as text, reason codes, state, attempts and time of the newest attempt.

    `consumer replay --where` has the same columns.
    """
    return (
        f"SELECT letter.* REPLACE ({as_text}(letter.{RAW}) AS {RAW}), "
        f"[reason.code FOR reason IN letter.{REASONS}] AS codes, {state_of(f'newest.{OUTCOME}')} AS state, "
        f"coalesce(newest.attempts, 0) AS attempts, newest.last_attempt FROM {with_attempts(letters, attempts)}"
    )


def not_closed(letters: str, attempts: str | None) -> str:
    """Return SQL to follow ``FROM``: open and parked dead letters; `attempts` is None without a table of attempts."""
    if attempts is None:
        return letters
    return (
        f"(SELECT letter.* FROM {with_attempts(letters, attempts)} "
        f"WHERE newest.{OUTCOME} IS DISTINCT FROM '{ReplayOutcome.CLOSED}')"
    )


def has_attempts(settings: Settings, stream: str) -> bool:
    """Return whether the stream has a table of attempts, which the first replay creates."""
    with catalog_errors():
        return table_of(catalog_of(settings), stream_tables(stream).attempts) is not None
