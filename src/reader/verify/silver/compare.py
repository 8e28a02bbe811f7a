"""Compare the silver tables and their ledger with the recomputed verdicts, slice by slice."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from lakeproof.catalog import quoted
from lakeproof.contracts import Contract
from lakeproof.tables.expired import Expired
from lakeproof.tables.names import (
    CONTRACT_VERSION,
    HORIZON,
    INGESTED_AT,
    KEY,
    LANDED_AT,
    MICRO_BATCH_ID,
    POSITION,
    RESCUED,
    SOURCE,
    WINNER_POSITION,
    WINNER_SOURCE,
    silver_tables,
    stream_tables,
)
from reader.connect import Session
from reader.verify.findings import SHOWN_EXAMPLES, Findings
from reader.verify.silver.claims import Verdict
from reader.verify.silver.content import comparable, entries, event_time, microseconds
from reader.verify.silver.verdicts import EXPECTED, VERDICT
from reader.verify.spans import Span
from reader.views import MEMORY

_FOUND = f"{MEMORY}.main.verify_found_verdicts"
_PLACE = (MICRO_BATCH_ID, SOURCE, POSITION)

NOT_IN_BRONZE = "not in bronze"
DIFFERS = "differs from its row in bronze"
REPEATED = "several rows of one record"
WRONG_WINNER = "wrong winner"
WRONG_HORIZON = "wrong horizon"
WRONG_COUNTS = "wrong counts"

_EACH = {
    Verdict.KEPT: "kept",
    Verdict.DUPLICATES: "a duplicate",
    Verdict.CONFLICTS: "a conflict",
    Verdict.LATE: "late",
}


def should_be(verdict: Verdict) -> str:
    """Return the kind of finding for rows in the table of another verdict."""
    return f"should be {_EACH[verdict]}"


def missing(verdict: Verdict) -> str:
    """Return the kind of finding for rows that are in no table."""
    return f"missing: should be {_EACH[verdict]}"


def place(source: str | None, position: int | None, text: str = "") -> str:
    """Return the place of a row of bronze, with a text about it."""
    where = f"{source}, position {position}" if source is not None else "no source"
    return f"{where}: {text}" if text else where


@dataclass(frozen=True)
class _Row:
    """A row of a silver table, and its expected values."""

    source: str | None
    position: int | None
    event_time: str | None
    horizon: str | None
    winner_source: str | None
    winner_position: int | None
    found_horizon: str | None
    found_source: str | None
    found_position: int | None
    columns: list[str] | None


class SilverComparison:
    """Compares the silver tables of one stream, and adds faults to the findings."""

    def __init__(
        self, session: Session, contract: Contract, found: Findings, expired: Mapping[str, Expired] | None = None
    ) -> None:
        self._session = session
        self._expired = expired or {}
        self._contract = contract
        self._found = found
        self._tables = tables_of_verdicts(contract.stream)
        self._ledger = silver_tables(contract.stream).ledger
        self.verdicts = Counter(dict.fromkeys(Verdict, 0))
        every = (stream_tables(contract.stream).bronze, *self._tables.values())
        # Each message is a source; the ledger has a row for each partition.
        of_topic = KEY in self._session.columns(every[0])
        self._source = f"regexp_replace({SOURCE}, '/[0-9]+$', '')" if of_topic else SOURCE
        self._has_rescued = all(RESCUED in self._session.columns(name) for name in every)

    def compare(self, part: Span) -> None:
        """Compare a slice, whose verdicts are in :data:`reader.verify.silver.verdicts.EXPECTED`."""
        for verdict, rows in self._session.fetch(f"SELECT {VERDICT}, count(*) FROM {EXPECTED} GROUP BY ALL"):
            self.verdicts[Verdict(verdict)] += rows
        self._gather(part)
        self._report("verdict IS NULL", NOT_IN_BRONZE)
        for verdict in Verdict:
            self._report(f"verdict = '{verdict}' AND found <> '{verdict}'", should_be(verdict), _why(verdict))
        self._report("columns IS NOT NULL", DIFFERS, lambda row: ", ".join(row.columns or ()))
        self._report(
            f"found = verdict AND found = '{Verdict.CONFLICTS}' "
            "AND (found_source = winner_source AND found_position = winner_position) IS NOT TRUE",
            WRONG_WINNER,
            lambda row: f"points to {place(row.found_source, row.found_position)}, expected {_winner(row)}",
        )
        self._report(
            f"found = verdict AND found = '{Verdict.LATE}' AND found_horizon IS DISTINCT FROM horizon",
            WRONG_HORIZON,
            lambda row: f"has {row.found_horizon or 'none'}, expected {row.horizon}",
        )
        self._find_repeated()
        self._find_missing()
        self._compare_ledger(part)

    def close(self) -> None:
        """Free the memory."""
        self._session.fetch(f"DROP TABLE IF EXISTS {_FOUND}")

    def _gather(self, part: Span) -> None:
        """Put the rows of the three tables into one table, with the expected values of each row."""
        differences = self._differences()
        columns = ", ".join(f"CASE WHEN {differs} THEN {quoted(name)} END" for name, differs in differences.items())
        same_place = " AND ".join(f"_silver.{column} = _expected.{column}" for column in _PLACE)
        selects = []
        for verdict, table in self._tables.items():
            is_conflict, is_late = verdict is Verdict.CONFLICTS, verdict is Verdict.LATE
            selects.append(
                f"SELECT '{verdict}' AS found, _expected.{VERDICT} AS verdict, "
                f"_silver.{MICRO_BATCH_ID} AS micro_batch, _silver.{SOURCE} AS source, _silver.{POSITION} AS position, "
                f"{event_time(self._contract, '_silver')} AS event_time, _expected.{HORIZON} AS horizon, "
                f"_expected.{WINNER_SOURCE} AS winner_source, _expected.{WINNER_POSITION} AS winner_position, "
                f"{microseconds(f'_silver.{HORIZON}') if is_late else 'NULL::BIGINT'} AS found_horizon, "
                f"{f'_silver.{WINNER_SOURCE}' if is_conflict else 'NULL::VARCHAR'} AS found_source, "
                f"{f'_silver.{WINNER_POSITION}' if is_conflict else 'NULL::BIGINT'} AS found_position, "
                f"CASE WHEN _expected.{VERDICT} IS NOT NULL AND ({' OR '.join(differences.values())}) "
                f"THEN list_filter([{columns}], LAMBDA name: name IS NOT NULL) END AS columns "
                f"FROM {table} AS _silver LEFT JOIN {EXPECTED} AS _expected ON {same_place} "
                f"WHERE {part.holds_row(f'_silver.{MICRO_BATCH_ID}')}"
            )
        self._session.fetch(f"CREATE OR REPLACE TABLE {_FOUND} AS {' UNION ALL '.join(selects)}")

    def _differences(self) -> dict[str, str]:
        """Return, by column name, SQL that is true if silver and bronze have different values."""
        silver, bronze = (comparable(self._contract, table) for table in ("_silver", "_expected"))
        for name in (LANDED_AT, INGESTED_AT, CONTRACT_VERSION):
            silver[name], bronze[name] = f"_silver.{name}", f"_expected.{name}"
        if self._has_rescued:
            silver[RESCUED], bronze[RESCUED] = entries(f"_silver.{RESCUED}"), entries(f"_expected.{RESCUED}")
        return {name: f"{silver[name]} IS DISTINCT FROM {bronze[name]}" for name in silver}

    def _report(self, condition: str, what: str, text: Callable[[_Row], str] = lambda _: "") -> None:
        """Add the rows that meet a condition to the findings."""
        times = {name: _time(name) for name in ("event_time", "horizon", "found_horizon")}
        row = ", ".join(f"'{field.name}': {times.get(field.name, field.name)}" for field in fields(_Row))
        for found, rows, first in self._session.fetch(
            f"SELECT found, count(*), min({{{row}}}, {SHOWN_EXAMPLES}) FROM {_FOUND} "
            f"WHERE {condition} GROUP BY found ORDER BY found"
        ):
            examples = [place(each.source, each.position, text(each)) for each in (_Row(**each) for each in first)]
            self._found.add(self._tables[Verdict(found)], what, rows, examples)

    def _find_repeated(self) -> None:
        """Find records with several rows in a table."""
        for found, records, first in self._session.fetch(
            f"SELECT found, count(*), {_first('times')} FROM (SELECT found, source, position, count(*) AS times "
            f"FROM {_FOUND} GROUP BY ALL HAVING count(*) > 1) GROUP BY found"
        ):
            examples = [place(each["source"], each["position"], f"{each['value']:,} rows") for each in first]
            self._found.add(self._tables[Verdict(found)], REPEATED, records, examples)

    def _find_missing(self) -> None:
        """Find rows of bronze that are in no table, but are neither duplicates nor expired."""
        gone = " OR ".join(
            f"(_expected.{VERDICT} = '{verdict}' AND _expected.{MICRO_BATCH_ID} < {self._expired[table].before})"
            for verdict, table in self._tables.items()
            if table in self._expired
        )
        same_place = " AND ".join(
            f"_found.{name} = _expected.{column}"
            for name, column in zip(("micro_batch", "source", "position"), _PLACE, strict=True)
        )
        for verdict, rows, first in self._session.fetch(
            f"SELECT verdict, count(*), {_first('NULL')} FROM (SELECT {VERDICT} AS verdict, {SOURCE} AS source, "
            f"{POSITION} AS position FROM {EXPECTED} AS _expected ANTI JOIN {_FOUND} AS _found ON {same_place} "
            f"WHERE NOT ({gone or 'false'})) "
            f"WHERE verdict <> '{Verdict.DUPLICATES}' GROUP BY verdict"
        ):
            examples = [place(each["source"], each["position"]) for each in first]
            self._found.add(self._tables[Verdict(verdict)], missing(Verdict(verdict)), rows, examples)

    def _compare_ledger(self, part: Span) -> None:
        """Compare the ledger's counts of each source and micro-batch."""
        counts = ("bronze", *Verdict)
        recounted = ", ".join(f"count(*) FILTER ({VERDICT} = '{verdict}') AS {verdict}" for verdict in Verdict)
        booked = ", ".join(f"coalesce(sum({name}), 0)::BIGINT AS {name}" for name in counts)
        both = ", ".join(f"coalesce(_{side}.{name}, 0)" for name in counts for side in ("booked", "recounted"))
        rows, first = self._session.fetch_first(
            f"WITH _recounted AS (SELECT {MICRO_BATCH_ID} AS micro_batch, {self._source} AS source, "
            f"count(*) AS bronze, {recounted} FROM {EXPECTED} GROUP BY ALL), "
            "_booked AS (SELECT micro_batch_id AS micro_batch, source, "
            f"count(*) AS times, {booked} FROM {self._ledger} WHERE {part.holds_row('micro_batch_id')} GROUP BY ALL) "
            "SELECT coalesce(_recounted.source, _booked.source) AS source, "
            "coalesce(_recounted.micro_batch, _booked.micro_batch) AS micro_batch, coalesce(_booked.times, 0), "
            f"_recounted.source IS NOT NULL, [{both}] FROM _recounted FULL JOIN _booked "
            "ON _recounted.micro_batch = _booked.micro_batch AND _recounted.source = _booked.source "
            "WHERE coalesce(_booked.times, 0) <> 1 OR _recounted.source IS NULL OR "
            f"{' OR '.join(f'_booked.{name} <> _recounted.{name}' for name in counts)}",
            "source, micro_batch",
            SHOWN_EXAMPLES,
        )
        examples = []
        for source, micro_batch, times, is_known, values in first:
            differ = [
                f"{name}: ledger {here:,}, recounted {there:,}"
                for name, here, there in zip(counts, values[::2], values[1::2], strict=True)
                if here != there
            ]
            text = f"{times:,} rows" if times > 1 else "no row" if not times else "; ".join(differ)
            text = text if is_known else "bronze has no rows of it"
            examples.append(f"{source}, micro-batch {micro_batch}: {text}")
        if rows:
            self._found.add(self._ledger, WRONG_COUNTS, rows, examples)


def tables_of_verdicts(stream: str) -> dict[Verdict, str]:
    """Return the names of the tables with rows of bronze, by verdict."""
    names = silver_tables(stream)
    return {Verdict.KEPT: names.kept, Verdict.CONFLICTS: names.conflicts, Verdict.LATE: names.late}


def _time(microseconds: str) -> str:
    return f"make_timestamptz({microseconds})::VARCHAR"


def _first(value: str) -> str:
    """Return SQL of the first places of a group, each with a value."""
    row = f"{{'source': source, 'position': position, 'value': {value}}}"
    return f"min({row}, {SHOWN_EXAMPLES})"


def _why(verdict: Verdict) -> Callable[[_Row], str]:
    """Return a function that explains why a row has a verdict."""
    match verdict:
        case Verdict.DUPLICATES:
            return lambda row: f"same key and content as {_winner(row)}"
        case Verdict.CONFLICTS:
            return lambda row: f"same key as {_winner(row)}, other content"
        case Verdict.LATE:
            return lambda row: f"event time {row.event_time}, horizon {row.horizon}"
        case Verdict.KEPT:
            return lambda row: f"event time {row.event_time or 'none'}, horizon {row.horizon or 'none'}"


def _winner(row: _Row) -> str:
    return place(row.winner_source, row.winner_position)
