"""What the tables and the ledger hold, by source. Everything is counted by DuckDB."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakeproof.tables.names import CONTRACT_VERSION, INGESTED_AT, POSITION, RAW, REASONS, RESCUED, SOURCE, stream_tables
from reader.connect import Session
from reader.verify.findings import Account, Booking
from reader.views import MEMORY, identifier

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN_POSITIONS = 5
_LETTERS = f"{MEMORY}.main.verify_letters"
_EXPECTED = f"{MEMORY}.main.verify_expected"

Positions = tuple[int, list[int]]
"""How many, and the first few."""


class StreamLake:
    """The tables of one stream, as of each call.

    Parameters
    ----------
    session
        The open session.
    stream
        Name of the stream.
    """

    def __init__(self, session: Session, stream: str) -> None:
        self._session = session
        self._tables = stream_tables(stream)

    def bookings(self) -> dict[str, Booking]:
        """The ledger's rows by source."""
        # A ledger that is older than the policies has no columns of them.
        known = self._session.columns(self._tables.ledger)
        drift = ", ".join(
            f"any_value(list_sum(map_values({name})))::BIGINT" if name in known else "0"
            for name in ("rescued", "discarded")
        )
        content_hash = "any_value(content_hash)" if "content_hash" in known else "NULL"
        rows = self._session.fetch(
            "SELECT source, count(*), any_value(size), any_value(etag), any_value(units), any_value(bronze), "  # noqa: S608
            f"any_value(dead_letters), {drift}, {content_hash} FROM {self._tables.ledger} GROUP BY source"
        )
        return {
            str(source): Booking(
                count, size, etag, units or 0, bronze or 0, dead or {}, rescued or 0, discarded or 0, content_hash
            )
            for source, count, size, etag, units, bronze, dead, rescued, discarded, content_hash in rows
        }

    def accounts(self) -> dict[str, Account]:
        """What both tables hold by source. Keeps what is asked about dead letters later."""
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_LETTERS} AS SELECT {SOURCE} AS source, {POSITION} AS position, "  # noqa: S608
            f"coalesce(array_to_string(list_sort(list_distinct([reason.code FOR reason IN {REASONS}])), '+'), '') "
            f"AS codes, sha256({RAW}) AS raw_hash, {INGESTED_AT} AS ingested_at FROM {self._tables.dead_letters}"
        )
        dead: dict[str, dict[str, int]] = {}
        for source, codes, count in self._session.fetch(
            f"SELECT source, codes, count(*) FROM {_LETTERS} GROUP BY source, codes"  # noqa: S608
        ):
            dead.setdefault(str(source), {})[codes] = count
        rows = self._session.fetch(
            "SELECT source, count(*), count(*) FILTER (in_bronze), count(DISTINCT position), min(position), "  # noqa: S608
            f"max(position), epoch(max(ingested_at)) FROM ({self._units()}) GROUP BY source"
        )
        rescued = self._rescued()
        return {
            str(source): Account(
                count, bronze, positions, first, last, dead.get(str(source), {}), rescued.get(source, 0), newest
            )
            for source, count, bronze, positions, first, last, newest in rows
        }

    def letters(self) -> Iterator[tuple[str, int, str | None]]:
        """Source, position and SHA-256 of the bytes of each dead letter of :meth:`accounts` that has them."""
        yield from self._session.fetch(
            f"SELECT source, position, raw_hash FROM {_LETTERS} "  # noqa: S608
            "WHERE position IS NOT NULL AND NOT (raw_hash IS NULL AND contains(codes, '_too_large'))"
        )

    def compare(self, units: Mapping[str, int]) -> tuple[dict[str, Positions], dict[str, Positions]]:
        """Compare sources position by position.

        Parameters
        ----------
        units
            By source, how many units it has.

        Returns
        -------
        tuple[dict[str, Positions], dict[str, Positions]]
            By source, the positions that no table has, and those of rows that have no unit of their own.
        """
        self._session.fetch(
            f"CREATE OR REPLACE TABLE {_EXPECTED} AS SELECT unnest(?::VARCHAR[]) AS source, "
            "unnest(?::BIGINT[]) AS units",
            [list(units), list(units.values())],
        )
        held = (
            f"SELECT source, position, count(*) AS times FROM ({self._units()}) "  # noqa: S608
            f"WHERE source IN (SELECT source FROM {_EXPECTED}) GROUP BY source, position"
        )
        shown = f"list(position ORDER BY position)[:{_SHOWN_POSITIONS}]"
        missing = self._session.fetch(
            f"WITH held AS ({held}), due AS (SELECT source, unnest(range(units)) AS position FROM {_EXPECTED}) "  # noqa: S608
            f"SELECT source, count(*), {shown} FROM due ANTI JOIN held USING (source, position) GROUP BY source"
        )
        extra = self._session.fetch(
            f"WITH held AS ({held}), surplus AS (SELECT source, position, times - (coalesce(position, -1) >= 0 "  # noqa: S608
            f"AND coalesce(position, -1) < units)::BIGINT AS more FROM held JOIN {_EXPECTED} USING (source)) "
            f"SELECT source, sum(more)::BIGINT, {shown} FROM surplus WHERE more > 0 GROUP BY source"
        )
        return (
            {source: (count, positions) for source, count, positions in missing},
            {source: (count, positions) for source, count, positions in extra},
        )

    def sample(self, columns: Sequence[str], rows: int) -> "pa.Table":
        """Random rows of bronze: `columns`, ``_source``, ``_position``, ``_contract_version``, ``_rescued`` if any."""
        more = (RESCUED,) * (RESCUED in self._session.columns(self._tables.bronze))
        names = ", ".join(identifier(name) for name in (*columns, *more, SOURCE, POSITION, CONTRACT_VERSION))
        with self._session.errors():
            return self._session.connection.execute(
                f"SELECT {names} FROM {self._tables.bronze} USING SAMPLE reservoir({rows} ROWS)"  # noqa: S608
            ).to_arrow_table()

    def _rescued(self) -> dict[str | None, int]:
        if RESCUED not in self._session.columns(self._tables.bronze):
            return {}
        return dict(
            self._session.fetch(
                f"SELECT {SOURCE}, sum(cardinality({RESCUED}))::BIGINT FROM {self._tables.bronze} "  # noqa: S608
                f"WHERE {RESCUED} IS NOT NULL GROUP BY {SOURCE}"
            )
        )

    def _units(self) -> str:
        return (
            f"SELECT {SOURCE} AS source, {POSITION} AS position, {INGESTED_AT} AS ingested_at, true AS in_bronze "  # noqa: S608
            f"FROM {self._tables.bronze} "
            f"UNION ALL SELECT source, position, ingested_at, false FROM {_LETTERS}"
        )
