"""``consumer run events`` until SIGTERM, which records the time at the end of each step of each micro-batch.

Run as ``python -m benchmarks.freshness_consumer NOTES``. The first line of the notes is ``{"looked": seconds}``, once
the query has looked for files; each other one is ``{"micro_batch": id, "began", "planned", "judged", "bronze",
"dead_letters", "ledger"}``. All times are in seconds since 1970.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, append_once
from consumer.layers import base
from consumer.layers.bronze import land
from consumer.layers.bronze.tasks import Task, write_judged
from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.trigger import Trigger
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.logs import configure_logs
from lakeproof.settings import load_settings
from lakeproof.tables.names import stream_tables

_STREAM = "events"


def main() -> None:
    """Run the stream, with its steps timed."""
    configure_logs()
    settings = load_settings()
    with Path(sys.argv[1]).open("w", buffering=1) as notes:
        _time_steps(notes)
        spark = start_session(settings, "benchmark: freshness", PLANNING_ONLY)
        run_queries(settings, [BronzeQuery(settings, _STREAM, Trigger())], lambda: spark, available_now=False)
        spark.stop()


def _time_steps(notes: TextIO) -> None:
    names = stream_tables(_STREAM)
    steps = {names.bronze: "bronze", names.dead_letters: "dead_letters", names.ledger: "ledger"}
    current: dict[str, float] = {}
    look, take, has_looked = BronzeQuery.look, BronzeQuery.take, False

    def timed_look(self: BronzeQuery, spark: SparkSession, bulletin: Bulletin) -> bool:
        nonlocal has_looked
        took = look(self, spark, bulletin)
        if not has_looked:
            print(json.dumps({"looked": time.time()}), file=notes)
            has_looked = True
        return took

    def timed_take(*arguments: Any) -> None:
        current.clear()
        current["began"] = time.time()
        take(*arguments)
        print(json.dumps(current), file=notes)

    def timed_write_judged(*arguments: Any) -> Any:
        current["planned"] = time.time()
        current["micro_batch"] = next(each.batch.id for each in arguments if isinstance(each, Task))
        written = write_judged(*arguments)
        current["judged"] = time.time()
        return written

    def timed_append_once(table: OpenTable, *arguments: Any) -> bool:
        appended = append_once(table, *arguments)
        current[steps[table.name]] = time.time()
        return appended

    BronzeQuery.look = timed_look  # type: ignore[method-assign]
    BronzeQuery.take = timed_take  # type: ignore[method-assign]
    vars(land).update(write_judged=timed_write_judged)
    vars(base).update(append_once=timed_append_once)


if __name__ == "__main__":
    main()
