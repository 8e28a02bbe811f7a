"""The table of a data product. PyIceberg cannot write version 3 of the format, so Iceberg's own library makes it."""

from functools import partial

from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.jvm import java_class
from consumer.iceberg.marker import MarkerLostError
from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import WINDOW_START, Product
from lakeproof.tables.columns import lacking
from lakeproof.tables.names import PRODUCT, gold_query
from lakeproof.tables.schemas import GOLD_PROPERTIES, gold_schema

_COMMENT = "comment"


def ensure_gold_table(spark: SparkSession, product: Product, name: str) -> None:
    """Create the table of a product if it is missing; widen its columns if those of the stream were widened.

    Raises
    ------
    LakeproofError
        It was filled for a product with other keys, windows or measures.
    """
    iceberg = partial(java_class, spark)
    catalog = iceberg("org.apache.iceberg.spark.Spark3Util").loadIcebergCatalog(spark._jsparkSession, CATALOG)
    schema = gold_schema(product)
    parser = iceberg("org.apache.iceberg.SchemaParser")
    wanted = parser.fromJson(schema.model_dump_json())
    identifier = iceberg("org.apache.iceberg.catalog.TableIdentifier").parse(name)
    if not catalog.tableExists(identifier):
        by_day = (
            iceberg("org.apache.iceberg.PartitionSpec")
            .builderFor(wanted)
            .day(WINDOW_START, f"{WINDOW_START}_day")
            .build()
        )
        properties = GOLD_PROPERTIES | {PRODUCT: product.digest, _COMMENT: product.description}
        catalog.createTable(identifier, wanted, by_day, properties)
        return
    table = open_table(spark, name, gold_query(product.name))
    _check_product(table, product)
    has = Schema.model_validate_json(parser.toJson(table.loaded.schema()))
    if lacking(has, schema):
        table.loaded.updateSchema().unionByNameWith(wanted).commit()
    if table.property(_COMMENT) != product.description:
        table.loaded.updateProperties().set(_COMMENT, product.description).commit()


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
