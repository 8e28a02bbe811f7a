"""Removals: what erasures have removed, and whether it is gone."""

from reader.verify.check import Check, Findings, Result, Scope, Section

STILL_THERE = "rows that were removed, by the account"


def check(scope: Scope) -> tuple[Result, ...]:
    """Look whether what the account of removals has is gone; no result for a stream without one."""
    removals, found = scope.book.removals, Findings()
    if not removals.exists:
        return ()
    for table, rows, first in removals.still_there():
        found.add(table, STILL_THERE, rows, first)
    problems = tuple(
        f"The erasure {request} is unfinished. Run `consumer erase {scope.stream}` with the same condition again."
        for request in removals.unfinished
    )
    totals = [{"table": table, "rows": rows} for table, rows in removals.totals()]
    return (Result({"removed": totals, "unfinished": removals.unfinished}, found.whole(), problems),)


def _rows(result: Result) -> list[tuple[str | int, ...]]:
    return [(each["table"], each["rows"]) for each in result.facts["removed"]]


SECTION = Section(
    key="removals",
    title="Erased rows",
    columns=("table", "rows"),
    rows=_rows,
    faults="rows that should be gone",
    wrong="an erasure is unfinished, or what it removed is there again",
    right="What was removed is accounted for.",
)
CHECK = Check("removals", SECTION, check)
