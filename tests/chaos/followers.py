"""Programs that read a lake while it is maintained: DuckDB and PyIceberg, and streams of Spark.

A query must succeed unless it takes longer than snapshots are kept, as docs/operations/maintenance.md says. The number
of rows never decreases, and none is duplicate. A registered stream can continue after any time.
"""

import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.chaos.lake import TABLES

from consumer.spark.session import start_session
from lakeproof.catalog import open_catalog
from lakeproof.holds import hold
from lakeproof.settings import Settings, load_settings
from lakeproof.tables.names import POSITION, SOURCE
from reader.connect import connect

KEEP_SECONDS = 45.0
"""How long these lakes keep snapshots."""
_LEAST_ANSWERS = 3
_PLACES = f"SELECT count(*), count(DISTINCT ({SOURCE}, {POSITION})) FROM {TABLES.bronze}"
# Iceberg's errors for a stream whose snapshot has expired.
_EXPIRED = ("expired", "Cannot find snapshot", "Cannot load current offset", "was removed")


class Report(msgspec.Struct):
    """Observations of a reader."""

    problems: list[str] = []
    notes: list[str] = []


def engines(settings: Settings, folder: Path) -> Report:
    """Count rows with DuckDB and PyIceberg again and again, each time from scratch."""
    report, most, answers, slow = Report(), {"duckdb": 0, "pyiceberg": 0}, Counter[str](), 0
    while not (folder / "end").exists():
        for engine in most:
            began = time.monotonic()
            try:
                rows, places = _by_duckdb(settings) if engine == "duckdb" else _by_pyiceberg(settings)
            except Exception as error:  # noqa: BLE001 - whatever an engine raises
                if time.monotonic() - began > KEEP_SECONDS:
                    slow += 1
                else:
                    report.problems.append(f"{engine}: {type(error).__name__}: {str(error)[:300]}")
                continue
            answers[engine] += 1
            if rows != places or rows < most[engine]:
                report.problems.append(f"{engine}: {rows} rows of {places} places after {most[engine]}")
            most[engine] = max(rows, most[engine])
    for engine in most:
        if answers[engine] < _LEAST_ANSWERS:
            report.problems.append(f"{engine}: only {answers[engine]} queries succeeded")
    report.notes.append(f"{answers.total()} queries, {slow} took longer than snapshots are kept")
    return report


def _by_duckdb(settings: Settings) -> tuple[int, int]:
    with connect(settings) as session:
        rows, places = session.fetch(_PLACES)[0]
        return rows, places


def _by_pyiceberg(settings: Settings) -> tuple[int, int]:
    found = open_catalog(settings).load_table(TABLES.bronze).scan(selected_fields=(SOURCE, POSITION)).to_arrow()
    return found.num_rows, found.group_by([SOURCE, POSITION]).aggregate([]).num_rows


def streams(settings: Settings, folder: Path) -> Report:
    """Run two streams, registered and not, that are idle between rounds for longer than the retention.

    They read two tables, since a registered stream would also keep snapshots for another stream of its table.
    """
    spark = start_session(settings, "followers")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")  # these checkpoints are on a local disk
    report, rounds = Report(), 0
    ended_by = ""
    while True:
        is_last = (folder / "end").exists()
        until = datetime.now(UTC) + timedelta(hours=1)
        hold(open_catalog(settings), TABLES.bronze, "stream", until, oldest=True)  # from its beginning; then longer
        _take(spark, folder, "registered", TABLES.bronze)
        if not ended_by:
            try:
                _take(spark, folder, "unregistered", TABLES.dead_letters)
            except PySparkException as error:
                ended_by = str(error).strip().splitlines()[0][:300]
                if not any(part in str(error) for part in _EXPIRED):
                    report.problems.append(f"unregistered stream: {ended_by}")
        rounds += 1
        if is_last:
            break
        idle_until = time.monotonic() + (1.5 * KEEP_SECONDS if rounds % 2 else 3)
        while time.monotonic() < idle_until and not (folder / "end").exists():
            time.sleep(0.2)
    table = open_catalog(settings).load_table(TABLES.bronze).scan(selected_fields=(SOURCE, POSITION)).to_arrow()
    expected = sorted(zip(table[SOURCE].to_pylist(), table[POSITION].to_pylist(), strict=True))
    found = sorted(_taken(folder, "registered"))
    if found != expected:
        lost, doubled = len(set(expected) - set(found)), len(found) - len(set(found))
        report.problems.append(f"registered stream: {lost} rows lost, {doubled} doubled, of {len(expected)}")
    others = _taken(folder, "unregistered")
    if not ended_by or len(others) != len(set(others)):
        report.problems.append(f"unregistered stream: {len(others)} rows, {len(set(others))} places, no error")
    report.notes.append(f"{rounds} rounds of streams; the unregistered one: {ended_by}")
    return report


def _take(spark: SparkSession, folder: Path, name: str, table: str) -> None:
    """Let a stream take all new rows of a table since its last round."""
    output = folder / name
    output.mkdir(exist_ok=True)

    def write(rows: DataFrame, number: int) -> None:
        places = [[row[0], row[1]] for row in rows.select(SOURCE, POSITION).collect()]
        (output / f"{number}.json").write_text(json.dumps(places))  # a repeated batch has the same number

    stream = spark.readStream.format("iceberg").option("streaming-skip-overwrite-snapshots", "true")
    writer = stream.load(f"lake.{table}").writeStream.foreachBatch(write)
    # Not `availableNow`: with it, each start of an Iceberg stream needs the snapshot at which the stream began.
    query = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint")).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def _taken(folder: Path, name: str) -> list[tuple[str, int]]:
    return [
        (source, position)
        for file in (folder / name).glob("*.json")
        for source, position in json.loads(file.read_text())
    ]


def main(what: str, folder: Path) -> None:
    """Read until the folder contains a file `end`, then write a report there."""
    report = {"engines": engines, "streams": streams}[what](load_settings(), folder)
    (folder / f"{what}.json").write_bytes(msgspec.json.encode(report))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
