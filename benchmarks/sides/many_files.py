"""Bronze over many small files: ``python -m benchmarks.sides.many_files FILES MICRO_BATCHES``."""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from benchmarks.rss import MemoryWatch
from benchmarks.sides.counts import count
from benchmarks.sides.looks import timed_looks
from consumer.layers.bronze.tasks import warm_up_beside
from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.settings import load_settings
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage.local import local_path

STREAM = "events"
RECORDS = 10
_FILES_OF_A_FOLDER = 1_000
_WRITERS = 16
_EVENT = {"user_id": "u1", "event_timestamp": "2026-11-21T06:00:00Z", "event_type": "page_view", "properties": {}}


def main() -> None:
    """Land the files; then, timed, run the stream until everything is committed; print each micro-batch."""
    files, micro_batches = int(sys.argv[1]), int(sys.argv[2])
    os.environ["LAKE_MAX_FILES_PER_MICRO_BATCH"] = str(files)
    os.environ["LAKE_SETTLE_SECONDS"] = "0"
    settings = load_settings()
    _land(Path(local_path(settings.landing.uri)) / STREAM, files * micro_batches)
    with MemoryWatch(os.getpid()) as memory:
        spark = start_session(settings, "benchmark: many files", PLANNING_ONLY)
        reports: list[dict[str, Any]] = []
        began = time.perf_counter()
        with capture_logs() as logged, timed_looks(lambda seconds: reports.append(_report(seconds, memory))):
            query = BronzeQuery(settings, STREAM, Trigger(available_now=True))
            run_queries(settings, [query], lambda: warm_up_beside(spark), available_now=True)
        seconds = time.perf_counter() - began
        taken = [line for line in logged if line["event"] == "micro-batch"]
    spark.stop()
    found = [
        {"files": line["files"], "seconds": line["seconds"], **line["phases"], **report}
        for line, report in zip(taken, reports, strict=True)
    ]
    head = LandingLog(settings.state.database, STREAM).head()
    counts = count(settings, bronze=f"bronze.{STREAM}", ledger=f"ledger.{STREAM}")
    print(json.dumps({"seconds": seconds, "landed": head.seq, "micro_batches": found} | counts))


def _report(seconds: float, memory: MemoryWatch) -> dict[str, Any]:
    """Return the time of a micro-batch, from the look for it to its record, with the peaks of memory until then."""
    peak = memory.peak
    return {"trigger": seconds, "driver_mib": peak.driver, "jvm_mib": peak.jvm, "workers_mib": peak.workers}


def _land(root: Path, files: int) -> None:
    """Write files of a few records, without a producer's protection against crashes."""

    def write(first: int) -> None:
        folder = root / f"hour-{first // _FILES_OF_A_FOLDER:06d}"
        folder.mkdir(parents=True)
        for number in range(first, min(first + _FILES_OF_A_FOLDER, files)):
            records = [_EVENT | {"event_id": f"{number}-{each}"} for each in range(RECORDS)]
            (folder / f"{number:09d}.json").write_text(json.dumps(records))

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(write, range(0, files, _FILES_OF_A_FOLDER)))


if __name__ == "__main__":
    main()
