"""Recompute the verdict on each row of bronze from bronze alone.

Most keys have one row, whose verdict follows from its own event time. The rows of other keys, the claims, are decided
one after the other: a row of a key can be kept again once the earlier kept row is before the horizon. Only the claims
are in memory together, about 100 bytes each. The rest is done in slices, so that memory does not grow with bronze.
"""

from collections.abc import Iterator

from lakeproof.contracts import Contract
from lakeproof.tables.names import (
    HORIZON,
    MICRO_BATCH_ID,
    POSITION,
    SOURCE,
    WINNER_POSITION,
    WINNER_SOURCE,
    silver_tables,
    stream_tables,
)
from reader.connect import Session
from reader.verify.silver.claims import Arbiter, Claim, Verdict
from reader.verify.silver.content import content, counted_time, event_time, key, micros
from reader.verify.spans import Span
from reader.views import MEMORY

VERDICT = "_verdict"
EXPECTED = f"{MEMORY}.main.verify_expected_verdicts"
"""Rows of bronze in a slice, with ``_verdict``, ``_horizon``, ``_winner_source`` and ``_winner_position``."""

_HORIZONS = f"{MEMORY}.main.verify_horizons"
_KEYS = f"{MEMORY}.main.verify_claimed_keys"
_CLAIMS = f"{MEMORY}.main.verify_claims"
_FILES = f"{MEMORY}.main.verify_files_of_keys"
_DECIDED = f"{MEMORY}.main.verify_decided_claims"
_SLICE_ROWS = 200_000
_CHUNK_ROWS = 50_000


class RecomputedVerdicts:
    """Verdicts on the rows of bronze in the micro-batches before `end`, under a contract that declares silver.

    Micro-batches before `start` were proven: the rows that silver kept from them are trusted, and `newest` is their
    newest time, in microseconds since 1970.
    """

    def __init__(
        self, session: Session, contract: Contract, end: int, start: int = 0, newest: int | None = None
    ) -> None:
        self._session = session
        self._contract = contract
        self._end = end
        self._start = start
        self.newest = newest  # newest time before the start; after slices(), before the end
        self._rows = f"_bronze.{MICRO_BATCH_ID} < {end}"
        if start:
            self._rows += f" AND _bronze.{MICRO_BATCH_ID} >= {start}"
        self._bronze = stream_tables(contract.stream).bronze

    def slices(self) -> list[Span]:
        """Decide the claims; return the slices for :meth:`expect`, in order."""
        self._find_horizons()
        self._find_claims()
        self._decide_claims()
        return list(self._cut())

    def expect(self, part: Span) -> None:
        """Put the rows of a slice into :data:`EXPECTED`."""
        time = event_time(self._contract, "_bronze")
        # Bronze may contain duplicate rows, which another check reports: they have one claim here.
        claims = (
            "SELECT claim.micro_batch, claim.source, claim.position, any_value(decided.verdict) AS verdict, "
            "any_value(winner.source) AS winner_source, any_value(winner.position) AS winner_position "
            f"FROM {_CLAIMS} AS claim JOIN {_DECIDED} AS decided USING (number) "
            f"LEFT JOIN {_CLAIMS} AS winner ON winner.number = decided.winner "
            f"WHERE {part.holds('claim.micro_batch')} GROUP BY ALL"
        )
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {EXPECTED} AS SELECT _bronze.*, _horizons.horizon AS {HORIZON}, "
            f"_claim.winner_source AS {WINNER_SOURCE}, _claim.winner_position AS {WINNER_POSITION}, "
            f"coalesce(_claim.verdict, CASE WHEN {time} < _horizons.horizon THEN '{Verdict.LATE}' "
            f"ELSE '{Verdict.KEPT}' END) AS {VERDICT} FROM {self._bronze} AS _bronze "
            f"JOIN {_HORIZONS} AS _horizons ON _horizons.micro_batch = _bronze.{MICRO_BATCH_ID} "
            f"LEFT JOIN ({claims}) AS _claim ON _bronze.{MICRO_BATCH_ID} = _claim.micro_batch "
            f"AND _bronze.{SOURCE} = _claim.source AND _bronze.{POSITION} = _claim.position "
            f"WHERE {part.holds(f'_bronze.{MICRO_BATCH_ID}')}"
        )

    def undecided(self) -> int:
        """Return the number of bronze rows in later micro-batches."""
        return self._session.count(f"{self._bronze} WHERE {MICRO_BATCH_ID} >= {self._end} OR {MICRO_BATCH_ID} IS NULL")

    def close(self) -> None:
        """Free the memory."""
        for table in (_HORIZONS, _KEYS, _FILES, _CLAIMS, _DECIDED, EXPECTED):
            self._session.fetch(f"DROP TABLE IF EXISTS {table}")

    def _find_horizons(self) -> None:
        """Compute the horizon of each micro-batch: the newest time before it, minus the duration in the contract."""
        silver = self._contract.silver
        length = silver.horizon if silver else None
        less = "NULL" if length is None else micros(length)
        counted = counted_time(self._contract, "_bronze")
        before = ""
        if self._start:
            time = "NULL" if self.newest is None else self.newest
            before = f" UNION ALL SELECT -1, 0, {time}::BIGINT"
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_HORIZONS} AS SELECT micro_batch, rows, max(newest) OVER "
            f"(ORDER BY micro_batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - {less}::BIGINT AS horizon, "
            f"newest FROM (SELECT {MICRO_BATCH_ID} AS micro_batch, count(*) AS rows, max({counted}) AS newest "
            f"FROM {self._bronze} AS _bronze WHERE {self._rows} GROUP BY ALL{before})"
        )
        if self._start:
            self._session.fetch(f"DELETE FROM {_HORIZONS} WHERE rows = 0")
        ((newest,),) = self._session.fetch(f"SELECT max(newest) FROM {_HORIZONS}")
        self.newest = max((each for each in (self.newest, newest) if each is not None), default=None)

    def _find_claims(self) -> None:
        keys = key(self._contract, "_bronze")
        parts = [f"key_{number}" for number in range(len(keys))]
        named = ", ".join(f"{value} AS {part}" for value, part in zip(keys, parts, strict=True))
        same_key = " AND ".join(f"{value} = _keys.{part}" for value, part in zip(keys, parts, strict=True))
        # A row of any new key may have been kept before.
        several = "" if self._start else " HAVING count(*) > 1"
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_KEYS} AS SELECT *, row_number() OVER () AS number FROM ("
            f"SELECT {named} FROM {self._bronze} AS _bronze WHERE {self._rows} GROUP BY ALL{several})"
        )
        kept = self._kept_before(parts) if self._start else ""
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_CLAIMS} AS SELECT "
            "row_number() OVER (ORDER BY key, micro_batch, source, position) AS number, "
            "key, micro_batch, source, position, event_time, horizon, "
            "dense_rank() OVER (PARTITION BY key ORDER BY content) AS content "
            f"FROM (SELECT _keys.number AS key, _bronze.{MICRO_BATCH_ID} AS micro_batch, _bronze.{SOURCE} AS source, "
            f"_bronze.{POSITION} AS position, {event_time(self._contract, '_bronze')} AS event_time, "
            f"_horizons.horizon AS horizon, {content(self._contract, '_bronze')} AS content "
            f"FROM {self._bronze} AS _bronze JOIN {_KEYS} AS _keys ON {same_key} "
            f"JOIN {_HORIZONS} AS _horizons ON _horizons.micro_batch = _bronze.{MICRO_BATCH_ID} "
            f"WHERE {self._rows}{kept}) ORDER BY number"
        )

    def _kept_before(self, parts: list[str]) -> str:
        """Return SQL of the last row that silver kept before for each key: it claims the key again, and wins."""
        same_key = " AND ".join(
            f"{value} = _keys.{part}" for value, part in zip(key(self._contract, "_kept"), parts, strict=True)
        )
        kept = f"{silver_tables(self._contract.stream).kept} AS _kept JOIN {_KEYS} AS _keys ON {same_key}"
        # Keys are read from all of silver, content only from data files with one of these keys.
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_FILES} AS SELECT DISTINCT _kept.filename AS location FROM {kept} "
            f"WHERE _kept.{MICRO_BATCH_ID} < {self._start}"
        )
        if not self._session.count(_FILES):
            return ""
        columns = ", ".join(f"_kept.{name}" for name in (MICRO_BATCH_ID, SOURCE, POSITION))
        order = ", ".join(f"_kept.{name} DESC" for name in (MICRO_BATCH_ID, SOURCE, POSITION))
        return (
            f" UNION ALL SELECT _keys.number, {columns}, {event_time(self._contract, '_kept')}, NULL::BIGINT, "
            f"{content(self._contract, '_kept')} FROM {kept} "
            f"WHERE _kept.{MICRO_BATCH_ID} < {self._start} AND _kept.filename IN (FROM {_FILES}) "
            f"QUALIFY row_number() OVER (PARTITION BY _keys.number ORDER BY {order}) = 1"
        )

    def _decide_claims(self) -> None:
        import pyarrow as pa

        self._session.fetch(f"CREATE OR REPLACE TABLE {_DECIDED} (number BIGINT, verdict VARCHAR, winner BIGINT)")
        arbiter = Arbiter()
        first = 1
        while claims := self._session.fetch(
            f"SELECT number, key, event_time, horizon, content FROM {_CLAIMS} "
            f"WHERE number BETWEEN {first} AND {first + _CHUNK_ROWS - 1} ORDER BY number"
        ):
            decided = [(number, *arbiter.decide(Claim(number, *rest))) for number, *rest in claims]
            columns = [pa.array(values) for values in zip(*decided, strict=True)]
            self._session.insert(_DECIDED, pa.table(columns, ["number", "verdict", "winner"]))
            first += _CHUNK_ROWS

    def _cut(self) -> Iterator[Span]:
        start, rows = self._start or None, 0
        for number, more in self._session.fetch(f"SELECT micro_batch, rows FROM {_HORIZONS} ORDER BY micro_batch"):
            if rows and rows + more > _SLICE_ROWS:
                yield Span(start, number)
                start, rows = number, 0
            rows += more
        yield Span(start, self._end)
