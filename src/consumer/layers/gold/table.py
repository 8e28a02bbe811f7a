"""The table of a data product."""

from functools import lru_cache

from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, make_table, open_table
from consumer.iceberg.marker import MarkerLostError
from consumer.layers.upstream import contract_of_silver
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import WINDOW_START, Product
from lakeproof.gold.product_file import read_under
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.columns import lacking
from lakeproof.tables.names import PRODUCT, gold_query, silver_tables
from lakeproof.tables.schemas import GOLD_PROPERTIES, gold_schema

_COMMENT = "comment"
_read_under = lru_cache(maxsize=64)(read_under)  # each look of each query asks for the same one


def ensure_gold_table(spark: SparkSession, product: Product, name: str) -> None:
    """Create the table of a product if it is missing; widen its columns if those of the stream were widened."""
    schema = gold_schema(product)
    properties = GOLD_PROPERTIES | {PRODUCT: product.digest, _COMMENT: product.description}
    if make_table(spark, name, schema, WINDOW_START, properties):
        return
    table = open_table(spark, name, gold_query(product.name))
    _check_product(table, product)
    if lacking(table.schema(), schema):
        table.widen(schema)
    if table.property(_COMMENT) != product.description:
        table.set_property(_COMMENT, product.description)


def read_as_silver_has_it(product: Product, contracts: ContractLog) -> Product:
    """Read a product under the current contract, which every row that silver has decided by now fits.

    One may have been applied since the consumer was started.
    """
    digest = contracts.current(product.stream)
    if digest is None:
        return product
    return _read_under(product, contract_of_silver(contracts, digest, silver_tables(product.stream).kept))


def rebuild_gold_hint(name: str) -> str:
    """What to do where the rows of a product cannot be corrected."""
    return f"Run `consumer rebuild gold {name}`, to fill it again from silver."


def filled_for(table: OpenTable) -> str | None:
    """Digest of the product that a table was filled for. Its marker says so, too, if somebody removed the property."""
    if found := table.property(PRODUCT):
        return found
    newest = table.newest()
    return newest.marker.contract if newest else None


def _check_product(table: OpenTable, product: Product) -> None:
    """Refuse a table that was filled for another product."""
    try:
        found = filled_for(table)
    except MarkerLostError as error:
        raise MarkerLostError(error.message, rebuild_gold_hint(product.name)) from error
    if found != product.digest:
        raise LakeproofError(
            f"{table.name} was filled with other keys, windows or measures than gold/{product.name}.yaml has now.",
            f"Restore the file. Or: {rebuild_gold_hint(product.name)}",
        )
