"""A query that publishes what a table has, to a topic or to files."""

from collections.abc import Callable, Mapping
from typing import Protocol

import structlog
from pyspark.sql import SparkSession

from consumer.app.failures import explained
from consumer.app.following import Following, follow
from consumer.bulletin import Bulletin
from consumer.layers.sinks.changes import Followed, gold_followed
from consumer.layers.sinks.files import FileSink
from consumer.layers.sinks.topic import TopicSink, sink_name
from consumer.queries.bronze import Trigger
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import Product, SinkKind
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease
from lakeproof.state.sink_positions import sink_lease
from lakeproof.tables.names import gold_query, gold_table

log = structlog.get_logger()


class Publisher(Protocol):
    """What does the work."""

    count: int

    def take(self, spark: SparkSession) -> bool:
        """Publish what is new; return whether there was anything."""


class PublishingQuery:
    """The query of one sink; see :class:`consumer.app.application.Query`.

    Parameters
    ----------
    settings
        Where everything is.
    name
        Name of the sink.
    follows
        The query that fills the table.
    stream
        The stream that the rows come from.
    open_publisher
        Makes what does the work.
    trigger
        When it looks for what is new.
    """

    spark_settings: Mapping[str, str] = {"spark.sql.shuffle.partitions": "4"}

    def __init__(
        self,
        settings: Settings,
        name: str,
        follows: str,
        stream: str,
        open_publisher: Callable[[Lease], Publisher],
        trigger: Trigger,
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._open = open_publisher
        self._trigger = trigger
        self._publisher: Publisher | None = None
        self._said: str | None = None
        self.name = name
        self.lease_name = sink_lease(name)
        self.follows = follows

    @property
    def micro_batches(self) -> int:
        """How many micro-batches it has finished."""
        return self._publisher.count if self._publisher else 0

    def prepare(self) -> None:
        """Nothing: the query that it follows makes the table."""

    def resume(self, spark: SparkSession, held: Lease) -> None:  # noqa: ARG002 - the position says where to resume
        """Open the sink."""
        self._publisher = self._open(held)

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Following:
        """Start the query."""
        return follow(spark, self.name, self._take, self._trigger.seconds, bulletin, follows=self.follows)

    def explain(self, error: Exception) -> LakeproofError:
        """Say why it failed."""
        return explained(error, self._settings, self._stream)

    def _take(self, spark: SparkSession) -> bool:
        """Publish; where brokers are away, wait for them: the tables are filled meanwhile."""
        if self._publisher is None:
            raise RuntimeError("A query is resumed before it is started.")
        try:
            took = self._publisher.take(spark)
        except LakeproofError as error:
            if not error.retryable or self._trigger.available_now:
                raise
            if error.hint != self._said:  # once, not at each look: the message quotes the client, and varies
                log.warning("publishing waits", query=self.name, message=error.message, hint=error.hint)
            self._said = error.hint
            return False
        self._said = None
        return took


def to_topic(settings: Settings, followed: Followed, topic: str, trigger: Trigger) -> PublishingQuery:
    """A query from a table to a topic."""
    return PublishingQuery(
        settings,
        sink_name(followed.table, topic),
        followed.query,
        followed.stream,
        lambda held: TopicSink(settings, followed, topic, held),
        trigger,
    )


def sinks_of(settings: Settings, product: Product, contract: Contract, trigger: Trigger) -> list[PublishingQuery]:
    """The queries to the sinks of a data product that follow its table."""
    found = []
    for sink in product.sinks:
        if sink.kind is SinkKind.KAFKA:
            found.append(to_topic(settings, gold_followed(product, contract), sink.topic, trigger))
        elif sink.kind is SinkKind.PARQUET:
            name = f"{gold_table(product.name)}-to-files"
            open_files = _files(settings, product)
            found.append(PublishingQuery(settings, name, gold_query(product.name), product.stream, open_files, trigger))
    return found


def _files(settings: Settings, product: Product) -> Callable[[Lease], Publisher]:
    return lambda held: FileSink(settings, product, held)
