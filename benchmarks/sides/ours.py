"""lakeproof's consumer over all landed files, timed without the start of the JVM."""

import json
import time

from benchmarks.sides.counts import count
from consumer.app.application import run_queries
from consumer.app.landing import BronzeQuery
from consumer.app.session import PLANNING_ONLY, start_session
from consumer.app.trigger import Trigger
from consumer.layers.bronze.tasks import warm_up_beside
from lakeproof.settings import load_settings

STREAM = "events"


def main() -> None:
    """Start Spark; then, timed, run the stream until everything is committed; then count."""
    settings = load_settings()
    spark = start_session(settings, "benchmark: lakeproof", PLANNING_ONLY)
    began = time.monotonic()
    query = BronzeQuery(settings, STREAM, Trigger(available_now=True))
    run_queries(settings, [query], lambda: warm_up_beside(spark), available_now=True)
    seconds = time.monotonic() - began
    spark.stop()
    counts = count(settings, bronze=f"bronze.{STREAM}", dead_letters=f"dead_letters.{STREAM}")
    print(json.dumps({"seconds": seconds} | counts))


if __name__ == "__main__":
    main()
