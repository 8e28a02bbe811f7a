"""Lands files at a steady pace, as ``producer events`` makes and lands them, and notes when each was whole.

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
from producer.batches import Plan, make_batches
from producer.encoding import JsonStyle
from producer.faults import Chances
from producer.sinks import SinkKind, open_sink

STREAM = "events"
RECORDS = 100


def main() -> None:
    """Land a file each time that one is due; one that is late does not put off the next."""
    notes, files, per_second = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    settings = load_settings()
    target = f"{settings.landing.uri}/{STREAM}"
    sink = open_sink(SinkKind.S3 if target.startswith("s3:") else SinkKind.LOCAL, target, settings)
    plan = Plan(1, 1_000, RECORDS, 0, JsonStyle.COMPACT, Chances(0.0, 0.0, 0.0, 0.0))
    due: list[float] = []
    with notes.open("w", buffering=1) as lines:
        for batch in make_batches(plan, load_contract(settings.contracts, STREAM), times(files, per_second, due)):
            sink.write(batch)
            print(json.dumps({"name": batch.name, "due": due[-1], "at": time.time()}), file=lines)


def times(count: int, per_second: float, due: list[float]) -> Iterator[datetime]:
    """Wait for each of so many moments, at a steady pace, and note when it was due."""
    began = time.time()
    for number in range(count):
        due.append(began + number / per_second)
        time.sleep(max(due[-1] - time.time(), 0))
        yield datetime.now(UTC)


if __name__ == "__main__":
    main()
