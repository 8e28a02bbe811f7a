"""Polls DuckDB for new rows of bronze, in one open session of the reader, until SIGTERM.

Run as ``python -m benchmarks.freshness_poller NOTES PAUSE_SECONDS``. A line of the notes is
``{"began", "at", "seen": [[name, micro-batch, rows], ...]}``; `at` is the time when the rows were received.
"""

import json
import sys
import time
from pathlib import Path

from lakeproof.settings import load_settings
from lakeproof.signals import ending_signals
from reader.connect import connect

_NEW = (
    "SELECT _source, _micro_batch_id, count(*) FROM bronze.events WHERE _micro_batch_id > {newest} "
    "GROUP BY ALL ORDER BY ALL"
)


def main() -> None:
    """Query, record the result, and pause, until a signal."""
    notes, pause = Path(sys.argv[1]), float(sys.argv[2])
    ended: list[int] = []
    with (
        notes.open("w", buffering=1) as lines,
        connect(load_settings()) as session,
        ending_signals(lambda number, _frame: ended.append(number)),
    ):
        newest = -1
        while not ended:
            began = time.time()
            rows = session.connection.execute(_NEW.format(newest=newest)).fetchall()
            at = time.time()
            newest = max([newest, *(micro_batch for _, micro_batch, _ in rows)])
            print(json.dumps({"began": began, "at": at, "seen": rows}), file=lines)
            time.sleep(pause)


if __name__ == "__main__":
    main()
