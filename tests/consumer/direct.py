"""Run a stream in this thread, in a session that is there already: many times within a test."""

from pyspark.sql import SparkSession

from consumer.app.landing import BronzeQuery
from consumer.app.trigger import Trigger
from consumer.bulletin import Bulletin
from lakeproof.catalog import catalog_errors
from lakeproof.settings import Settings
from lakeproof.state.lease import lease


def drain_directly(spark: SparkSession, settings: Settings, stream: str) -> None:
    """Take everything that has landed of a stream, as ``consumer run STREAM --available-now`` does.

    Raises
    ------
    LakeproofError
        As in the program.
    """
    query, bulletin = BronzeQuery(settings, stream, Trigger(available_now=True)), Bulletin()
    for name, value in query.spark_settings.items():
        spark.conf.set(name, value)
    with lease(settings.state.database, query.lease_name) as held:
        try:
            with catalog_errors():
                query.prepare()
            query.resume(spark, held)
            while not query.paused and query.look(spark, bulletin):
                pass
        except Exception as error:
            raise query.explain(error) from error
    if query.paused:
        raise query.paused
