"""Silver: recompute the verdict on each row of bronze, and compare it with the silver tables and their ledger.

The consumer appends a silver micro-batch to conflicts, late and ledger before it appends to the table of the stream.
So the marker of that table, read first, says up to which micro-batch all four tables are complete. Rows beyond it are
in progress, up to the tables' own markers, which are read last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from lakeproof.catalog import catalog_errors
from lakeproof.contracts import Contract
from lakeproof.errors import UnavailableError
from lakeproof.state.lease import QueryState, silver_lease
from lakeproof.tables.expired import Expired
from lakeproof.tables.names import MICRO_BATCH_ID, SilverTables, silver_query, silver_tables
from lakeproof.wording import are
from reader.connect import Session
from reader.verify.check import Check, Result, Scope, Section
from reader.verify.findings import SHOWN_EXAMPLES, Findings
from reader.verify.silver.claims import Verdict
from reader.verify.silver.compare import SilverComparison
from reader.verify.silver.verdicts import RecomputedVerdicts
from reader.verify.tables.layers import marker_end, missing_silver, newest_marker, query_state, silver_contract
from reader.verify.tables.reach import Reach

AHEAD = "in a micro-batch that was not decided"


def check(scope: Scope) -> tuple[Result, ...]:
    """Recompute the verdict on each row; no result if the stream has no silver, or no rows yet."""
    names = silver_tables(scope.stream)
    with catalog_errors():
        missing = missing_silver(scope.catalog, scope.stream)
        marker = {} if names.kept in missing else _marker(scope, names.kept)
        contract = silver_contract(scope.settings, scope.catalog, scope.stream, marker)
    if not contract.silver:
        return ()  # the stream has no verdicts
    if missing:
        return _without(missing, scope, contract)
    end, found = marker_end(marker), Findings()
    start, newest = _proven(scope, contract, end)
    _prove_tables(scope, contract, end, continues=start > 0)
    recomputed = RecomputedVerdicts(scope.session, contract, end, start, newest)
    result = compare_silver(scope.session, contract, recomputed, found, scope.book.removals.expired)
    scope.book.note("silver", {"contract": contract.digest, "end": end, "newest": recomputed.newest})
    ahead = _rows_ahead(scope.session, names, end)
    with catalog_errors():
        ends = {name: marker_end(_marker(scope, name)) for name in astuple(names)}
    for name, rows in ahead.items():
        surplus = {number: count for number, count in rows.items() if number >= ends[name]}
        examples = [f"micro-batch {number}: {count:,} rows" for number, count in surplus.items()]
        if surplus:
            found.add(name, AHEAD, sum(surplus.values()), examples[:SHOWN_EXAMPLES])
    behind = tuple(
        f"{name} has the micro-batches before {reached}, but {names.kept} those before {end}: they are from different "
        "points in time."
        for name, reached in ends.items()
        if reached < end
    )
    return (replace(result, findings=found.whole(), problems=behind),)


def _proven(scope: Scope, contract: Contract, end: int) -> tuple[int, int | None]:
    """Return the micro-batch before which all verdicts were proven, and the newest event time before it."""
    names, then = silver_tables(scope.stream), scope.book.noted("silver")
    if not then or then["contract"] != contract.digest or then["end"] > end:
        return 0, None
    if not all(scope.book.is_same(scope.catalog, name) for name in astuple(names)):
        return 0, None
    if not scope.book.has_same_ledger(scope.catalog, names.ledger):
        return 0, None
    return int(then["end"]), then["newest"]


def _prove_tables(scope: Scope, contract: Contract, end: int, *, continues: bool) -> None:
    names, reach = silver_tables(scope.stream), Reach(end)
    book = scope.book
    book.prove(scope.catalog, names.ledger, reach, column="micro_batch_id", continues=continues)
    for name, rows in ((names.kept, "kept"), (names.conflicts, "conflicts"), (names.late, "late")):
        booked = book.booked(scope.catalog, names.ledger, rows)
        book.prove(scope.catalog, name, reach, contract, booked=booked, continues=continues)


def compare_silver(
    session: Session,
    contract: Contract,
    recomputed: RecomputedVerdicts,
    found: Findings,
    expired: Mapping[str, Expired] | None = None,
) -> Result:
    """Compare the silver tables with recomputed verdicts, and add faults to `found`."""
    comparison = SilverComparison(session, contract, found, expired)
    try:
        for part in recomputed.slices():
            recomputed.expect(part)
            comparison.compare(part)
        undecided = recomputed.undecided()
        facts = {"verdicts": comparison.verdicts, "exists": True, "undecided": undecided}
        return Result(facts, found.whole(), waiting=undecided)
    finally:
        recomputed.close()
        comparison.close()


def _without(missing: Sequence[str], scope: Scope, contract: Contract) -> tuple[Result, ...]:
    """Return the result for missing silver tables: they were lost, or have not been filled yet."""
    stream, kept = scope.stream, silver_tables(scope.stream).kept
    undecided = RecomputedVerdicts(scope.session, contract, 0).undecided()
    state = query_state(scope.settings, silver_lease(stream))
    is_part = len(missing) < len(astuple(silver_tables(stream)))
    problem = f"{missing[0]} does not exist, but the other silver tables do."
    if not is_part:
        if not undecided:
            return ()
        problem = f"{kept} does not exist, but a consumer has run its query."
    elif state is QueryState.RUNNING:  # it is creating the tables, or swapping in rebuilt ones
        raise UnavailableError(f"The table {missing[0]} of the stream {stream} does not exist yet.", "Try again.")
    hint = f"Run `consumer rebuild silver {stream}`, to fill silver again from bronze."
    is_lost = is_part or state in (QueryState.STOPPED, QueryState.DIED)
    facts = {"verdicts": dict.fromkeys(Verdict, 0), "exists": False, "undecided": undecided}
    return (Result(facts, problems=(f"{problem} {hint}",) * is_lost, waiting=undecided, missing=kept),)


def _marker(scope: Scope, name: str) -> Mapping[str, str]:
    return newest_marker(scope.catalog.load_table(name), silver_query(scope.stream))


def _rows_ahead(session: Session, names: SilverTables, end: int) -> dict[str, dict[int, int]]:
    """Return the number of rows of each table in undecided micro-batches."""
    found = {}
    for name in astuple(names):
        number = "micro_batch_id" if name == names.ledger else MICRO_BATCH_ID
        rows = session.fetch(f"SELECT {number}, count(*) FROM {name} WHERE {number} >= {end} GROUP BY ALL ORDER BY ALL")
        found[name] = dict(rows)
    return found


def _pending(results: Sequence[Result]) -> str:
    undecided = sum(result.waiting for result in results)
    return f"{are(undecided, 'row of bronze', 'rows of bronze')} not decided in silver yet." if undecided else ""


SECTION = Section(
    key="silver",
    title="Recomputed verdicts",
    columns=(*Verdict, "not decided"),
    rows=lambda result: [(*result.facts["verdicts"].values(), result.facts["undecided"])],
    faults="silver tables with problems",
    wrong="silver is not what bronze makes it",
    right="Each row of bronze has its verdict in silver.",
    pending=_pending,
)
CHECK = Check("silver", SECTION, check)
