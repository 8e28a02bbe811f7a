"""Rows of a topic in the tables and the ledger, by partition and offset, counted by DuckDB."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from lakeproof.errors import UnavailableError
from lakeproof.kafka.offsets import Offsets
from lakeproof.reasons import Reason
from lakeproof.tables.names import (
    ATTEMPT,
    HEADERS,
    INGESTED_AT,
    KEY,
    MICRO_BATCH_ID,
    POSITION,
    RAW,
    REPLAY,
    SOURCE,
    StreamTables,
)
from reader.connect import Session
from reader.verify.findings import SHOWN_EXAMPLES
from reader.verify.tables.accounts import CODES, HAS_BYTES, Account, Booking, rescued_of
from reader.verify.tables.reach import Reach
from reader.verify.tables.removals import not_removed
from reader.verify.tables.replays import IS_CLOSED, IS_REPLAYED, Replays
from reader.verify.tables.under_way import IS_COMPARED, IS_KNOWN, KNOWN, load_known
from reader.views import MEMORY

_UNITS = f"{MEMORY}.main.verify_topic_units"
_RANGES = f"{MEMORY}.main.verify_topic_ranges"
_MESSAGES = f"{MEMORY}.main.verify_topic_messages"
_REACH = f"SELECT part, place, max(behind) OVER (PARTITION BY part ORDER BY place) AS reach FROM {_RANGES}"
_WITH_REACH = (
    f"{_UNITS} AS unit ASOF LEFT JOIN ({_REACH}) AS booked ON unit.part = booked.part AND unit.place >= booked.place"
)
"""Units with the end of the ranges that begin at or before them. A stream writes a range every few seconds, so joining
by partition alone would compare each unit with thousands of ranges."""
_IS_BEYOND = "(reach IS NULL OR unit.place >= reach)"
"""SQL that is true if a unit is in no range of the ledger."""
# With `pair` for `_pair`, a field `pair` of the contract would be read: fields do not begin with an underscore.
_LABEL = (
    f"sha256(coalesce(hex({KEY}), '-') || '|' || array_to_string("
    f"[hex(_pair.key) || '=' || coalesce(hex(_pair.value), '-') FOR _pair IN coalesce({HEADERS}, [])], ','))"
)
_TRIES = 5
_NAME = r"^(.+)/(\d+)/(\d{19})$"

ListedUnits = tuple[int, list[str]]
"""The number of units, and the first few as text: ``offset`` or ``offset[position]``."""


class DiscardingRange(NamedTuple):
    """A range of offsets in the ledger with discarded values."""

    first: int
    end: int  # exclusive
    bronze: int  # number of rows
    discarded: int  # number of values


def label_of(session: Session, table: str) -> str:
    """Return SQL of the SHA-256 of key and headers of a row; null in tables of files."""
    return _LABEL if KEY in session.columns(table) else "NULL"


class TablesOfTopic:
    """The tables of a stream that reads a topic, as of the last :meth:`load`."""

    def __init__(
        self,
        session: Session,
        tables: StreamTables,
        topic: str,
        accounted: Callable[[], Offsets],
        replays: Replays,
        proven: Reach,
    ) -> None:
        self._session = session
        self._tables = tables
        self._topic = topic
        self._accounted = accounted
        self._replays = replays
        self._proven = proven
        self.recovered: dict[str, tuple[int, bool]] = {}
        self.accounted = Offsets(topic)
        """The offsets that the tables have, by the marker of the ledger."""

    def load(self) -> float | None:
        """Read ledger, then tables; return when the newest row outside the ledger was judged, in seconds since 1970."""
        fetch, tables, replays = self._session.fetch, self._tables, self._replays
        self._load_ranges()
        attempted = replays.load()
        self.recovered = replays.recovered()
        there = {table: not_removed(self._session, table) for table in (tables.bronze, tables.dead_letters)}
        fetch(
            f"CREATE OR REPLACE TABLE {_UNITS} AS SELECT {self._place(SOURCE)}, {POSITION} AS position, "
            f"{INGESTED_AT} AS ingested_at, NULL AS codes, NULL AS raw_hash, "
            f"{rescued_of(self._session, tables.bronze)}::BIGINT AS rescued, "
            f"{label_of(self._session, tables.bronze)} AS label, {MICRO_BATCH_ID} AS micro_batch, true AS live, "
            f"NOT {IS_REPLAYED} AS landed, {there[tables.bronze]} AS is_there "
            f"FROM {tables.bronze} WHERE {IS_COMPARED} "
            f"UNION ALL SELECT {self._place(SOURCE)}, {POSITION}, {INGESTED_AT}, "
            f"{CODES}, sha256({RAW}), 0, {label_of(self._session, tables.dead_letters)}, {MICRO_BATCH_ID}, "
            f"NOT {IS_CLOSED}, coalesce({ATTEMPT}, 1) = 1, {there[tables.dead_letters]} "
            f"FROM {tables.dead_letters} AS letter WHERE {IS_COMPARED}"
        )
        fetch(f"CREATE OR REPLACE TABLE {_MESSAGES} (part INTEGER, place BIGINT, units BIGINT, label VARCHAR)")
        ((newest,),) = fetch(
            f"SELECT epoch(max(ingested_at)) FROM {_WITH_REACH} WHERE micro_batch NOT IN (FROM {KNOWN}) OR {_IS_BEYOND}"
        )
        return attempted if newest is None else max(float(newest), attempted or 0.0)

    def _load_ranges(self) -> None:
        """Read the marker of the ledger, then its rows, which are never behind the marker."""
        landed = f"{REPLAY} IS NULL AND" if REPLAY in self._session.columns(self._tables.ledger) else ""
        for _ in range(_TRIES):
            self.accounted = self._accounted()
            load_known(self._session, self._tables.ledger)
            self._session.fetch(
                f"CREATE OR REPLACE TABLE {_RANGES} AS SELECT {self._place('source')}, etag::BIGINT AS behind, "
                "units, bronze, dead_letters, list_sum(map_values(rescued))::BIGINT AS rescued, "
                f"list_sum(map_values(discarded))::BIGINT AS discarded, "
                f"{self._proven.is_beyond('micro_batch_id')} AS is_new, micro_batch_id AS micro_batch "
                f"FROM {self._tables.ledger} WHERE {landed} {IS_KNOWN}"
            )
            # Rows that a batch over the past has added since the marker was read would look like duplicate ones.
            if self._accounted().past == self.accounted.past:
                return
        raise UnavailableError(f"A batch over the past adds to {self._tables.ledger} all the time.", "Try again.")

    def totals(self) -> tuple[int, int]:
        """Return the number of bronze rows, and of dead letters that are not closed."""
        ((bronze, dead),) = self._session.fetch(
            f"SELECT count(*) FILTER (codes IS NULL), count(codes) FILTER (live) FROM {_UNITS}"
        )
        return bronze, dead

    def foreign(self, partitions: Sequence[int]) -> tuple[int, int]:
        """Return the number of rows of the tables, and of the ledger, from other topics or other partitions."""
        rows, ranges = (
            self._session.fetch(
                f"SELECT count(*) FROM {table} WHERE part IS NULL OR NOT list_contains(?::INTEGER[], part)",
                [list(partitions)],
            )
            for table in (_UNITS, _RANGES)
        )
        return rows[0][0], ranges[0][0]

    def letters(self) -> dict[tuple[int, int], dict[int, list[str | None]]]:
        """Return the SHA-256 of the bytes of dead letters that contain them, by message and position."""
        found: dict[tuple[int, int], dict[int, list[str | None]]] = {}
        for part, at, position, raw_hash in self._session.fetch(
            f"SELECT part, place, position, raw_hash FROM {_UNITS} WHERE codes IS NOT NULL AND landed "
            "AND is_there AND part IS NOT NULL "
            f"AND {HAS_BYTES} AND NOT contains(codes, 'absent')"
        ):
            found.setdefault((part, at), {}).setdefault(position, []).append(raw_hash)
        return found

    def too_large(self) -> dict[tuple[int, int], bool]:
        """Return the messages that are dead letters without bytes, too large to be split; whether each is open."""
        return {
            (part, at): is_open
            for part, at, is_open in self._session.fetch(
                f"SELECT part, place, bool_or(live) FROM {_UNITS} "
                f"WHERE codes = '{Reason.BATCH_TOO_LARGE}' AND landed AND part IS NOT NULL GROUP BY ALL"
            )
        }

    def having_rows(self, partition: int, offsets: Collection[int]) -> set[int]:
        """Return the messages at some offsets that have rows in the tables."""
        rows = self._session.fetch(
            f"SELECT DISTINCT place FROM {_UNITS} WHERE part = ? AND place BETWEEN ? AND ? "
            "AND place IN (SELECT unnest(?::BIGINT[]))",
            [partition, min(offsets), max(offsets), list(offsets)],
        )
        return {offset for (offset,) in rows}

    def expect(self, partition: int, counts: Sequence[tuple[int, int, str]]) -> None:
        """Store the number of units and the label of the message at each offset."""
        import pyarrow as pa

        offsets, units, labels = zip(*counts, strict=True)
        found = pa.table({"part": [partition] * len(offsets), "place": offsets, "units": units, "label": labels})
        self._session.insert(_MESSAGES, found)

    def counted(self) -> int:
        """Return the number of units that were stored."""
        ((units,),) = self._session.fetch(f"SELECT coalesce(sum(units), 0)::BIGINT FROM {_MESSAGES}")
        return int(units)

    def missing(self, partition: int) -> ListedUnits:
        """Return the units of messages that are in no table."""
        return self._listed(
            f"SELECT place, unnest(range(units)) AS position FROM {_MESSAGES} WHERE part = ? EXCEPT "
            f"SELECT place, position FROM {_UNITS} WHERE part = ? AND live",
            [partition, partition],
        )

    def surplus(self, partition: int, spans: Sequence[tuple[int, int]], *, has_gaps: bool) -> ListedUnits:
        """Return rows without a unit: of no message within `spans`, or duplicates of the row of a unit.

        If the topic `has_gaps`, a message may have been removed since it was consumed.
        """
        read = " OR ".join(f"place >= {first} AND place < {end}" for first, end in spans) or "false"
        return self._listed(
            "SELECT place, position FROM (SELECT unit.place, unit.position, count(*) AS times, "
            "any_value(message.units) AS units, bool_or(contains(unit.codes, 'absent')) AS absent "
            f"FROM {_UNITS} AS unit LEFT JOIN {_MESSAGES} "
            "AS message USING (part, place) WHERE part = ? AND live GROUP BY unit.place, unit.position) "
            "WHERE times > 1 OR position IS NULL OR position < 0 OR position >= units "
            f"OR (units IS NULL AND NOT ? AND ({read}) AND absent IS NOT true)",
            [partition, has_gaps],
        )

    def mislabelled(self, partition: int) -> ListedUnits:
        """Return rows whose key or headers differ from the message."""
        return self._listed(
            f"SELECT unit.place, unit.position FROM {_UNITS} AS unit JOIN {_MESSAGES} AS message USING (part, place) "
            "WHERE part = ? AND unit.is_there AND unit.label IS DISTINCT FROM message.label "
            "AND unit.position IS NOT NULL",
            [partition],
        )

    def unbooked(self, partition: int) -> ListedUnits:
        """Return rows that are in no range of the ledger."""
        return self._listed(
            f"SELECT unit.place, position FROM {_WITH_REACH} WHERE unit.part = ? AND {_IS_BEYOND}",
            [partition],
        )

    def ranges(self, partition: int) -> list[tuple[int, int]]:
        """Return the ranges of offsets in the ledger, as first offset and end."""
        return [
            (at, behind)
            for at, behind in self._session.fetch(
                f"SELECT place, behind FROM {_RANGES} WHERE part = ? ORDER BY place, behind",
                [partition],
            )
        ]

    def micro_batches(self, partition: int, first: int, end: int) -> tuple[int, int]:
        """Return the first and the last micro-batch with messages in a range of offsets; 0 without messages."""
        ((low, high),) = self._session.fetch(
            f"SELECT min(micro_batch), max(micro_batch) FROM {_RANGES} WHERE part = ? AND place < ? AND behind > ?",
            [partition, end, first],
        )
        return low or 0, high or 0

    def discarding(self, partition: int, spans: Sequence[tuple[int, int]]) -> list[DiscardingRange]:
        """Return the ranges of the ledger with discarded values that have offsets within `spans`, sorted."""
        read = " OR ".join(f"(place < {end} AND behind > {first})" for first, end in spans) or "false"
        rows = self._session.fetch(
            f"SELECT place, behind, coalesce(bronze, 0), discarded FROM {_RANGES} "
            f"WHERE part = ? AND discarded > 0 AND ({read}) ORDER BY ALL",
            [partition],
        )
        return [DiscardingRange(*row) for row in rows]

    def books(self, partition: int) -> list[tuple[int, Booking, Account]]:
        """Return first offset, ledger counts and table counts of each new range of the ledger.

        A row counts for the range that begins last before it: another check reports ranges that overlap.
        """
        dead: dict[int, dict[str, int]] = {}
        begun = f"(SELECT part, place, max(behind) AS behind FROM {_RANGES} WHERE part = ? GROUP BY ALL)"
        held = (
            f"(SELECT begun.place, codes, rescued FROM {_UNITS} AS unit ASOF JOIN {begun} AS begun "
            "ON unit.part = begun.part AND unit.place >= begun.place WHERE landed AND unit.place < behind)"
        )
        new = f"(FROM {_RANGES} WHERE part = ? AND is_new)"
        for at, codes, count in self._session.fetch(
            f"SELECT place, codes, count(*) FROM {held} SEMI JOIN {new} USING (place) "
            "WHERE codes IS NOT NULL GROUP BY ALL",
            [partition, partition],
        ):
            dead.setdefault(at, {})[codes] = count
        rows = self._session.fetch(
            "WITH counts AS (SELECT place, count(*) AS rows, count(*) FILTER (codes IS NULL) AS bronze, "
            f"sum(rescued)::BIGINT AS rescued FROM {held} GROUP BY place) "
            "SELECT booked.place, any_value(booked.units), any_value(booked.bronze), any_value(booked.dead_letters), "
            "any_value(booked.rescued), coalesce(any_value(counts.rows), 0), coalesce(any_value(counts.bronze), 0), "
            f"coalesce(any_value(counts.rescued), 0) FROM {new} AS booked LEFT JOIN counts USING (place) "
            "GROUP BY booked.place ORDER BY booked.place",
            [partition, partition],
        )
        return [
            (
                at,
                Booking(1, 0, "", units or 0, bronze or 0, letters or {}, rescued or 0),
                Account(count, in_bronze, dead=dead.get(at, {}), rescued=kept),
            )
            for at, units, bronze, letters, rescued, count, in_bronze, kept in rows
        ]

    def _listed(self, query: str, parameters: list[Any]) -> ListedUnits:
        rows = self._session.fetch(
            f"WITH found AS ({query}) SELECT count(*), list(CASE WHEN position = 0 THEN place::VARCHAR "
            f"ELSE format('{{}}[{{}}]', place, position) END ORDER BY place, position)[:{SHOWN_EXAMPLES}] FROM found",
            parameters,
        )
        ((count, first),) = rows
        return count, first or []

    def _place(self, column: str) -> str:
        """Return SQL of the columns ``part`` and ``place`` of a message's name; null for messages of other topics."""
        matches = f"regexp_extract({column}, '{_NAME}', 1) = '{self._topic}'"
        return (
            f"CASE WHEN {matches} THEN regexp_extract({column}, '{_NAME}', 2)::INTEGER END AS part, "
            f"CASE WHEN {matches} THEN regexp_extract({column}, '{_NAME}', 3)::BIGINT END AS place"
        )
