"""The ledgers of a stream, read once into the session's memory; the source of nearly all numbers of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from lakeproof.tables.names import (
    CONTRACT_VERSION,
    DECIDED_AT,
    INGESTED_AT,
    LETTER_REASONS,
    OUTCOME,
    REPLAY,
    Removal,
    ReplayOutcome,
    SilverTables,
    StreamTables,
)
from reader.connect import Session
from reader.page.model import Hour, Ledger, MicroBatchRow
from reader.verify.tables.removals import unfinished
from reader.views import MEMORY

LEDGER = f"{MEMORY}.main.page_ledger"
SILVER = f"{MEMORY}.main.page_silver"
_COLUMNS = {
    "source": "VARCHAR",
    "size": "BIGINT",
    "micro_batch_id": "BIGINT",
    "units": "BIGINT",
    "bronze": "BIGINT",
    "dead_letters": "MAP(VARCHAR, BIGINT)",
    "rescued": "MAP(VARCHAR, BIGINT)",
    "discarded": "MAP(VARCHAR, BIGINT)",
    "landed_at": "TIMESTAMPTZ",
    INGESTED_AT: "TIMESTAMPTZ",
    CONTRACT_VERSION: "VARCHAR",
    REPLAY: "BIGINT",
    "closed": "MAP(VARCHAR, BIGINT)",
}
_VERDICTS = ("kept", "duplicates", "conflicts", "late")
_HOURS = 24 * 366
_TREND = "INTERVAL 14 DAYS"
_TIMES = "TIMESTAMPTZ '1970-01-01 00:00:00+00' AND TIMESTAMPTZ '9999-12-30 00:00:00+00'"  # plausible, valid in Python
_MICRO_BATCHES = 12
_CLOSED = f"facts ->> '{OUTCOME}' = '{ReplayOutcome.CLOSED}'"
"""SQL that is true for rows of the account of removals about an attempt that closed a dead letter."""


@dataclass(frozen=True)
class Storm:
    """An excess of rows of one kind, up to the newest landed rows."""

    part: int
    whole: int
    since: datetime
    source: str | None  # the first source with such rows


def load(session: Session, ledger: str, columns: set[str], silver: str | None) -> None:
    """Load the ledgers; columns that are missing in a lake of an earlier version are null."""
    selected = ", ".join(name if name in columns else f"NULL::{kind} AS {name}" for name, kind in _COLUMNS.items())
    # The producer sets the time of a message, so it may be wrong: no message landed after it was judged.
    sane = f"SELECT * REPLACE (CASE WHEN landed_at BETWEEN {_TIMES} THEN landed_at END AS landed_at) FROM"
    session.fetch(
        f"CREATE OR REPLACE TABLE {LEDGER} AS SELECT *, least(landed_at, {INGESTED_AT}) AS arrived, "
        "coalesce(list_sum(map_values(dead_letters)), 0)::BIGINT AS letters "
        f"FROM ({sane} (SELECT {selected} FROM {ledger}))"
    )
    rows = f"SELECT source, micro_batch_id, {', '.join(_VERDICTS)}, {DECIDED_AT} AS decided_at FROM {silver}"
    nothing = "SELECT '' AS source, 0::BIGINT AS micro_batch_id, 0 AS kept, 0 AS duplicates, 0 AS conflicts, "
    session.fetch(
        f"CREATE OR REPLACE TABLE {SILVER} AS SELECT verdicts.*, coalesce(landed.arrived, decided_at) AS arrived, "
        "kept + duplicates + conflicts + late AS decided FROM "
        f"({rows if silver else nothing + '0 AS late, NULL::TIMESTAMPTZ AS decided_at WHERE false'}) AS verdicts "
        f"LEFT JOIN (SELECT source, micro_batch_id, min(arrived) AS arrived FROM {LEDGER} GROUP BY ALL) AS landed "
        "USING (source, micro_batch_id)"
    )


def summed(session: Session) -> Ledger:
    """Return the totals of the ledgers."""

    def total(value: str, where: str = "true") -> str:
        return f"coalesce(sum({value}) FILTER ({where}), 0)::BIGINT"

    new, again = f"{REPLAY} IS NULL", f"{REPLAY} IS NOT NULL"
    values = {
        "landed": total("units", new),
        "bronze": total("bronze"),
        "letters": total("letters"),
        "closed": total("list_sum(map_values(closed))"),
        "replayed": total("bronze", again),
        "left": total("letters", again),
        "sources": f"count(*) FILTER ({new})",
        "bytes": total("size", new),
        "newest": "max(micro_batch_id)",
        "first_landed": "min(landed_at)",
        "last_landed": "max(landed_at)",
        "last_judged": f"max({INGESTED_AT})",
    }
    (row,) = session.fetch(f"SELECT {', '.join(values.values())} FROM {LEDGER}")
    (verdicts,) = session.fetch(f"SELECT {', '.join(map(total, _VERDICTS))} FROM {SILVER}")
    return replace(Ledger(**dict(zip(values, row, strict=True))), **dict(zip(_VERDICTS, verdicts, strict=True)))


def without_erased(session: Session, total: Ledger, removals: str, names: StreamTables) -> Ledger:
    """Return the totals minus the erased rows in the account of removals."""
    of_table = 'coalesce(sum(rows) FILTER ("table" = ?), 0)::BIGINT'
    ((bronze, letters, closed),) = session.fetch(
        f"SELECT {of_table}, {of_table}, count(*) FILTER ({_CLOSED}) FROM {removals} WHERE what = '{Removal.ERASED}'",
        [names.bronze, names.dead_letters],
    )
    return replace(
        total,
        bronze=total.bronze - bronze,
        letters=total.letters - letters,
        closed=total.closed - closed,
        erased=bronze + letters,
        is_erasing=bool(unfinished(session, removals)),
    )


def _recent() -> str:
    """Return SQL that is true for rows that landed in the two weeks up to the newest row."""
    return f"arrived >= (SELECT max(arrived) FROM {LEDGER}) - {_TREND}"


def hours(session: Session) -> Sequence[Hour]:
    """Return the landed units by hour, oldest first."""
    sums = ", ".join(f"coalesce(sum({name})::BIGINT, 0)" for name in ("units", "letters", *_VERDICTS[1:]))
    rows = session.fetch(
        f"SELECT date_trunc('hour', arrived) AS hour, {sums} FROM {LEDGER} LEFT JOIN {SILVER} "
        f"USING (source, micro_batch_id, arrived) WHERE {REPLAY} IS NULL AND {_recent()} GROUP BY ALL ORDER BY hour"
    )
    return [Hour(*row) for row in rows]


def reasons(session: Session, removals: str | None) -> Mapping[str, int]:
    """Return the number of open dead letters by set of reasons, largest first."""
    erased = (
        f" UNION ALL SELECT codes, -rows FROM {removals} WHERE codes IS NOT NULL "
        f"UNION ALL SELECT facts ->> '{LETTER_REASONS}', 1 FROM {removals} WHERE {_CLOSED}"
    )
    each = f"SELECT arrived, unnest(map_entries(dead_letters)) AS entry FROM {LEDGER}"
    closed = f"SELECT unnest(map_entries(closed)) AS entry FROM {LEDGER}"
    return dict(
        session.fetch(
            "SELECT codes, sum(letters)::BIGINT AS open FROM (SELECT entry.key AS codes, entry.value AS letters "
            f"FROM ({each}) UNION ALL SELECT entry.key, -entry.value FROM ({closed}){erased if removals else ''}) "
            "GROUP BY ALL HAVING open > 0 ORDER BY open DESC, codes"
        )
    )


def trends(session: Session, shown: Sequence[str]) -> Mapping[str, Sequence[tuple[datetime, int]]]:
    """Return the number of dead letters by hour of landing, for the given sets of reasons."""
    found: dict[str, list[tuple[datetime, int]]] = {codes: [] for codes in shown}
    for codes, hour, letters in session.fetch(
        "SELECT entry.key AS codes, date_trunc('hour', arrived) AS hour, sum(entry.value)::BIGINT "
        f"FROM (SELECT arrived, unnest(map_entries(dead_letters)) AS entry FROM {LEDGER} WHERE {_recent()}) "
        "WHERE codes IN (SELECT unnest(?::VARCHAR[])) GROUP BY ALL ORDER BY codes, hour",
        [list(shown)],
    ):
        found[codes].append((hour, letters))
    return found


def newest_place(session: Session, codes: Sequence[str]) -> Mapping[str, tuple[int, str]]:
    """Return, by set of reasons, the newest micro-batch with such dead letters, and a source in it."""
    rows = session.fetch(
        f"SELECT entry.key, arg_max((micro_batch_id, source), micro_batch_id) FROM (SELECT source, micro_batch_id, "
        f"unnest(map_entries(dead_letters)) AS entry FROM {LEDGER}) WHERE entry.key IN (SELECT unnest(?::VARCHAR[])) "
        "AND entry.value > 0 GROUP BY ALL",
        [list(codes)],
    )
    return dict(rows)


def drifted(session: Session) -> Sequence[tuple[str, str, int]]:
    """Return the number of rescued and discarded values, by set of reasons."""
    each = " UNION ALL ".join(
        f"SELECT '{name}' AS policy, unnest(map_entries({name})) AS entry FROM {LEDGER}"
        for name in ("rescued", "discarded")
    )
    return session.fetch(
        f"SELECT policy, entry.key, sum(entry.value)::BIGINT FROM ({each}) GROUP BY ALL ORDER BY 3 DESC, 2"
    )


def storm(session: Session, rows: str, part: str, whole: str, share: Decimal, least: int) -> Storm | None:
    """Return the latest hours in which `part` is at least `share` of `whole`; None if they have too few rows."""
    run: list[tuple[datetime, int, int]] = []
    for hour, some, total in session.fetch(
        f"SELECT date_trunc('hour', arrived) AS hour, sum({part})::BIGINT, sum({whole})::BIGINT AS total FROM {rows} "
        f"WHERE arrived IS NOT NULL GROUP BY ALL HAVING total > 0 ORDER BY hour DESC LIMIT {_HOURS}"
    ):
        if not some or some < share * total:
            break
        run.append((hour, some, total))
    parts, wholes = sum(each[1] for each in run), sum(each[2] for each in run)
    if not parts or wholes < least:
        return None
    ((since, source),) = session.fetch(
        f"SELECT min(arrived), arg_min(source, arrived) FROM {rows} "
        f"WHERE arrived >= ? AND {part} > 0 AND {part} >= {share} * {whole}",
        [run[-1][0]],
    )
    return Storm(parts, wholes, since or run[-1][0], source)


def micro_batches(session: Session, committed: Mapping[int, datetime]) -> Sequence[MicroBatchRow]:
    """Return the newest micro-batches; `committed` has the times of their commits to bronze."""
    rows = session.fetch(
        f"SELECT micro_batch_id, count(*), sum(size)::BIGINT, sum(units)::BIGINT, sum(bronze)::BIGINT, "
        f"sum(letters)::BIGINT, any_value(kept), min(landed_at), max({INGESTED_AT}), any_value(decided_at), "
        f"bool_or({REPLAY} IS NOT NULL) FROM {LEDGER} LEFT JOIN (SELECT micro_batch_id, sum(kept)::BIGINT AS kept, "
        f"max(decided_at) AS decided_at FROM {SILVER} GROUP BY ALL) USING (micro_batch_id) "
        f"GROUP BY ALL ORDER BY micro_batch_id DESC LIMIT {_MICRO_BATCHES}"
    )
    return [MicroBatchRow(*(*row[:9], committed.get(row[0]), *row[9:])) for row in rows]


def flow_sql(
    names: StreamTables, silver: SilverTables, has_replays: bool, expired: Mapping[str, int]
) -> Mapping[str, tuple[str, str, str]]:
    """Return label, SQL of the rows, and aggregate of each number of the flow.

    `expired` has the number of rows that retention has removed, by table; these are counted in attempts and ledger.
    """
    landed = f" WHERE {REPLAY} IS NULL" if has_replays else ""
    stream = names.bronze.partition(".")[2]
    letters = f"SELECT * FROM dead_letters_text.{stream}"
    decided = f"_micro_batch_id IN (SELECT micro_batch_id FROM {silver.ledger})"
    verdicts = " UNION ALL ".join(
        f"SELECT _source, _position FROM {each}" for each in (silver.kept, silver.conflicts, silver.late)
    )
    closed = f"{letters} WHERE state = 'closed'"
    if expired.get(names.dead_letters):
        closed = f"SELECT * FROM {names.attempts} WHERE {OUTCOME} = '{ReplayOutcome.CLOSED}'"
    booked = f"SELECT * FROM {silver.ledger}"
    of_verdicts = {
        name: (name, booked, f"sum({name})") if expired.get(table) else (name, f"SELECT * FROM {table}", "count(*)")
        for name, table in (("conflicts", silver.conflicts), ("late", silver.late))
    }
    duplicates = f"SELECT * FROM {names.bronze} ANTI JOIN ({verdicts}) USING (_source, _position) WHERE {decided}"
    has_all = not (expired.get(silver.conflicts) or expired.get(silver.late))
    return {
        "landed": ("landed units", f"SELECT * FROM {names.ledger}{landed}", "sum(units)"),
        "bronze": ("rows in bronze", f"SELECT * FROM {names.bronze}", "count(*)"),
        "open": ("open dead letters", f"{letters} WHERE state <> 'closed'", "count(*)"),
        "closed": ("dead letters that a replay closed", closed, "count(*)"),
        "erased": (
            "erased",
            f"SELECT * FROM {names.removals} WHERE what = '{Removal.ERASED}' "
            f"AND \"table\" IN ('{names.bronze}', '{names.dead_letters}')",
            "sum(rows)",
        ),
        "kept": ("kept", f"SELECT * FROM {silver.kept}", "count(*)"),
        "duplicates": ("duplicates", duplicates, "count(*)") if has_all else ("duplicates", booked, "sum(duplicates)"),
        **of_verdicts,
        "expired": (
            "files that left the landing zone",
            f"SELECT * FROM {names.ledger}{landed or ' WHERE true'} AND "
            f"source NOT IN (SELECT _source FROM landing.{stream})",
            "count(*)",
        ),
        "undecided": ("not decided yet", f"SELECT * FROM {names.bronze} WHERE NOT {decided}", "count(*)"),
    }
