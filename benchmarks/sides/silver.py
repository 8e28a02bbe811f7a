"""One micro-batch of silver: ``python -m benchmarks.sides.silver ROWS DUPLICATES``; settings choose driver or tasks."""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta

from benchmarks.history_tables import History
from benchmarks.rss import MemoryWatch, cpu_by_part
from benchmarks.sides.layers import declare
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.settings import load_settings

_ROWS_AT_ONCE = 500_000
_HORIZON = timedelta(days=7)


def main() -> None:
    """Fill bronze, and half as many rows of silver, in another process; then decide bronze, timed."""
    rows, duplicates, *filling = sys.argv[1:]
    if not filling:
        declare("merge")
        subprocess.run([sys.executable, "-m", "benchmarks.sides.silver", rows, duplicates, "fill"], check=True)
    settings = load_settings()
    spark = start_session(settings, "benchmark: silver", PLANNING_ONLY)
    history = History(spark, settings, _HORIZON - timedelta(hours=2))
    if filling:
        history.keep(int(rows) // 2)
        for done in range(0, int(rows), _ROWS_AT_ONCE):
            history.land(min(int(rows) - done, _ROWS_AT_ONCE), float(duplicates))
        spark.stop()
        return
    spark.sparkContext.parallelize(range(64), 64).map(lambda number: number).collect()  # starts the workers
    with history.deciding() as take_micro_batch, MemoryWatch(os.getpid()) as memory:
        before, began = cpu_by_part(os.getpid()), time.perf_counter()
        assert take_micro_batch(spark)
        seconds, after = time.perf_counter() - began, cpu_by_part(os.getpid())
        assert not take_micro_batch(spark)
    spark.stop()
    cpu = {f"{part}_cpu": after[part] - before.get(part, 0.0) for part in ("driver", "jvm", "workers")}
    peaks = {f"{part}_mib": getattr(memory.peak, part) for part in ("driver", "jvm", "workers")}
    print(json.dumps({"seconds": seconds} | cpu | peaks))


if __name__ == "__main__":
    main()
