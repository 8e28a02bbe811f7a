"""``consumer run events`` until SIGTERM, which records the time at the end of each step of each micro-batch.

Run as ``python -m benchmarks.freshness_consumer NOTES``. A line of the notes is either ``{"micro_batch": id, "began",
"planned", "judged", "bronze", "dead_letters", "ledger"}``, in seconds since 1970, or ``{"progress": ...}``, Spark's
progress of a trigger. An empty micro-batch has the number -1.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql.streaming.listener import StreamingQueryListener

from consumer.app.application import run_queries
from consumer.app.landing import BronzeQuery
from consumer.app.session import PLANNING_ONLY, start_session
from consumer.app.trigger import Trigger
from consumer.iceberg.append import OpenTable, append_once
from consumer.layers import base
from consumer.layers.bronze import land
from consumer.layers.bronze.tasks import Task, write_judged
from lakeproof.logs import configure_logs
from lakeproof.settings import load_settings
from lakeproof.tables.names import stream_tables

_STREAM = "events"
_EMPTY = -1


def main() -> None:
    """Run the stream, with its steps timed."""
    configure_logs()
    settings = load_settings()
    with Path(sys.argv[1]).open("w", buffering=1) as notes:
        _time_steps(notes)
        spark = start_session(settings, "benchmark: freshness", PLANNING_ONLY)
        spark.streams.addListener(_Progress(notes))
        run_queries(settings, [BronzeQuery(settings, _STREAM, Trigger())], lambda: spark, available_now=False)
        spark.stop()


class _Progress(StreamingQueryListener):
    def __init__(self, notes: TextIO) -> None:
        self._notes = notes

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        kept = {name: progress[name] for name in ("batchId", "timestamp", "durationMs", "numInputRows")}
        print(json.dumps({"progress": kept}), file=self._notes)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


def _time_steps(notes: TextIO) -> None:
    names = stream_tables(_STREAM)
    steps = {names.bronze: "bronze", names.dead_letters: "dead_letters", names.ledger: "ledger"}
    current: dict[str, float] = {}
    process = BronzeQuery.process

    def timed_process(self: BronzeQuery, rows: Any, micro_batch_id: int) -> None:
        current.clear()
        current.update(micro_batch=_EMPTY, began=time.time())
        process(self, rows, micro_batch_id)
        print(json.dumps(current), file=notes)

    def timed_write_judged(*arguments: Any) -> Any:
        current["planned"] = time.time()
        # The number in the tables; Spark numbers micro-batches differently.
        current["micro_batch"] = next(each.batch.id for each in arguments if isinstance(each, Task))
        written = write_judged(*arguments)
        current["judged"] = time.time()
        return written

    def timed_append_once(table: OpenTable, *arguments: Any) -> bool:
        appended = append_once(table, *arguments)
        current[steps[table.name]] = time.time()
        return appended

    BronzeQuery.process = timed_process  # type: ignore[method-assign]
    vars(land).update(write_judged=timed_write_judged)
    vars(base).update(append_once=timed_append_once)


if __name__ == "__main__":
    main()
