"""Run layers in tests: without a query, or all layers of a stream in queries."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from pyspark.sql import SparkSession

from consumer.layers.base import Layer, take
from consumer.layers.registry import layers_of
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from consumer.scope import Scope
from lakeproof.contracts import load_contract
from lakeproof.gold.model import Product
from lakeproof.gold.samples import Samples
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease, lease


class Taking:
    """A layer and its lease."""

    def __init__(self, layer: Layer[Any], held: Lease) -> None:
        self.layer = layer
        self._held = held
        self.count = 0

    def take(self, spark: SparkSession) -> bool:
        """Take a micro-batch if there is one; return whether there was."""
        took = take(self.layer, spark, self._held)
        self.count += took
        return took


@contextmanager
def taking(settings: Settings, layer: Layer[Any]) -> Iterator[Taking]:
    """Hold the lease of a layer whose tables exist."""
    with lease(settings.state.database, layer.lease_name) as held, closing(layer):
        yield Taking(layer, held)


def take_all(spark: SparkSession, settings: Settings, layer: Layer[Any], most: int | None = None) -> int:
    """Let a layer take all pending work, in at most `most` micro-batches; return the number of micro-batches."""
    with taking(settings, layer) as process:
        while process.count != most and process.take(spark):
            pass
        return process.count


def layer_queries(
    settings: Settings,
    stream: str,
    trigger: Trigger,
    products: Sequence[Product] = (),
    samples: Sequence[Samples] = (),
    silver_topic: str = "",
    dead_letter_topic: str = "",
) -> list[LayerQuery]:
    """Return the queries of a stream's silver, and of the layers that follow it."""
    scope = Scope(
        settings,
        {stream: load_contract(settings.contracts, stream)},
        [stream],
        products,
        samples,
        {stream: dead_letter_topic} if dead_letter_topic else {},
        {stream: silver_topic} if silver_topic else {},
    )
    return [LayerQuery(settings, layer, trigger) for layer in layers_of(scope)]
