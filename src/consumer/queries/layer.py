"""The query that runs a layer: it looks for work, and takes it.

It implements what all layers share apart from commits: polling, news, backlog, patience, outages and errors.
"""

from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any

import structlog
from pyspark.sql import SparkSession

from consumer.layers.base import Layer, take
from consumer.queries.application import Query
from consumer.queries.bulletin import Bulletin
from consumer.queries.failures import explained
from consumer.queries.following import Following, follow
from consumer.queries.trigger import Trigger
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError
from lakeproof.judge.batch import MAX_BYTES, MAX_UNITS
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease

log = structlog.get_logger()

ARROW_LIMITS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(MAX_UNITS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(MAX_BYTES),
}
"""Limits of Arrow batches: a dead letter may be as large as a record."""
PATIENCE_SECONDS = 30.0
"""Longest time that a layer waits for the layer before it to catch up."""


class LayerQuery(Query):
    """The query of a layer."""

    spark_settings: Mapping[str, str] = {
        # A micro-batch is small: more partitions would only add scheduling overhead.
        "spark.sql.shuffle.partitions": "4",
        **ARROW_LIMITS,
    }

    def __init__(self, settings: Settings, layer: Layer[Any], trigger: Trigger) -> None:
        self._settings = settings
        self._layer = layer
        self._trigger = trigger
        self._lease: Lease | None = None
        self._waits_for: str | None = None  # the hint of an outage that was logged
        self._took_at = monotonic()
        self.name = layer.name
        self.lease_name = layer.lease_name
        self.follows = layer.follows
        self.reads = [layer.source] if layer.source else layer.reads
        self.writes = [*layer.tables, *layer.writes]

    def prepare(self) -> None:
        """Create missing tables."""
        self._layer.prepare(open_catalog(self._settings))

    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Create what only Spark can create. The tables record where to resume."""
        self._layer.open(spark)
        self._lease = held

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Following:
        """Start the query."""
        look = partial(self.look, bulletin=bulletin)
        if self._layer.every is None or self._trigger.available_now:
            news = self.follows if self._layer.every is None else None
            return follow(spark, self.name, look, self._trigger.seconds, bulletin, follows=news)
        return follow(spark, self.name, look, self._layer.every, bulletin, at_once=False)

    def explain(self, error: Exception) -> LakeproofError:
        """Return the reason for a failure."""
        return explained(error, self._settings, self._layer.stream)

    def look(self, spark: SparkSession, bulletin: Bulletin) -> bool:
        """Take a micro-batch, if there is one and now is the time; return whether it was taken."""
        layer, held = self._layer, self._lease
        if held is None:
            raise RuntimeError("A query is resumed before it is started.")
        waits = layer.waits_for_backlog and bulletin.has_backlog(layer.follows or "")
        if waits and monotonic() - self._took_at < PATIENCE_SECONDS:
            return False
        try:
            took = take(layer, spark, held)
        except LakeproofError as error:
            if not (layer.outlasts_outages and error.retryable) or self._trigger.available_now:
                raise
            if error.hint != self._waits_for:  # logged once, not at each look; the message quotes the client and varies
                log.warning("publishing waits", query=self.name, message=error.message, hint=error.hint)
            self._waits_for = error.hint
            self.retries += 1
            return False
        self._waits_for, self._took_at = None, monotonic()
        self.micro_batches += took
        # The backlog of a query is one of the queries after it, too.
        follows_backlog = bulletin.has_backlog(layer.follows or "")
        bulletin.note_backlog(self.name, there_is=layer.has_backlog or follows_backlog)
        return took
