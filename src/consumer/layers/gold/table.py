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
from lakeproof.tables.evolution import lacking, unsuitable
from lakeproof.tables.names import PRODUCT, gold_query, silver_tables
from lakeproof.tables.schemas import GOLD_PROPERTIES, gold_schema

_COMMENT = "comment"
_read_under = lru_cache(maxsize=64)(read_under)  # each poll of each query asks for the same product


def ensure_gold_table(spark: SparkSession, product: Product, name: str) -> None:
    """Create the table of a product if it is missing; widen its columns if the stream's columns were widened."""
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
    """Read a product under the current contract, which fits every row that silver has decided by now.

    A contract may have been applied since the consumer was started.
    """
    digest = contracts.current(product.stream)
    if digest is None:
        return product
    return _read_under(product, contract_of_silver(contracts, digest, silver_tables(product.stream).kept))


def rebuild_gold_hint(name: str) -> str:
    """Return the hint for rows of a product that cannot be corrected."""
    return f"Run `consumer rebuild gold {name}`, to fill it again from silver."


def filled_for(table: OpenTable) -> str | None:
    """Return the digest of the product that a table was filled for; from the marker if the property was removed."""
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
    # The digest has no types: with 1.00 instead of 1 in a measure, it is the same, but the column has another type.
    if found != product.digest or unsuitable(table.schema(), gold_schema(product)):
        raise LakeproofError(
            f"{table.name} was filled with other keys, windows or measures than gold/{product.name}.yaml has now.",
            f"Restore the file. Or: {rebuild_gold_hint(product.name)}",
        )
