"""Run queries in this thread, in a session that is there already: many times within a test."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from consumer.queries.application import own_settings
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.layer import LayerQuery
from consumer.queries.replay import ReplayQuery
from consumer.queries.trigger import Trigger
from lakeproof.catalog import catalog_errors
from lakeproof.settings import Settings
from lakeproof.state.lease import lease


def run_in_turn(spark: SparkSession, settings: Settings, queries: Sequence[BronzeQuery | LayerQuery]) -> None:
    """Run queries over everything that is available, each after the one that it follows.

    `run_queries` does the same in threads, with a session for each query, which costs more processor time.

    Raises
    ------
    LakeproofError
        As in the program.
    """
    bulletin = Bulletin()
    with ExitStack() as leases:
        held = [leases.enter_context(lease(settings.state.database, each.lease_name)) for each in queries]
        for query in queries:
            with _explaining(query), catalog_errors():
                query.prepare()
        for query, its_lease in zip(queries, held, strict=True):
            with _explaining(query):
                query.resume(spark, its_lease)
        for query in queries:
            with _explaining(query), own_settings(spark, query):
                _drain(spark, query, bulletin)
        for query in queries:
            if query.paused:
                raise query.paused


def drain_directly(spark: SparkSession, settings: Settings, stream: str) -> None:
    """Take everything that has landed of a stream, as ``consumer run STREAM --available-now --to bronze`` does."""
    run_in_turn(spark, settings, [BronzeQuery(settings, stream, Trigger(available_now=True))])


def _drain(spark: SparkSession, query: BronzeQuery | LayerQuery, bulletin: Bulletin) -> None:
    if isinstance(query, ReplayQuery):
        running = query.start(spark, bulletin)
        try:
            running.drain()
        finally:
            running.stop()
        return
    while not query.paused and query.look(spark, bulletin):
        pass


@contextmanager
def _explaining(query: BronzeQuery | LayerQuery) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise query.explain(error) from error
