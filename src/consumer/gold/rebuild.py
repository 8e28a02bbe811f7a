"""Fill a product's table again from silver, beside the one that is there, and put it in its place."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from consumer.commit.rebuilding import begun_suffixes, new_suffix, put_in_place
from consumer.gold.micro_batches import GoldMicroBatches
from consumer.gold.table import ensure_gold_table
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.errors import UsageError
from lakeproof.gold.model import Product
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import gold_lease, lease
from lakeproof.tables.names import gold_table, silver_tables
from lakeproof.tables.schemas import ensure_namespace


def rebuild_gold(settings: Settings, product: Product, session: Callable[[], SparkSession]) -> str:
    """Fill a product's table again; return a line that says what was done.

    Silver may grow meanwhile: the next run resumes from where this one ends. One that was interrupted is begun again,
    since most of it is one micro-batch.

    Raises
    ------
    LeaseHeldError
        A consumer fills the product.
    UsageError
        The stream has no silver yet.
    """
    name, silver = gold_table(product.name), silver_tables(product.stream).kept
    with lease(settings.state.database, gold_lease(product.name)) as held:
        with catalog_errors():
            catalog = open_catalog(settings)
            if not catalog.table_exists(silver):
                raise UsageError(f"{silver} does not exist yet.", f"Run `consumer run {product.stream}` first.")
            for suffix in begun_suffixes(catalog, name):
                catalog.drop_table(gold_table(product.name, suffix))
            ensure_namespace(catalog, name.split(".")[0])
        building = gold_table(product.name, new_suffix())
        spark = session()
        ensure_gold_table(spark, product, building)
        process = GoldMicroBatches(settings, product, building, ContractLog(settings.state.database), held)
        while process.take(spark):
            pass
        with catalog_errors():
            put_in_place(catalog, building, name)
    return f"Rebuilt {name} from {silver}. The files of the old table were not removed."
