"""Bronze, silver and gold, one after another, with each part's processor time: ``python -m benchmarks.sides.phases``.

``BENCH_WORKERS`` has the process ids of Spark's workers, whose executors are no children of this process.
"""

import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from benchmarks.harness import ROOT
from benchmarks.rss import cpu_by_part
from benchmarks.sides.counts import count
from consumer.layers.registry import layers_of
from consumer.queries.application import Query, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from consumer.scope import Scope
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_product
from lakeproof.settings import load_settings

STREAM, PRODUCT = "events", "user_activity"


def main() -> None:
    """Start Spark, then run each layer until it has all rows; print the time of each and the counts."""
    settings = load_settings()
    found = list[dict[str, Any]]()

    def timed(phase: str, work: Callable[[], Any]) -> Any:
        before, began = _processor_seconds(), time.perf_counter()
        with capture_logs() as logged:
            done = work()
        seconds, after = time.perf_counter() - began, _processor_seconds()
        batches = [line["phases"] for line in logged if "phases" in line]
        elapsed = {name: sum(each[name] for each in batches) for name in ("compute", "commit")} if batches else {}
        cpu = {part: after[part] - before.get(part, 0.0) for part in after}
        found.append({"phase": phase, "seconds": seconds, "micro_batches": len(batches), **elapsed, "cpu": cpu})
        return done

    spark: SparkSession = timed("start", lambda: start_session(settings, "benchmark: lakeproof", PLANNING_ONLY))
    trigger = Trigger(available_now=True)
    contract = load_contract(settings.contracts, STREAM)
    product = load_product(ROOT / "gold", PRODUCT, lambda _: contract)
    layers = layers_of(Scope(settings, {STREAM: contract}, [STREAM], [product]))
    queries: list[Query] = [BronzeQuery(settings, STREAM, trigger)]
    queries += [LayerQuery(settings, layer, trigger) for layer in layers]
    for query in queries:
        timed(query.name, partial(run_queries, settings, [query], lambda: spark, available_now=True))
    spark.stop()
    counts = count(settings, bronze=f"bronze.{STREAM}", silver=f"silver.{STREAM}", gold=f"gold.{PRODUCT}")
    seconds = sum(each["seconds"] for each in found[1:])
    print(json.dumps({"seconds": seconds, "phases": found} | counts))


def _processor_seconds() -> dict[str, float]:
    """Return processor seconds so far: the driver's Python and JVM, the JVMs of workers and executors, and tasks."""
    own = cpu_by_part(os.getpid())
    of_workers = [cpu_by_part(int(pid)) for pid in os.environ.get("BENCH_WORKERS", "").split(",") if pid]
    return {
        "driver": own["driver"],
        "jvm": own.get("jvm", 0.0),
        "executors": sum(each.get("jvm", 0.0) for each in of_workers),
        "tasks": own.get("workers", 0.0) + sum(each.get("workers", 0.0) for each in of_workers),
    }


if __name__ == "__main__":
    main()
