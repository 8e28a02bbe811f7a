"""Lands files at a steady rate, as ``producer events`` does, and records when each was complete.

Run as ``python -m benchmarks.freshness_lander NOTES FILES PER_SECOND``. A line of the notes is
``{"name", "due", "at"}``, in seconds since 1970.
"""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lakeproof.contracts import load_contract
from lakeproof.settings import load_settings
from producer.batches import BatchPlan, make_batches
from producer.encoding import JsonStyle
from producer.faults import Chances
from producer.sinks import SinkKind, open_sink

STREAM = "events"
RECORDS = 100


def main() -> None:
    """Land each file when it is due; a late file does not delay the next one."""
    notes, files, per_second = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    settings = load_settings()
    target = f"{settings.landing.uri}/{STREAM}"
    sink = open_sink(SinkKind.S3 if target.startswith("s3:") else SinkKind.LOCAL, target, settings)
    plan = BatchPlan(1, 1_000, RECORDS, 0, JsonStyle.COMPACT, Chances(0.0, 0.0, 0.0, 0.0))
    due: list[float] = []
    with notes.open("w", buffering=1) as lines:
        for batch in make_batches(plan, load_contract(settings.contracts, STREAM), times(files, per_second, due)):
            sink.write(batch)
            print(json.dumps({"name": batch.name, "due": due[-1], "at": time.time()}), file=lines)


def times(count: int, per_second: float, due: list[float]) -> Iterator[datetime]:
    """Yield `count` times at a steady rate, each when it is due; append the due times to `due`."""
    began = time.time()
    for number in range(count):
        due.append(began + number / per_second)
        time.sleep(max(due[-1] - time.time(), 0))
        yield datetime.now(UTC)


if __name__ == "__main__":
    main()
