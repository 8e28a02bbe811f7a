"""The layers that follow tables, in the order in which their queries start. A new layer is a line here."""

from collections.abc import Iterator
from typing import Any

from consumer.layers.base import Layer
from consumer.layers.gold.aggregate import GoldLayer
from consumer.layers.samples.sample import SamplesLayer
from consumer.layers.silver.decide import SilverLayer
from consumer.layers.sinks.files import FileSink
from consumer.layers.sinks.topic import TopicSink
from consumer.scope import Scope

LAYERS: list[type[Layer[Any]]] = [
    SilverLayer,
    GoldLayer,
    SamplesLayer,
    TopicSink,
    FileSink,
]


def layers_of(scope: Scope) -> Iterator[Layer[Any]]:
    """Return the layers that a command fills, each after the layer that it follows."""
    return (layer for kind in LAYERS for layer in kind.in_scope(scope))
