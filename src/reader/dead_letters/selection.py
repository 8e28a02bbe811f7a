"""Select dead letters and count them by reason, source and key, in DuckDB."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeproof.catalog import quoted
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.tables.names import (
    ATTEMPT,
    INGESTED_AT,
    KEY,
    LANDED_AT,
    POSITION,
    RAW,
    REASONS,
    SOURCE,
    stream_tables,
)
from reader.connect import Session
from reader.letters import LetterState, text_of_letters
from reader.rest_facade import ATTEMPTS_OF, ROOT_NAMESPACE
from reader.views import MEMORY

_LETTERS = f"{MEMORY}.main.selected_letters"
_OF_REASONS = f"{MEMORY}.main.selected_reasons"
_PATH = r"regexp_replace(coalesce(reason.path, ''), '\[\d+\]', '[]', 'g')"
_BYTES = "_bytes"
_FETCH_ROWS = 1_000

Letter = tuple[str, int, int, str, list[dict[str, Any]], bytes | None]
"""Source, position, ``_attempt``, state, reasons and bytes of a dead letter."""


@dataclass(frozen=True)
class Example:
    """A dead letter, with one of its reasons."""

    source: str
    position: int
    letter: int  # its ``_attempt``
    path: str
    detail: str
    raw: bytes | None


@dataclass(frozen=True)
class ReasonCount:
    """Dead letters with the same reason and path; the path has no array indexes."""

    code: str
    path: str
    letters: int
    first_seen: datetime | None
    last_seen: datetime | None
    hours: tuple[tuple[datetime, int], ...]  # number of dead letters by hour, without empty hours
    example: Example


@dataclass(frozen=True)
class Counts:
    """Counts of the selected dead letters."""

    letters: int
    states: dict[LetterState, int]  # dead letters that meet the condition, by state; not limited to the selected states
    reasons: Sequence[ReasonCount]
    sources: Sequence[tuple[str, int]]  # sources with the most dead letters
    keys: Sequence[tuple[bytes, int]]  # keys of Kafka messages with the most dead letters
    distinct_sources: int
    distinct_keys: int


class LetterSelection:
    """Dead letters of a stream in the given states that meet a condition in SQL."""

    def __init__(self, session: Session, stream: str, states: Sequence[LetterState], where: str | None) -> None:
        self._session = session
        self._where = where
        self._states = ", ".join(quoted(state) for state in states)
        names = stream_tables(stream)
        self._key = KEY if KEY in session.columns(names.dead_letters) else "NULL::BLOB"
        # The same columns as in the view dead_letters_text and in `consumer replay --where`.
        with_bytes = f"(SELECT *, {RAW} AS {_BYTES} FROM {names.dead_letters})"
        self._rows = text_of_letters(with_bytes, f"{ROOT_NAMESPACE}.{ATTEMPTS_OF}{stream}", f"{MEMORY}.main.as_text")

    def count(self, top: int) -> Counts:
        """Count the dead letters, and list the `top` sources and keys."""
        fetch = self._session.fetch
        self._load(
            f"{SOURCE} AS source, {POSITION} AS position, coalesce({ATTEMPT}, 1) AS letter, state, "
            f"coalesce({LANDED_AT}, {INGESTED_AT}) AS seen, {self._key} AS key, {REASONS} AS reasons"
        )
        found = dict(fetch(f"SELECT state, count(*) FROM {_LETTERS} GROUP BY ALL"))
        fetch(f"DELETE FROM {_LETTERS} WHERE state NOT IN ({self._states})")
        ((letters, sources, keys),) = fetch(
            f"SELECT count(*), count(DISTINCT source), count(DISTINCT key) FROM {_LETTERS}"
        )
        by = (
            f"SELECT {{0}}, count(*) AS letters FROM {_LETTERS} WHERE {{0}} IS NOT NULL "
            f"GROUP BY ALL ORDER BY letters DESC, {{0}} LIMIT {top}"
        )
        return Counts(
            letters,
            {state: found.get(state, 0) for state in LetterState},
            list(self._reasons()),
            fetch(by.format("source")),
            fetch(by.format("key")),
            sources,
            keys,
        )

    def letters(self) -> Iterator[Letter]:
        """Yield the dead letters, sorted by source and position."""
        self._load(
            f"{SOURCE} AS source, {POSITION} AS position, coalesce({ATTEMPT}, 1) AS letter, state, "
            f"{REASONS} AS reasons, {_BYTES} AS raw"
        )
        with self._session.errors():
            rows = self._session.connection.execute(
                f"FROM {_LETTERS} WHERE state IN ({self._states}) ORDER BY source, position, letter"
            )
            while some := rows.fetchmany(_FETCH_ROWS):
                yield from some

    def _reasons(self) -> Iterator[ReasonCount]:
        fetch = self._session.fetch
        fetch(
            f"CREATE OR REPLACE TABLE {_OF_REASONS} AS SELECT reason.code AS code, {_PATH} AS path, source, "
            "position, letter, seen, coalesce(reason.path, '') AS exact, coalesce(reason.detail, '') AS detail "
            f"FROM (SELECT *, unnest(reasons) AS reason FROM {_LETTERS})"
        )
        hours: dict[tuple[str, str], list[tuple[datetime, int]]] = {}
        for code, path, hour, letters in fetch(
            "SELECT code, path, date_trunc('hour', seen) AS hour, count(DISTINCT (source, position, letter)) "
            f"FROM {_OF_REASONS} WHERE seen IS NOT NULL GROUP BY ALL ORDER BY ALL"
        ):
            hours.setdefault((code, path), []).append((hour, letters))
        found = fetch(
            "SELECT code, path, count(DISTINCT (source, position, letter)) AS letters, min(seen), max(seen), "
            "min({'source': source, 'position': position, 'letter': letter, 'exact': exact, 'detail': detail}) "
            f"FROM {_OF_REASONS} GROUP BY ALL ORDER BY letters DESC, code, path"
        )
        raws = self._raws([each[-1] for each in found])
        for code, path, letters, first, last, example in found:
            place = example["source"], example["position"], example["letter"]
            shown = Example(*place, example["exact"], example["detail"], raws.get(place))
            yield ReasonCount(code, path, letters, first, last, tuple(hours.get((code, path), ())), shown)

    def _raws(self, examples: Sequence[dict[str, Any]]) -> dict[tuple[str, int, int], bytes | None]:
        """Return the bytes of dead letters, by source, position and attempt."""
        places = [[each[name] for each in examples] for name in ("source", "position", "letter")]
        rows = self._session.fetch(
            f"SELECT {SOURCE}, {POSITION}, coalesce({ATTEMPT}, 1), {_BYTES} FROM ({self._rows}) "
            f"WHERE ({SOURCE}, {POSITION}, coalesce({ATTEMPT}, 1)) IN "
            "(SELECT (unnest(?::VARCHAR[]), unnest(?::BIGINT[]), unnest(?::INTEGER[])))",
            places,
        )
        return {(source, position, letter): raw for source, position, letter, raw in rows}

    def _load(self, columns: str) -> None:
        """Load columns of the dead letters into memory; an error in the condition raises UsageError."""
        where = "" if self._where is None else f" WHERE (\n{self._where}\n)"
        try:
            self._session.fetch(f"CREATE OR REPLACE TABLE {_LETTERS} AS SELECT {columns} FROM ({self._rows}){where}")
        except LakeproofError as error:
            if self._where is None or error.retryable or self._session.failures:
                raise
            raise UsageError(
                f"--where does not work. {error.message}",
                "It is a condition in SQL on the columns of dead_letters_text, for example "
                "\"list_contains(codes, 'wrong_type') AND _landed_at > '2026-11-01'\".",
            ) from error
