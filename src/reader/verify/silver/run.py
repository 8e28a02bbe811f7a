"""Verify the silver tables of a stream, also while its consumer runs.

The consumer appends a silver micro-batch to conflicts, late and ledger before it appends to the table of the stream.
So the marker there, read first, says up to where all four are complete. What they have beyond it is in progress, up to
where their own markers, read last, are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import UnavailableError
from lakeproof.history.applied import applied_contracts
from lakeproof.settings import Settings
from lakeproof.state.lease import State, silver_lease
from lakeproof.tables.names import MICRO_BATCH_ID, SilverTables, silver_query, silver_tables
from reader.connect import Session
from reader.verify.progress import query_state
from reader.verify.silver.claims import Verdict
from reader.verify.silver.compare import Comparison
from reader.verify.silver.findings import AHEAD, SilverVerification
from reader.verify.silver.verdicts import Recount
from reader.verify.tables import SHOWN_EXAMPLES, Findings, marker_end, newest_marker

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def verify_silver(settings: Settings, session: Session, stream: str) -> SilverVerification | None:
    """Recompute the verdict on each row of a stream, and compare it with the silver tables.

    Returns
    -------
    SilverVerification | None
        None if the stream has no silver, or nothing of it yet.

    Raises
    ------
    LakeproofError
        A table or the contract cannot be read.
    """
    names = silver_tables(stream)
    with catalog_errors():
        catalog = open_catalog(settings)
        missing = missing_tables(catalog, stream)
        marker = {} if names.kept in missing else _marker(catalog, names.kept, stream)
        contract = silver_contract(settings, catalog, stream, marker)
    if not contract.silver:
        return None  # nothing was decided, and nothing will be
    if missing:
        return _without(missing, settings, session, contract)
    end = marker_end(marker)
    found = Findings()
    verification = compare_silver(session, contract, end, found)
    ahead = _rows_ahead(session, names, end)
    with catalog_errors():
        ends = {name: marker_end(_marker(catalog, name, stream)) for name in astuple(names)}
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
    return SilverVerification(verification.verdicts, verification.undecided, found.whole(), behind)


def compare_silver(session: Session, contract: Contract, end: int, found: Findings) -> SilverVerification:
    """Recompute the verdicts in the micro-batches before `end`, and add what is wrong to what was found."""
    recount, comparison = Recount(session, contract, end), Comparison(session, contract, found)
    try:
        for part in recount.slices():
            recount.expect(part)
            comparison.compare(part)
        return SilverVerification(comparison.verdicts, recount.undecided(), found.whole())
    finally:
        recount.close()
        comparison.close()


def missing_tables(catalog: "Catalog", stream: str) -> list[str]:
    """Names of the silver tables of a stream that do not exist."""
    return [name for name in astuple(silver_tables(stream)) if not catalog.table_exists(name)]


def _without(
    missing: Sequence[str], settings: Settings, session: Session, contract: Contract
) -> SilverVerification | None:
    """What is said of silver that lacks tables: they were lost, or have not been filled yet."""
    stream = contract.stream
    undecided = Recount(session, contract, 0).undecided()
    state = query_state(settings, silver_lease(stream))
    is_part = len(missing) < len(astuple(silver_tables(stream)))
    problem = f"{missing[0]} does not exist, but the other silver tables do."
    if not is_part:
        if not undecided:
            return None
        problem = f"{silver_tables(stream).kept} does not exist, but a consumer has run its query."
    elif state is State.RUNNING:  # it is making them, or putting rebuilt ones in their place
        raise UnavailableError(f"The table {missing[0]} of the stream {stream} does not exist yet.", "Try again.")
    hint = f"Run `consumer rebuild silver {stream}`, to fill silver again from bronze."
    is_lost = is_part or state in (State.STOPPED, State.DIED)
    verdicts = dict.fromkeys(Verdict, 0)
    return SilverVerification(verdicts, undecided, problems=(f"{problem} {hint}",) * is_lost, exists=False)


def _marker(catalog: "Catalog", name: str, stream: str) -> Mapping[str, str]:
    return newest_marker(catalog.load_table(name), silver_query(stream))


def silver_contract(settings: Settings, catalog: "Catalog", stream: str, marker: Mapping[str, str]) -> Contract:
    """The contract that silver was filled under; before its first micro-batch, the newest."""
    applied = applied_contracts(catalog, stream)
    digest = marker.get("contract", applied[-1].digest if applied else None)
    for each in applied:
        if each.digest == digest:
            # The columns are those of the newest contract: fields may have been renamed since then.
            return replace(each.contract(), fields=applied[-1].contract().fields)
    contract = load_contract(settings.contracts, stream)
    if digest not in (None, contract.digest):
        raise UnavailableError(
            f"The lake has no record of the contract {digest[:12]}… that silver.{stream} was filled under.",
            "Restore ops.schema_changes, or the file of the contract.",
        )
    return contract


def _rows_ahead(session: Session, names: SilverTables, end: int) -> dict[str, dict[int, int]]:
    """How many rows each table has of micro-batches that are not decided."""
    found = {}
    for name in astuple(names):
        number = "micro_batch_id" if name == names.ledger else MICRO_BATCH_ID
        rows = session.fetch(
            f"SELECT {number}, count(*) FROM {name} WHERE {number} >= {end} GROUP BY ALL ORDER BY ALL"  # noqa: S608
        )
        found[name] = dict(rows)
    return found
