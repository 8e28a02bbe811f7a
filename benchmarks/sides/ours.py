"""lakeproof's consumer over all landed files, timed without the start of the JVM."""

import json

from benchmarks.sides.counts import count
from benchmarks.sides.timed import timed_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from lakeproof.settings import load_settings

STREAM = "events"


def main() -> None:
    """Run the stream until everything is committed, timed; then count."""
    settings = load_settings()
    seconds = timed_queries(settings, [BronzeQuery(settings, STREAM, Trigger(available_now=True))])
    counts = count(settings, bronze=f"bronze.{STREAM}", dead_letters=f"dead_letters.{STREAM}")
    print(json.dumps({"seconds": seconds} | counts))


if __name__ == "__main__":
    main()
