"""Time from landing a file to reading its rows, under a steady load, with all programs on two cores."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.flat_figures import percentile
from benchmarks.freshness_figures import STEPS, Journey, commits, journeys, mean, read_notes
from benchmarks.freshness_lander import RECORDS
from benchmarks.freshness_load import PAUSE_SECONDS, Load, run_load
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
from benchmarks.programs import run_program, wait_for

_CORES = 2
_FILES_PER_SECOND = 10
_WARM_UP_SECONDS = 30
_BUCKET = "bench"
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
_GOALS = {"p50": 3.0, "p99": 6.0}

ABOUT = [
    f"A producer lands {_FILES_PER_SECOND} files of {RECORDS} events a second in MinIO, `consumer run events` takes "
    "them as it does by default, and a reader asks DuckDB for new rows of bronze through one open session, "
    f"{PAUSE_SECONDS:g} s after its last answer. All of them, MinIO too, share {_CORES} cores. A file's time is that "
    "from the end of its PUT to the end of the first poll that has its rows.",
    f"The first {_WARM_UP_SECONDS} s of the load are not in the figures, unless they are said to be: the JVM is still "
    "compiling.",
    "Steps of a file's time: *waiting* for the micro-batch before, the trigger, the listing and the offsets; "
    "*planning* (names of the files, contract, what the tables hold); *judging*: reading, judging and writing data "
    "files; *committing* bronze; *reading*: until the next poll has the rows.",
]


def run(options: Options) -> Report:
    """Run the load once, for the time in the options."""
    about_machine = machine()
    files = (_WARM_UP_SECONDS + options.seconds) * _FILES_PER_SECOND
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="freshness-", dir=WORK) as folder, few_cores(_CORES), run_minio() as minio:
        minio.make_bucket(_BUCKET)
        busy = _load(Path(folder), minio, files)
        landed, consumed, polls = (read_notes(Path(folder) / name) for name in ("landed", "consumed", "polls"))
    try:
        every = journeys(landed, consumed, polls, RECORDS)
    except ValueError as error:
        raise SideFailedError(str(error)) from error
    warm = every[_WARM_UP_SECONDS * _FILES_PER_SECOND :]
    seconds = {name: percentile([one.seconds for one in warm], share) for name, share in _SHARES.items()}
    late = [file["at"] - file["due"] for file in landed]
    span = landed[-1]["at"] - landed[0]["at"]
    return Report(
        name="freshness",
        title="Freshness",
        about=ABOUT,
        goals=[
            Goal(f"{name}, landed to read", seconds[name], at_most=limit, unit="s") for name, limit in _GOALS.items()
        ],
        tables=[
            _journeys_table(warm, every),
            _triggers_table(consumed, polls),
            Table("Cores in use, of " + str(_CORES), ["program", "cores"], _busy_rows(busy, span)),
        ],
        machine=about_machine,
        options={
            "seconds": options.seconds,
            "events_a_second": round(len(landed) * RECORDS / span),
            "a_file_later_than_due": f"{percentile(late, 0.99):.3f} s (p99)",
        },
        histograms=[Histogram.of("From landed to read", "seconds", [one.seconds for one in warm], seconds)],
        raw={"percentiles": _percentiles(warm), "cpu_seconds": busy},
    )


def _percentiles(warm: Sequence[Journey]) -> dict[str, dict[str, float]]:
    """Return seconds of each step and in total, by percentile."""
    values = {step: [getattr(one, step) for one in warm] for step in STEPS} | {"all": [one.seconds for one in warm]}
    return {
        step: {f"p{share}": round(percentile(found, share / 100), 3) for share in (1, *range(5, 100, 5), 99)}
        for step, found in values.items()
    }


def _load(folder: Path, minio: Minio, files: int) -> dict[str, float]:
    """Run all programs until each landed file has been seen; return the processor time of each during the load."""
    environment = clean_environment(folder) | minio.lake(_BUCKET)
    consumed = folder / "consumed"
    with run_program("benchmarks.freshness_consumer", folder, environment, consumed) as consumer:
        wait_for(lambda: bool(read_notes(consumed)), [consumer])  # it has looked for files
        seconds = files / _FILES_PER_SECOND
        load = Load("benchmarks.freshness_lander", "landed", (files, _FILES_PER_SECOND), seconds, files)
        return run_load(folder, environment, consumer, ("MinIO", minio.pid), load)


def _journeys_table(warm: Sequence[Journey], every: Sequence[Journey]) -> Table:
    columns = ["seconds", "mean", *_SHARES]
    parts = {step: [getattr(one, step) for one in warm] for step in STEPS}
    parts |= {"all of it": [one.seconds for one in warm], "with the warm-up": [one.seconds for one in every]}
    rows = [
        [name, f"{mean(values):.2f}", *(f"{percentile(values, share):.2f}" for share in _SHARES.values())]
        for name, values in parts.items()
    ]
    return Table("From landed to read, file by file", columns, rows)


def _triggers_table(consumed: Sequence[dict[str, Any]], polls: Sequence[dict[str, Any]]) -> Table:
    warm = consumed[len(consumed) // 10 :]
    parts = {f"commit of {name.replace('_', ' ')}": values for name, values in commits(warm).items()}
    parts |= {"a poll of DuckDB": [poll["at"] - poll["began"] for poll in polls[len(polls) // 10 :]]}
    rows = [
        [name, f"{mean(values):.3f}", f"{percentile(values, 0.5):.3f}", f"{percentile(values, 0.99):.3f}"]
        for name, values in parts.items()
        if values
    ]
    return Table("Triggers and polls, without the first tenth", ["seconds", "mean", "p50", "p99"], rows)


def _busy_rows(busy: dict[str, float], span: float) -> list[list[str]]:
    return [[name, f"{seconds / span:.2f}"] for name, seconds in busy.items()]
