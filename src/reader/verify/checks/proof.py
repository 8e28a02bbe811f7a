"""Proof: report the comparison of tables with the book of proofs, and how many data files were read.

It runs last: the checks of layers prove their tables against the book, each after reading its marker.
"""

from lakeproof.state.proofs import ProofKind
from reader.verify.book.book import NO_PROOF
from reader.verify.check import Check, Result, Scope, Section


def check(scope: Scope) -> tuple[Result, ...]:
    """Report the findings of the book, and how each table was proven."""
    book = scope.book
    since = book.since
    remarks = []
    if since:
        remarks.append(f"proven since proof {since.number} of {since.proven_at:%Y-%m-%d %H:%M:%S} (UTC).")
    elif book.why and book.was_asked_for_new:
        remarks.append(f"everything was proven: {book.why}.")
    elif book.why and book.why != NO_PROOF:
        remarks.append(f"compared with no earlier proof: {book.why}.")
    facts = {
        "kind": book.kind,
        "since": since.number if since else None,
        "why_all": book.why if book.was_asked_for_new and not since else None,
        "tables": [
            {"table": each.table, "files": each.files, "files_read": each.read, "how": each.how} for each in book.looked
        ],
    }
    return (Result(facts, book.found.whole(), remarks=tuple(remarks)),)


def _rows(result: Result) -> list[tuple[str | int, ...]]:
    if result.facts["kind"] == ProofKind.ALL:
        return []  # all data files were read
    return [(each["table"], each["files"], each["files_read"], each["how"]) for each in result.facts["tables"]]


SECTION = Section(
    key="proof",
    title="Data files",
    columns=("table", "data files", "read", "proven by"),
    rows=_rows,
    faults="tables with other rows than were proven",
    wrong="tables are not what was appended, or proven before",
    right="Tables have the rows that were appended.",
    has_problems=False,
)
CHECK = Check("proof", SECTION, check)
