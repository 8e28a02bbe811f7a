"""Removals: check that the rows removed by erasures and retention are gone, and no other rows."""

from lakeproof.catalog import catalog_errors
from lakeproof.tables.names import silver_tables
from reader.verify.check import Check, Result, Scope, Section
from reader.verify.findings import Findings

STILL_THERE = "rows that were removed, by the account"
NOT_ACCOUNTED = "rows that are gone, and that no account has"


def check(scope: Scope) -> tuple[Result, ...]:
    """Check that the rows in the accounts of removals are gone; no result for a stream without accounts."""
    removals, found = scope.book.removals, Findings()
    if not removals.exists and not removals.expired:
        return ()
    for table, rows, first in removals.still_there():
        found.add(table, STILL_THERE, rows, first)
    silver = silver_tables(scope.stream)
    with catalog_errors():
        has_ledger = scope.catalog.table_exists(silver.ledger)
    ledgers = (
        {silver.conflicts: (silver.ledger, "conflicts"), silver.late: (silver.ledger, "late")} if has_ledger else {}
    )
    for table, rows in removals.unaccounted(ledgers):
        found.add(table, NOT_ACCOUNTED if rows > 0 else STILL_THERE, abs(rows), [])
    problems = tuple(
        f"The erasure {request} is unfinished. Run `consumer erase {scope.stream}` with the same condition again."
        for request in removals.unfinished
    )
    totals = [{"table": table, "rows": rows} for table, rows in removals.totals()]
    expired = [{"table": table, "rows": each.rows} for table, each in sorted(removals.expired.items())]
    facts = {"removed": totals, "expired": expired, "unfinished": removals.unfinished}
    return (Result(facts, found.whole(), problems),)


def _rows(result: Result) -> list[tuple[str | int, ...]]:
    return [
        (each["table"], each["rows"], why)
        for why, key in (("erased", "removed"), ("expired", "expired"))
        for each in result.facts[key]
    ]


SECTION = Section(
    key="removals",
    title="Removed rows",
    columns=("table", "rows", "why"),
    rows=_rows,
    faults="rows that should be gone",
    wrong="an erasure is unfinished, or other rows are gone than were removed",
    right="What was removed is accounted for.",
)
CHECK = Check("removals", SECTION, check)
