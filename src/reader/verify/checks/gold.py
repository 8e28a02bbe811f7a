"""Gold: recompute the windows and sessions of data products from silver, and compare them with their tables.

A table is read as of the snapshot with which its marker was read. The marker says up to which micro-batch of silver the
table is complete, so later rows of silver are ignored, and the others must agree.
"""

import json
from typing import TYPE_CHECKING

from lakeproof.catalog import catalog_errors
from lakeproof.contracts import Contract
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Product, Publish
from lakeproof.gold.product_file import load_products, product_names
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.settings import Settings
from lakeproof.tables.evolution import unsuitable
from lakeproof.tables.names import MARKER, REBUILDING, gold_query, gold_table
from lakeproof.tables.schemas import gold_schema
from reader.connect import Session
from reader.verify.check import Check, Result, Scope
from reader.verify.checks import products
from reader.verify.checks.products import rebuild_hint, result_of
from reader.verify.findings import Findings
from reader.verify.gold.compare import compare_gold
from reader.verify.gold.windows import Taken, Windows
from reader.verify.silver.content import micros
from reader.verify.spans import Span, merged
from reader.verify.tables.layers import Layer, horizons, layer_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def check(scope: Scope) -> tuple[Result, ...]:
    """Compare the table of each product; no result for a missing table while silver has no rows."""
    folder = scope.settings.gold
    with catalog_errors():
        declared, tables = set(product_names(folder)), _tables(scope.catalog)
    contract = products.contract_of(scope) if tables or declared else None
    if not contract:
        return ()
    found: list[Result] = []
    for product in load_products(folder, [scope.stream], lambda _: contract):
        with catalog_errors():
            gold = layer_of(scope.catalog, gold_table(product.name), gold_query(product.name))
        silver = products.silver_now(scope)  # after gold, which is never ahead of it
        if gold:
            found.append(_verify(scope, product, contract, gold, silver))
        else:
            found += products.without_table(scope, product.name, silver)
    declared |= {each.anomalies for each in load_all_samples(folder, [scope.stream], lambda _: contract)}
    if silver := products.silver_now(scope):
        with catalog_errors():
            unknown = [each for each in tables if each not in declared and _follows(scope.catalog, each, silver)]
        found += [result_of(each, problems=(_unknown(scope.settings, each, silver.name),)) for each in unknown]
    return tuple(found)


def _verify(scope: Scope, product: Product, contract: Contract, gold: Layer, silver: Layer | None) -> Result:
    session = scope.session
    if problem := _problem(session, product, gold, silver):
        return result_of(product.name, problems=(problem,))
    if not silver or not silver.rows:
        return result_of(product.name)
    behind = Windows(session, product, contract, Taken(silver.rows, silver.end))
    is_final = product.publish is not Publish.UPDATES
    proven = products.proven_time(scope, contract)
    then, now = horizons(session, contract, (gold.end, silver.end), proven) if is_final else (None, None)
    windows, found = 0, Findings()
    if gold.rows and (then is not None or not is_final):
        taken = Taken(silver.rows, gold.end, then)
        within = _unproven(scope, product, contract, gold, silver, taken)
        windows = compare_gold(session, product, contract, gold.rows, taken, gold.name, found, within)
    if not is_final:
        return result_of(product.name, windows, behind.rows_since(gold.end), found.whole())
    problem = products.problem_of_horizon(session, product.name, gold, "the windows that end by", then)
    waiting = 0 if now is None else behind.rows_that_close(now, products.published(gold))
    return result_of(product.name, windows, waiting, found.whole(), (problem,) if problem else ())


def _unproven(
    scope: Scope, product: Product, contract: Contract, gold: Layer, silver: Layer, taken: Taken
) -> list[Span] | None:
    """Return the windows to compare, as spans of their starts; None for all."""
    is_final = product.publish is not Publish.UPDATES
    filled = {
        "name": product.name,
        "digest": product.digest,
        "contract": contract.digest,
        "silver": silver.id,
        "end": gold.end,
        "horizon": products.published(gold) if is_final else None,
    }
    spans, since = products.unproven(scope, filled, [(gold, WINDOW_START)], micros(product.window.size))
    if spans is None:
        return None
    if product.window.session:
        # A session may have any length: the comparison can be skipped only if nothing has changed.
        has_news = spans or Windows(scope.session, product, contract, taken).rows_since(since)
        return None if has_news else []
    return merged([*spans, *Windows(scope.session, product, contract, taken).spans_since(since)])


def _problem(session: Session, product: Product, gold: Layer, silver: Layer | None) -> str | None:
    """Return the reason why the rows of a table cannot be compared; None if they can."""
    other = f"was filled with other keys, windows or measures than {product.name}.yaml has. Restore the file."
    columns = [WINDOW_START, WINDOW_END, *(key.name for key in product.keys)]
    columns += [measure.name for measure in product.measures]
    problem = products.problem_of(session, product.name, product.digest, gold, columns, other)
    if not problem and unsuitable(gold.table.schema(), gold_schema(product)):
        problem = f"{gold.name} {other} Or: {rebuild_hint(product.name)}"
    if problem or not gold.marker:
        return problem
    problem = products.problem_of_silver(product.name, product.stream, gold, silver)
    if not problem and silver and gold.end > silver.end:
        return (
            f"{gold.name} has the micro-batches before {gold.end}, but {silver.name} those before {silver.end}: they "
            f"are from different points in time. {rebuild_hint(product.name)}"
        )
    return problem


def _unknown(settings: Settings, product: str, silver: str) -> str:
    return (
        f"{gold_table(product)} was filled from {silver}, but {settings.gold / f'{product}.yaml'} does not exist. "
        "Restore the file, set LAKE_GOLD, or drop the table."
    )


def _tables(catalog: "Catalog") -> list[str]:
    """Return the names of products with a table, without tables that are being rebuilt."""
    namespace = gold_table("").removesuffix(".")
    if not catalog.namespace_exists(namespace):
        return []
    return sorted(name for _, name in catalog.list_tables(namespace) if REBUILDING not in name)


def _follows(catalog: "Catalog", product: str, silver: Layer) -> bool:
    """Return whether the table of a product was filled from a silver table."""
    markers = [
        json.loads(text)["marker"]
        for name, text in catalog.load_table(gold_table(product)).properties.items()
        if name.startswith(MARKER)  # the marker in a table of anomalies has the name of another table
    ]
    return any(marker.get("checkpoint_id") == silver.id for marker in markers)


CHECK = Check("gold", products.SECTION, check)
