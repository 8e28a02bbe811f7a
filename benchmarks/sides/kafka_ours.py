"""lakeproof's consumer over a topic: ``python -m benchmarks.sides.kafka_ours bronze``, or ``gold`` for all layers."""

import json
import sys
from functools import partial

from benchmarks.harness import ROOT
from benchmarks.sides.counts import count
from benchmarks.sides.timed import timed_queries
from consumer.layers.registry import layers_of
from consumer.queries.application import Query
from consumer.queries.bronze import BronzeQuery
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from consumer.scope import Scope
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_product
from lakeproof.settings import load_settings

STREAM, PRODUCT = "events", "user_activity"


def main() -> None:
    """Run the queries until everything is committed, timed; then count."""
    settings = load_settings()
    trigger = Trigger(available_now=True)
    product = load_product(ROOT / "gold", PRODUCT, partial(load_contract, settings.contracts))
    queries: list[Query] = [BronzeQuery(settings, STREAM, trigger, "kafka")]
    tables = {"bronze": f"bronze.{STREAM}"}
    if sys.argv[1] == "gold":
        contracts = {STREAM: load_contract(settings.contracts, STREAM)}
        layers = layers_of(Scope(settings, contracts, [STREAM], [product]))
        queries += [LayerQuery(settings, layer, trigger) for layer in layers]
        tables |= {"silver": f"silver.{STREAM}", "gold": f"gold.{PRODUCT}"}
    seconds = timed_queries(settings, queries)
    print(json.dumps({"seconds": seconds} | count(settings, **tables)))


if __name__ == "__main__":
    main()
