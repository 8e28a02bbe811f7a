"""Run a command in its own process, as an operator does, timed by its log; then count the rows of its tables."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import FOLDER_VARIABLE
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.settings import Settings, load_settings
from lakeproof.tables.names import stream_tables
from reader.connect import connect

STREAM = "events"
_FATES = (
    "SELECT letter_reasons, outcome, coalesce(array_to_string(list_sort(list_distinct(list_transform(reasons, "
    "lambda reason: reason.code))), '+'), ''), count(*) FROM {} GROUP BY ALL ORDER BY ALL"
)


def main() -> None:
    """Run a program with arguments; then print its output, if that is JSON, and its figures."""
    log, output = (Path(os.environ[FOLDER_VARIABLE]) / name for name in ("log", "output"))
    began = time.monotonic()
    with log.open("wb") as errors, output.open("wb") as said:
        ended = subprocess.run([sys.executable, "-m", *sys.argv[1:]], stdout=said, stderr=errors, check=False)
    took = time.monotonic() - began
    if ended.returncode:
        sys.exit(log.read_text())
    found: dict[str, Any] = {"seconds": seconds_of(log.read_text().splitlines()) or took, "command_seconds": took}
    with suppress(ValueError):
        found["said"] = json.loads(output.read_text())
    print(json.dumps(found | counts(load_settings())))


def seconds_of(lines: Iterable[str]) -> float:
    """Return the seconds from the start of the stream's query, after Spark's start, to its end; 0 without a query."""
    began = ended = datetime.max
    for line in map(json.loads, filter(_is_json, lines)):
        at = datetime.fromisoformat(line["timestamp"]).replace(tzinfo=None)
        if line["event"] == "started" and line.get("stream") == STREAM:
            began = min(began, at)
        if line["event"] == "stopped" and line.get("query") == bronze_query(STREAM):
            ended = at
    return (ended - began).total_seconds()


def counts(settings: Settings) -> dict[str, Any]:
    """Return the numbers of rows and data files of the tables, and the outcomes of dead letters."""
    names, catalog = stream_tables(STREAM), open_catalog(settings)
    tables = {"bronze": names.bronze, "dead_letters": names.dead_letters, "attempts": names.attempts}
    found: dict[str, Any] = {"fates": []}
    for name, table in tables.items():
        if catalog.table_exists(table):
            files = [task.file for task in catalog.load_table(table).scan().plan_files()]
            found[name] = sum(file.record_count for file in files)
            found[f"{name}_files"] = len(files)
    if "attempts" in found:
        with connect(settings) as session:
            found["fates"] = session.fetch(_FATES.format(names.attempts))
    return found


def _is_json(line: str) -> bool:
    return line.startswith("{")


if __name__ == "__main__":
    main()
