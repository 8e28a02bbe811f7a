"""Time from landing a file to its rows in each layer, under a steady load, with all programs on two cores."""

import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyiceberg.table import Table as IcebergTable

from benchmarks.flat_figures import percentile
from benchmarks.freshness_figures import mean, read_notes
from benchmarks.freshness_lander import RECORDS
from benchmarks.harness import (
    WORK,
    Goal,
    Histogram,
    Options,
    Report,
    SideFailedError,
    Table,
    clean_environment,
    machine,
)
from benchmarks.machine import few_cores
from benchmarks.minio import Minio, run_minio
from benchmarks.programs import PATIENCE_SECONDS, run_program, wait_for
from consumer.iceberg.marker import Committed, property_of
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.settings import Settings, settings_of
from lakeproof.tables.names import gold_query, gold_table, silver_query, silver_tables, stream_tables

_CORES = 2
_FILES_PER_SECOND = 10
_WARM_UP_SECONDS = 30
_BUCKET = "bench"
_STREAM, _PRODUCT = "events", "user_activity"
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
_GOALS = {"p50": 4.0, "p99": 8.0}
_TABLES = {
    "bronze": (stream_tables(_STREAM).bronze, bronze_query(_STREAM)),
    "silver": (silver_tables(_STREAM).kept, silver_query(_STREAM)),
    "gold": (gold_table(_PRODUCT), gold_query(_PRODUCT)),
}

ABOUT = [
    f"A producer lands {_FILES_PER_SECOND} files of {RECORDS} events a second in MinIO. `consumer run events` fills "
    f"bronze, silver and `gold.{_PRODUCT}`, as it does by default. All of them, MinIO too, share {_CORES} cores.",
    "A file's time is that from the end of its PUT to the snapshot of the table that has its rows, or the windows that "
    "they are in. The time of a snapshot is when Iceberg makes it; readers find it when its commit ends, a tenth of a "
    "second later.",
    f"The first {_WARM_UP_SECONDS} s of the load are not in the figures: the JVM is still compiling.",
]


def run(options: Options) -> Report:
    """Run the load once, for the time in the options."""
    about_machine = machine()
    files = (_WARM_UP_SECONDS + options.seconds) * _FILES_PER_SECOND
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="layers-", dir=WORK) as folder, few_cores(_CORES), run_minio() as minio:
        minio.make_bucket(_BUCKET)
        landed, settings = _load(Path(folder), minio, files)
        numbers = _micro_batches(settings)
        commits = {layer: _commits(settings, *table) for layer, table in _TABLES.items()}
    warm = landed[_WARM_UP_SECONDS * _FILES_PER_SECOND :]
    seconds = {
        layer: [_committed(numbers[file["name"]], of_layer) - file["at"] for file in warm]
        for layer, of_layer in commits.items()
    }
    found = {name: percentile(seconds["gold"], share) for name, share in _SHARES.items()}
    return Report(
        name="freshness-layers",
        title="Freshness of the layers",
        about=ABOUT,
        goals=[Goal(f"{name}, landed to gold", found[name], at_most=most, unit="s") for name, most in _GOALS.items()],
        tables=[
            Table(
                "From landed to committed, file by file",
                ["seconds", "mean", *_SHARES],
                [
                    [layer, f"{mean(values):.2f}", *(f"{percentile(values, share):.2f}" for share in _SHARES.values())]
                    for layer, values in seconds.items()
                ],
            )
        ],
        machine=about_machine,
        options={"seconds": options.seconds, "events_a_second": _FILES_PER_SECOND * RECORDS},
        histograms=[Histogram.of("From landed to gold", "seconds", seconds["gold"], found)],
        raw={
            layer: {name: round(percentile(values, share), 3) for name, share in _SHARES.items()}
            for layer, values in seconds.items()
        },
    )


def _load(folder: Path, minio: Minio, files: int) -> tuple[list[dict[str, Any]], Settings]:
    """Land all files while a consumer runs, and wait until gold has them."""
    environment = clean_environment(folder) | minio.lake(_BUCKET)
    settings = settings_of(environment)
    notes = folder / "landed"
    with ExitStack() as programs:
        consumer = programs.enter_context(run_program("consumer", folder, environment, "run", _STREAM))
        wait_for(lambda: _has(settings, "bronze"), [consumer])
        lander = programs.enter_context(
            run_program("benchmarks.freshness_lander", folder, environment, notes, files, _FILES_PER_SECOND)
        )
        wait_for(lambda: lander.poll() is not None, [consumer], files / _FILES_PER_SECOND)
        wait_for(lambda: _rows(settings) >= files * RECORDS, [consumer])
        consumer.send_signal(signal.SIGTERM)
        consumer.wait(PATIENCE_SECONDS)
    return read_notes(notes), settings


def _has(settings: Settings, layer: str) -> bool:
    name, _ = _TABLES[layer]
    return open_catalog(settings).table_exists(name)


def _rows(settings: Settings) -> int:
    """Return the number of events counted in the windows of gold."""
    if not _has(settings, "gold"):
        return 0
    found = open_catalog(settings).load_table(gold_table(_PRODUCT)).scan(selected_fields=("event_count",)).to_arrow()
    return sum(found["event_count"].to_pylist())


def _micro_batches(settings: Settings) -> dict[str, int]:
    """Return the micro-batch of each file."""
    ledger = open_catalog(settings).load_table(stream_tables(_STREAM).ledger)
    rows = ledger.scan(selected_fields=("source", "micro_batch_id")).to_arrow().to_pylist()
    return {row["source"]: row["micro_batch_id"] for row in rows}


def _commits(settings: Settings, name: str, query: str) -> list[tuple[int, float]]:
    """Return the last micro-batch and the time of each commit of a table, ascending."""
    table: IcebergTable = open_catalog(settings).load_table(name)
    return sorted(_marked(table, query))


def _marked(table: IcebergTable, query: str) -> Iterator[tuple[int, float]]:
    for snapshot in table.metadata.snapshots:
        summary: Mapping[str, str] = snapshot.summary.additional_properties if snapshot.summary else {}
        if text := summary.get(property_of(query)):
            yield Committed.parse(text).marker.micro_batch_id, snapshot.timestamp_ms / 1000


def _committed(number: int, commits: list[tuple[int, float]]) -> float:
    """Return the time of the first commit that includes a micro-batch."""
    for last, at in commits:
        if last >= number:
            return at
    raise SideFailedError(f"Micro-batch {number} was never committed.")
