"""The tables of a stream, and of the products over it."""

from dataclasses import astuple
from functools import partial

from lakeproof.contracts import Maintenance, load_contract
from lakeproof.gold.product_file import load_products
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.settings import Settings
from lakeproof.tables.names import gold_table, samples_tables, silver_tables, stream_tables


def tables_of_stream(settings: Settings, stream: str) -> dict[str, Maintenance]:
    """Return the tables that a stream may have, with the maintenance options of its contract and products."""
    contract_of = partial(load_contract, settings.contracts)
    contract = contract_of(stream)
    own = contract.maintenance
    found = dict.fromkeys((*astuple(stream_tables(stream)), *astuple(silver_tables(stream))), own)
    if not contract.silver:
        return found  # its products are ignored
    for product in load_products(settings.gold, [stream], contract_of):
        found[gold_table(product.name)] = product.maintenance
    for samples in load_all_samples(settings.gold, [stream], contract_of):
        found |= dict.fromkeys(astuple(samples_tables(samples.name, samples.anomalies)), samples.maintenance)
    return found
