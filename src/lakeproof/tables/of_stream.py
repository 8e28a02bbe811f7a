"""The tables of a stream, and of the products over it."""

from collections.abc import Callable
from dataclasses import astuple
from functools import partial

from lakeproof.contracts import Maintenance, load_contract
from lakeproof.errors import LakeproofError
from lakeproof.gold.product_file import may_read, product_names
from lakeproof.gold.samples import Samples
from lakeproof.gold.samples_file import load_any
from lakeproof.settings import Settings
from lakeproof.tables.names import gold_table, samples_tables, silver_tables, stream_tables


def tables_of_stream(
    settings: Settings, stream: str, skipped: Callable[[str, LakeproofError], object] | None = None
) -> dict[str, Maintenance]:
    """Return the tables that a stream may have, with the maintenance options of its contract and products.

    With `skipped`, a product that cannot be read is left out; it is called with the product's table and the error.
    """
    contract_of = partial(load_contract, settings.contracts)
    contract = contract_of(stream)
    own = contract.maintenance
    found = dict.fromkeys((*astuple(stream_tables(stream)), *astuple(silver_tables(stream))), own)
    if not contract.silver:
        return found  # its products are ignored
    for name in product_names(settings.gold):
        try:
            if not may_read(settings.gold, name, [stream]):
                continue
            product = load_any(settings.gold, name, contract_of)
        except LakeproofError as error:
            if skipped is None:
                raise
            skipped(gold_table(name), error)
            continue
        if isinstance(product, Samples):
            found |= dict.fromkeys(astuple(samples_tables(name, product.anomalies)), product.maintenance)
        else:
            found[gold_table(name)] = product.maintenance
    return found
