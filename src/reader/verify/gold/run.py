"""Verify the tables of gold that follow a stream's silver, also while the consumer runs.

A table is read as of the snapshot that its marker was read with. The marker says up to which micro-batch of silver it
has everything, so later rows of silver are left out, and the rest must agree.
"""

import json
from typing import TYPE_CHECKING

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import Contract
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Product, Publish
from lakeproof.gold.product_file import load_products, product_names
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.settings import Settings
from lakeproof.state.lease import State, gold_lease
from lakeproof.tables.names import (
    MARKER,
    MICRO_BATCH_ID,
    PRODUCT,
    REBUILDING,
    gold_query,
    gold_table,
    samples_tables,
    silver_query,
    silver_tables,
)
from reader.connect import Session
from reader.verify.gold.compare import compare_gold
from reader.verify.gold.findings import ProductVerification
from reader.verify.gold.layers import Layer, horizons, layer_of, rebuild_hint, time_text
from reader.verify.gold.samples import verify_samples
from reader.verify.gold.windows import Taken, Windows
from reader.verify.progress import query_state
from reader.verify.silver.run import silver_contract
from reader.verify.tables import Findings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def verify_gold(settings: Settings, session: Session, stream: str) -> tuple[ProductVerification, ...]:
    """Recompute the windows of each product over a stream's silver, and compare them with its table.

    Returns
    -------
    tuple[ProductVerification, ...]
        Of each product, by name; those whose table does not exist are left out while silver has no row.

    Raises
    ------
    LakeproofError
        A table, a contract or a product cannot be read.
    """
    name, query = silver_tables(stream).kept, silver_query(stream)
    with catalog_errors():
        catalog = open_catalog(settings)
        known = set(product_names(settings.gold))
        tables = _tables(catalog)
        if not (tables or known):
            return ()
        silver = layer_of(catalog, name, query)
        contract = silver_contract(settings, catalog, stream, silver.marker if silver else {})
    if not contract.silver:
        return ()  # the consumer does not look at products of such a stream, either
    found: list[ProductVerification | None] = []
    for product in load_products(settings.gold, [stream], lambda _: contract):
        with catalog_errors():
            gold = layer_of(catalog, gold_table(product.name), gold_query(product.name))
            silver = layer_of(catalog, name, query)  # after gold, which is never ahead of it
        found.append(
            _verify(session, product, contract, gold, silver)
            if gold
            else _without(settings, session, product.name, silver)
        )
    for samples in load_all_samples(settings.gold, [stream], lambda _: contract):
        names, query_of = samples_tables(samples.name, samples.anomalies), gold_query(samples.name)
        with catalog_errors():
            kept, anomalies = (layer_of(catalog, each, query_of) for each in (names.samples, names.anomalies))
            silver = layer_of(catalog, name, query)
        known.add(samples.anomalies)
        found.append(
            verify_samples(session, samples, contract, kept, anomalies, silver)
            if kept
            else _without(settings, session, samples.name, silver, has_part=anomalies is not None)
        )
    if silver:
        with catalog_errors():
            unknown = [each for each in tables if each not in known and _follows(catalog, each, silver)]
        found += [ProductVerification(each, problems=(_unknown(settings, each, name),)) for each in unknown]
    return tuple(sorted(filter(None, found), key=lambda each: each.product))


def _without(
    settings: Settings, session: Session, product: str, silver: Layer | None, *, has_part: bool = False
) -> ProductVerification | None:
    """What is said of a product without its table: it was lost, or has not been filled yet."""
    rows = 0
    if silver and silver.rows:
        ((rows,),) = session.fetch(f"SELECT count(*) FROM {silver.rows} WHERE {MICRO_BATCH_ID} < {silver.end}")  # noqa: S608
    state = query_state(settings, gold_lease(product))
    is_lost = state in (State.STOPPED, State.DIED) or (has_part and state is State.NEVER)
    if not rows and (silver or not is_lost):
        return None  # if silver does not exist either, that is reported
    text = f"{gold_table(product)} does not exist, but a consumer has run its query. {rebuild_hint(product)}"
    return ProductVerification(product, behind=rows, problems=(text,) * is_lost, exists=False)


def _verify(
    session: Session, product: Product, contract: Contract, gold: Layer, silver: Layer | None
) -> ProductVerification:
    problem = _problem(product, gold, silver)
    if not problem and not gold.marker and gold.rows and session.fetch(f"SELECT 1 FROM {gold.rows} LIMIT 1"):  # noqa: S608
        problem = f"{gold.name} has rows, but its marker was removed. {rebuild_hint(product.name)}"
    if problem:
        return ProductVerification(product.name, problems=(problem,))
    if not silver or not silver.rows:
        return ProductVerification(product.name)
    behind = Windows(session, product, contract, Taken(silver.rows, silver.end))
    if product.publish is Publish.UPDATES:
        windows, found = 0, Findings()
        if gold.rows:
            taken = Taken(silver.rows, gold.end)
            windows = compare_gold(session, product, contract, gold.rows, taken, gold.name, found)
        return ProductVerification(product.name, windows, behind.rows_since(gold.end), found.whole())
    return _verify_final(session, product, contract, gold, silver, behind)


def _verify_final(
    session: Session, product: Product, contract: Contract, gold: Layer, silver: Layer, behind: Windows
) -> ProductVerification:
    """Verify a product whose windows are published once: those that the horizon has passed."""
    then, now = horizons(session, contract, (gold.end, silver.end))
    said = int(gold.marker["contents"]) if gold.marker else None
    windows, found = 0, Findings()
    problems: tuple[str, ...] = ()
    if said != then and gold.marker:
        problems = (
            f"{gold.name} has the windows that end by {time_text(session, said)}, according to its marker, but the "
            f"horizon was {time_text(session, then)}. {rebuild_hint(product.name)}",
        )
    if gold.rows and then is not None:
        taken = Taken(silver.rows or "", gold.end, then)
        windows = compare_gold(session, product, contract, gold.rows, taken, gold.name, found)
    waiting = 0 if now is None else behind.rows_that_close(now, said)
    return ProductVerification(product.name, windows, waiting, found.whole(), problems)


def _problem(product: Product, gold: Layer, silver: Layer | None) -> str | None:
    """Why the rows of a table cannot be compared."""
    digests = {gold.properties.get(PRODUCT), gold.marker.get("contract")} - {None}
    if digests - {product.digest}:
        return (
            f"{gold.name} was filled with other keys, windows or measures than {product.name}.yaml has. Restore the "
            f"file. Or: {rebuild_hint(product.name)}"
        )
    columns = [WINDOW_START, WINDOW_END, *(key.name for key in product.keys)]
    columns += [measure.name for measure in product.measures]
    lacking = [name for name in columns if name not in gold.columns]
    if lacking:
        return f"{gold.name} has no column {lacking[0]}. {rebuild_hint(product.name)}"
    if not gold.marker:
        return None
    name = silver_tables(product.stream).kept
    if not silver:
        return f"{gold.name} was filled from {name}, which does not exist. Restore that, or rebuild it."
    if gold.marker["checkpoint_id"] != silver.id:
        return (
            f"{gold.name} was filled from another {name}, which was replaced since then. {rebuild_hint(product.name)}"
        )
    if gold.end > silver.end:
        return (
            f"{gold.name} has the micro-batches before {gold.end}, but {name} those before {silver.end}: they are from "
            f"different points in time. {rebuild_hint(product.name)}"
        )
    return None


def _unknown(settings: Settings, product: str, silver: str) -> str:
    return (
        f"{gold_table(product)} was filled from {silver}, but {settings.gold / f'{product}.yaml'} does not exist. "
        "Restore the file, set LAKE_GOLD, or drop the table."
    )


def _tables(catalog: "Catalog") -> list[str]:
    """Names of the products that have a table; not of those that are being rebuilt."""
    namespace = gold_table("").removesuffix(".")
    if not catalog.namespace_exists(namespace):
        return []
    return sorted(name for _, name in catalog.list_tables(namespace) if REBUILDING not in name)


def _follows(catalog: "Catalog", product: str, silver: Layer) -> bool:
    """Whether the table of a product was filled from a silver table."""
    markers = [
        json.loads(text)["marker"]
        for name, text in catalog.load_table(gold_table(product)).properties.items()
        if name.startswith(MARKER)  # that of anomalies has the name of another table
    ]
    return any(marker.get("checkpoint_id") == silver.id for marker in markers)
