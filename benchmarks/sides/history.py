"""Micro-batches of silver as silver grows: ``python -m benchmarks.sides.history STRATEGY ROWS…``."""

import json
import statistics
import sys
import time
from datetime import timedelta
from typing import Any

from benchmarks.history_tables import History
from benchmarks.sides.layers import declare
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.settings import load_settings

_ROWS = 2_000
_DUPLICATES = 0.05
_MICRO_BATCHES = 5
_WARM_UPS = 3
_HORIZON = timedelta(days=7)


def main() -> None:
    """Time micro-batches of silver at each size; report the first one after the history grew separately."""
    strategy, *sizes = sys.argv[1:]
    declare(strategy)
    settings = load_settings()
    spark = start_session(settings, "benchmark: history", PLANNING_ONLY)
    history = History(spark, settings, _HORIZON - timedelta(hours=2))
    found: dict[str, dict[str, Any]] = {}

    def take() -> float:
        history.land(_ROWS, _DUPLICATES)
        with_all = time.perf_counter()
        assert take_micro_batch(spark)
        return time.perf_counter() - with_all

    for size in map(int, sizes):
        history.keep(size - history.rows)
        with history.deciding() as take_micro_batch:
            first = take()
            warm = [take() for _ in range(_WARM_UPS if not found else 1)]
            seconds = [take() for _ in range(_MICRO_BATCHES)]
        found[str(size)] = {"p50_s": statistics.median(seconds), "max_s": max(seconds), "first_s": first}
        print(strategy, size, first, warm, seconds, file=sys.stderr, flush=True)
    spark.stop()
    print(json.dumps({"sizes": found}))


if __name__ == "__main__":
    main()
