"""Fill the tables of a product of samples again from silver, and put them in the place of those that are there."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from consumer.commit.rebuilding import begun_suffixes, new_suffix, put_in_place
from consumer.sensors.micro_batches import SamplesMicroBatches
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.errors import UsageError
from lakeproof.gold.samples import Samples
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import gold_lease, lease
from lakeproof.tables.names import samples_tables, silver_tables
from lakeproof.tables.schemas import ensure_samples_tables


def rebuild_samples(settings: Settings, samples: Samples, session: Callable[[], SparkSession]) -> str:
    """Fill a product's tables again; return a line that says what was done.

    Silver may grow meanwhile: the next run resumes from where this one ends. One that was interrupted is begun again.
    If that was between the two tables, the consumer refuses them until then.

    Raises
    ------
    LeaseHeldError
        A consumer fills the product.
    UsageError
        The stream has no silver yet.
    """
    silver, names = silver_tables(samples.stream).kept, samples_tables(samples.name, samples.anomalies)
    with lease(settings.state.database, gold_lease(samples.name)) as held:
        with catalog_errors():
            catalog = open_catalog(settings)
            if not catalog.table_exists(silver):
                raise UsageError(f"{silver} does not exist yet.", f"Run `consumer run {samples.stream}` first.")
            for name in (names.anomalies, names.samples):
                for suffix in begun_suffixes(catalog, name):
                    catalog.drop_table(name + suffix)
            building = samples_tables(samples.name, samples.anomalies, new_suffix())
            ensure_samples_tables(catalog, samples, building)
        process = SamplesMicroBatches(settings, samples, building, ContractLog(settings.state.database), held)
        spark = session()
        while process.take(spark):
            pass
        with catalog_errors():
            put_in_place(catalog, building.anomalies, names.anomalies)
            put_in_place(catalog, building.samples, names.samples)
    return f"Rebuilt {names.samples} and {names.anomalies} from {silver}. The files of the old tables were not removed."
