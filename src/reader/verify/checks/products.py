"""Shared code of checks of data products: their section of the report, and reasons not to compare a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from lakeproof.catalog import catalog_errors
from lakeproof.contracts import Contract
from lakeproof.state.lease import QueryState, gold_lease
from lakeproof.tables.names import (
    MICRO_BATCH_ID,
    PRODUCT,
    gold_table,
    silver_query,
    silver_tables,
    stream_tables,
)
from lakeproof.wording import count_of
from reader.connect import Session
from reader.verify.check import Result, Scope, Section
from reader.verify.findings import Finding
from reader.verify.spans import Span
from reader.verify.tables.layers import Layer, layer_of, query_state, silver_contract


def result_of(
    product: str,
    windows: int = 0,
    behind: int = 0,
    findings: tuple[Finding, ...] = (),
    problems: tuple[str, ...] = (),
    exists: bool = True,
) -> Result:
    """Return the result for the table of a product.

    `windows` counts the recomputed windows, one for each combination of keys; `behind` counts the rows of silver that
    the table lacks: if windows are published once, only rows in windows that can be published; if the table does not
    exist, all rows.
    """
    facts = {"product": product, "exists": exists, "windows": windows, "behind": behind}
    missing = "" if exists else gold_table(product)
    return Result(facts, findings, problems, behind, missing, name=product)


def silver_now(scope: Scope) -> Layer | None:
    """Return the current state of the silver table with the kept rows; None if it does not exist."""
    with catalog_errors():
        return layer_of(scope.catalog, silver_tables(scope.stream).kept, silver_query(scope.stream))


def contract_of(scope: Scope) -> Contract | None:
    """Return the contract that silver was filled under; None without silver: then the consumer ignores products."""
    silver = silver_now(scope)
    with catalog_errors():
        contract = silver_contract(scope.settings, scope.catalog, scope.stream, silver.marker if silver else {})
    return contract if contract.silver else None


def without_table(scope: Scope, product: str, silver: Layer | None, *, has_part: bool = False) -> tuple[Result, ...]:
    """Return the result for a product without a table: the table was lost, or has not been filled yet."""
    rows = 0
    if silver and silver.rows:
        ((rows,),) = scope.session.fetch(f"SELECT count(*) FROM {silver.rows} WHERE {MICRO_BATCH_ID} < {silver.end}")
    state = query_state(scope.settings, gold_lease(product))
    is_lost = state in (QueryState.STOPPED, QueryState.DIED) or (has_part and state is QueryState.NEVER)
    if not rows and (silver or not is_lost):
        return ()  # if silver does not exist either, its check reports that
    if not silver and not scope.session.fetch(f"SELECT 1 FROM {stream_tables(scope.stream).bronze} LIMIT 1"):
        return ()  # a consumer that ended before its first micro-batch may have created neither
    text = f"{gold_table(product)} does not exist, but a consumer has run its query. {rebuild_hint(product)}"
    return (result_of(product, behind=rows, problems=(text,) * is_lost, exists=False),)


def unproven(
    scope: Scope, product: Mapping[str, Any], tables: Sequence[tuple[Layer, str]], size: int
) -> tuple[list[Span] | None, int]:
    """Return the times to compare, None for all, and the micro-batch of silver before which all rows were compared.

    `product` describes what its tables were filled from; the column given with each table has the time by which it is
    compared. Rows in data files that have not changed since the last proof were compared then. The unpublished windows
    start at most `size` before the horizon.
    """
    book, name = scope.book, product["name"]
    then: Mapping[str, Any] = (book.noted("products") or {}).get(name, {})
    book.note("products", book.reached("products", {}) | {name: dict(product)})
    spans: list[Span] = []
    is_known = bool(then) and all(then[each] == product[each] for each in ("digest", "contract", "silver"))
    for layer, column in tables:
        changed = book.changed_times(layer.table, layer.name, layer.snapshot_id, column)
        is_known = is_known and changed is not None
        spans += changed or []
    if (
        not then
        or not is_known
        or then["end"] > product["end"]
        or (then["horizon"] is None) != (product["horizon"] is None)
    ):
        return None, 0
    if then["horizon"] is not None:
        spans.append(Span(then["horizon"] - size))
    return spans, int(then["end"])


def proven_time(scope: Scope, contract: Contract) -> tuple[int, int | None]:
    """Return the micro-batch of silver before which verdicts were proven, and the newest event time before it."""
    then = scope.book.noted("silver")
    return (then["end"], then["newest"]) if then and then["contract"] == contract.digest else (0, None)


def rebuild_hint(product: str) -> str:
    """Return the hint for a product whose tables cannot be compared."""
    return f"Run `consumer rebuild gold {product}`, to fill it again from silver."


def problem_of(
    session: Session, product: str, digest: str, table: Layer, columns: Sequence[str], other: str
) -> str | None:
    """Return the reason why a table cannot be compared; `other` is the text if it was filled for another digest."""
    if {table.properties.get(PRODUCT), table.marker.get("contract")} - {None, digest}:
        return f"{table.name} {other} Or: {rebuild_hint(product)}"
    if lacking := [name for name in columns if name not in table.columns]:
        return f"{table.name} has no column {lacking[0]}. {rebuild_hint(product)}"
    if table.rows and not table.marker and session.fetch(f"SELECT 1 FROM {table.rows} LIMIT 1"):
        return f"{table.name} has rows, but its marker was removed. {rebuild_hint(product)}"
    return None


def problem_of_silver(product: str, stream: str, table: Layer, silver: Layer | None) -> str | None:
    """Return the reason why a table with a marker cannot be compared with silver; None if it can."""
    name = silver_tables(stream).kept
    if not silver:
        return f"{table.name} was filled from {name}, which does not exist. Restore that, or rebuild it."
    if table.marker["checkpoint_id"] != silver.id:
        return f"{table.name} was filled from another {name}, which was replaced since then. {rebuild_hint(product)}"
    return None


def published(table: Layer) -> int | None:
    """Return the horizon up to which a table has published its windows, according to its marker."""
    return int(table.marker["contents"]) if table.marker else None


def problem_of_horizon(session: Session, product: str, table: Layer, has: str, then: int | None) -> str | None:
    """Return the problem if a marker's horizon differs from the recomputed one; else None."""
    said = published(table)
    if said == then or not table.marker:
        return None
    return (
        f"{table.name} has {has} {_time_text(session, said)}, according to its marker, but the horizon was "
        f"{_time_text(session, then)}. {rebuild_hint(product)}"
    )


def _time_text(session: Session, at: int | None) -> str:
    """Return a time for display, formatted by DuckDB: Python's datetime does not have every year."""
    ((text,),) = session.fetch("SELECT coalesce(make_timestamptz(?::BIGINT)::VARCHAR, 'never')", [at])
    return str(text)


def _pending(results: Sequence[Result]) -> str:
    return " ".join(
        f"{gold_table(each.name)} is behind by {count_of(each.waiting, 'row')} of silver."
        for each in results
        if each.waiting and not each.missing
    )


SECTION = Section(
    key="gold",
    title="Recomputed windows",
    columns=("product", "windows", "behind by rows of silver"),
    rows=lambda result: [(result.name, result.facts["windows"], result.facts["behind"])],
    faults="tables of gold with problems",
    wrong="gold is not what silver makes it",
    right="Each window of gold agrees with silver.",
    pending=_pending,
    is_list=True,
)
