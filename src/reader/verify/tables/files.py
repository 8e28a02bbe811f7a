"""Rows of landed files in the tables and the ledger, counted by DuckDB.

A ledger may have millions of files, most of them proven and removed from the landing zone long ago. After a proof, only
files that are in the landing zone or have new rows are checked one by one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeproof.tables.names import (
    ATTEMPT,
    INGESTED_AT,
    MICRO_BATCH_ID,
    POSITION,
    RAW,
    REPLAY,
    RESCUED,
    SOURCE,
    StreamTables,
)
from reader.connect import Session
from reader.verify.findings import SHOWN_EXAMPLES
from reader.verify.tables.accounts import CODES, HAS_BYTES, Account, Booking
from reader.verify.tables.reach import Reach
from reader.verify.tables.removals import not_removed
from reader.verify.tables.replays import IS_CLOSED, IS_REPLAYED, Replays
from reader.verify.tables.since import sources_since
from reader.verify.tables.under_way import IS_COMPARED, IS_KNOWN, KNOWN, load_known
from reader.views import MEMORY

_LETTERS = f"{MEMORY}.main.verify_letters"
_EXPECTED = f"{MEMORY}.main.verify_expected"

Positions = tuple[int, list[int]]
"""The number of positions, and the first few."""


@dataclass(frozen=True)
class Old:
    """Proven files that are not checked one by one: their number, and their counts in the ledger."""

    files: int = 0
    units: int = 0
    bronze: int = 0


class TablesOfFiles:
    """The tables of a stream, by source, as of the last :meth:`load`.

    The files of `proven` micro-batches are skipped, unless they have new rows.
    """

    def __init__(self, session: Session, tables: StreamTables, replays: Replays, proven: Reach | None = None) -> None:
        self._session = session
        self._tables = tables
        self._replays = replays
        self._proven = proven
        self.bookings: dict[str, Booking] = {}  # without replays
        self.accounts: dict[str, Account] = {}  # without closed dead letters
        self.landed: dict[str, Account] = {}  # before any replay, as the bookings count
        self.recovered: dict[str, tuple[int, bool]] = {}

    def load(self) -> float | None:
        """Read ledger, then tables; return when the newest row outside the ledger was judged, in seconds since 1970."""
        load_known(self._session, self._tables.ledger)
        if self._proven:
            since = sources_since(self._session, self._tables, self._proven)
            self.bookings = self._bookings(f"source IN (FROM {since})")
        else:
            self.bookings = self._bookings()
        newest = self._replays.load()
        self.recovered = self._replays.recovered()
        newest = max(filter(None, (newest, self._load_accounts())), default=newest)
        beyond = self.accounts.keys() - self.bookings.keys()
        if self._proven and beyond:  # some may have received rows a moment ago
            self.bookings |= self._bookings("source IN (SELECT unnest(?::VARCHAR[]))", [[*beyond]])
            beyond -= self.bookings.keys()
        return max((self.accounts[source].ingested_at or 0.0 for source in beyond), default=newest)

    def trust(self, sources: Collection[str]) -> set[str]:
        """Use the ledger's counts for the proven files in `sources` as counts of the tables; return these files."""
        if not self._proven:
            return set()
        names = [name for name in sources if name not in self.bookings and name not in self.accounts]
        old = self._bookings(f"{self._is_old()} AND source IN (SELECT unnest(?::VARCHAR[]))", [names]) if names else {}
        for name, booking in old.items():
            units = booking.units
            first, last = (0, units - 1) if units else (None, None)
            whole = Account(units, booking.bronze, units, first, last, booking.dead, booking.rescued)
            self.accounts[name] = self.landed[name] = whole
        self.bookings |= old
        return set(old)

    def old(self) -> Old:
        """Return the proven files that are not in the bookings."""
        if not self._proven:
            return Old()
        ((files, units, bronze),) = self._session.fetch(
            "SELECT count(*), coalesce(sum(units), 0)::BIGINT, coalesce(sum(bronze), 0)::BIGINT "
            f"FROM {self._tables.ledger} WHERE {self._is_old()} AND source NOT IN (SELECT unnest(?::VARCHAR[]))",
            [[*self.bookings]],
        )
        return Old(files, units, bronze)

    def old_with(self, column: str, values: Collection[str] | Collection[int]) -> list[tuple[str, Any]]:
        """Return proven files with one of the given values in a column of the ledger, with the value."""
        if not self._proven or not values or "content_hash" not in self._session.columns(self._tables.ledger):
            return []
        return self._session.fetch(
            f"SELECT any_value(source), {column} FROM {self._tables.ledger} WHERE {self._is_old()} "
            f"AND content_hash IS NOT NULL AND {column} IN (SELECT unnest(?)) GROUP BY {column}",
            [[*values]],
        )

    def _is_old(self) -> str:
        landed = f"{REPLAY} IS NULL AND " if REPLAY in self._session.columns(self._tables.ledger) else ""
        return f"{landed}NOT {(self._proven or Reach()).is_beyond('micro_batch_id')}"

    def letters(self) -> Iterator[tuple[str, int, str | None]]:
        """Yield source, position and SHA-256 of the bytes of each dead letter that contains them."""
        yield from self._session.fetch(
            f"SELECT source, position, raw_hash FROM {_LETTERS} WHERE landed AND is_there AND {HAS_BYTES}"
        )

    def compare(self, units: Mapping[str, int]) -> tuple[dict[str, Positions], dict[str, Positions]]:
        """Return, by source, positions of its `units` that are in no table, and positions of rows without a unit."""
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_EXPECTED} AS SELECT unnest(?::VARCHAR[]) AS source, "
            "unnest(?::BIGINT[]) AS units",
            [list(units), list(units.values())],
        )
        held = (
            f"SELECT source, position, count(*) AS times FROM ({self._units()}) "
            f"WHERE live AND source IN (SELECT source FROM {_EXPECTED}) GROUP BY source, position"
        )
        shown = f"list(position ORDER BY position)[:{SHOWN_EXAMPLES}]"
        missing = self._session.fetch(
            f"WITH held AS ({held}), due AS (SELECT source, unnest(range(units)) AS position FROM {_EXPECTED}) "
            f"SELECT source, count(*), {shown} FROM due ANTI JOIN held USING (source, position) GROUP BY source"
        )
        extra = self._session.fetch(
            f"WITH held AS ({held}), surplus AS (SELECT source, position, times - (coalesce(position, -1) >= 0 "
            f"AND coalesce(position, -1) < units)::BIGINT AS more FROM held JOIN {_EXPECTED} USING (source)) "
            f"SELECT source, sum(more)::BIGINT, {shown} FROM surplus WHERE more > 0 GROUP BY source"
        )
        return (
            {source: (count, positions) for source, count, positions in missing},
            {source: (count, positions) for source, count, positions in extra},
        )

    def _bookings(self, condition: str = "true", parameters: Sequence[object] = ()) -> dict[str, Booking]:
        # A ledger from before the drift policies existed lacks their columns.
        known = self._session.columns(self._tables.ledger)
        drift = ", ".join(
            f"any_value(list_sum(map_values({name})))::BIGINT" if name in known else "0"
            for name in ("rescued", "discarded")
        )
        content_hash = "any_value(content_hash)" if "content_hash" in known else "NULL"
        landed = f"{REPLAY} IS NULL AND" if REPLAY in known else ""
        rows = self._session.fetch(
            "SELECT source, count(*), any_value(size), any_value(etag), any_value(units), any_value(bronze), "
            f"any_value(dead_letters), {drift}, {content_hash}, any_value(micro_batch_id) "
            f"FROM {self._tables.ledger} WHERE {landed} {IS_KNOWN} AND {condition} GROUP BY source",
            parameters,
        )
        return {
            str(source): Booking(
                count,
                size,
                etag,
                units or 0,
                bronze or 0,
                dead or {},
                rescued or 0,
                discarded or 0,
                content_hash,
                number,
            )
            for source, count, size, etag, units, bronze, dead, rescued, discarded, content_hash, number in rows
        }

    def _load_accounts(self) -> float | None:
        """Read the tables; return when the newest row of a micro-batch outside the ledger was judged."""
        there = not_removed(self._session, self._tables.dead_letters)
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_LETTERS} AS SELECT {SOURCE} AS source, {POSITION} AS position, "
            f"{CODES} AS codes, sha256({RAW}) AS raw_hash, {INGESTED_AT} AS ingested_at, "
            f"{MICRO_BATCH_ID} AS micro_batch, NOT {IS_CLOSED} AS live, coalesce({ATTEMPT}, 1) = 1 AS landed, "
            f"{there} AS is_there "
            f"FROM {self._tables.dead_letters} AS letter WHERE {IS_COMPARED}"
        )
        dead: tuple[dict[str, dict[str, int]], ...] = ({}, {})
        for source, codes, live, landed in self._session.fetch(
            "SELECT source, codes, count(*) FILTER (live), count(*) FILTER (landed) "
            f"FROM {_LETTERS} GROUP BY source, codes"
        ):
            for counts, count in zip(dead, (live, landed), strict=True):
                if count:
                    counts.setdefault(str(source), {})[codes] = count
        rows = self._session.fetch(
            "SELECT source, count(*) FILTER (live), count(*) FILTER (in_bronze), "
            "count(DISTINCT position) FILTER (live), min(position) FILTER (live), max(position) FILTER (live), "
            "epoch(max(ingested_at)), count(*) FILTER (landed), count(*) FILTER (landed AND in_bronze), "
            f"epoch(max(ingested_at) FILTER (micro_batch NOT IN (FROM {KNOWN}))) "
            f"FROM ({self._units()}) GROUP BY source"
        )
        rescued = self._rescued()
        self.accounts, self.landed, beyond = {}, {}, None
        for source, count, bronze, positions, first, last, newest, landed, landed_bronze, later in rows:
            name = str(source)
            kept, open_letters, letters = rescued.get(source, 0), dead[0].get(name, {}), dead[1].get(name, {})
            self.accounts[name] = Account(count, bronze, positions, first, last, open_letters, kept, newest)
            self.landed[name] = Account(landed, landed_bronze, dead=letters, rescued=kept)
            beyond = max(filter(None, (beyond, later)), default=None)
        return beyond

    def _rescued(self) -> dict[str | None, int]:
        if RESCUED not in self._session.columns(self._tables.bronze):
            return {}
        return dict(
            self._session.fetch(
                f"SELECT {SOURCE}, sum(cardinality({RESCUED}))::BIGINT FROM {self._tables.bronze} "
                f"WHERE {RESCUED} IS NOT NULL AND NOT {IS_REPLAYED} AND {IS_COMPARED} GROUP BY {SOURCE}"
            )
        )

    def _units(self) -> str:
        return (
            f"SELECT {SOURCE} AS source, {POSITION} AS position, {INGESTED_AT} AS ingested_at, "
            f"{MICRO_BATCH_ID} AS micro_batch, true AS in_bronze, true AS live, "
            f"NOT {IS_REPLAYED} AS landed FROM {self._tables.bronze} WHERE {IS_COMPARED} "
            f"UNION ALL SELECT source, position, ingested_at, micro_batch, false, live, landed FROM {_LETTERS}"
        )
