"""A stream with maintenance for minutes or hours: memory, files, snapshots and times do not grow."""

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import (
    WORK,
    Goal,
    Lines,
    Options,
    Report,
    SideFailedError,
    Table,
    clean_environment,
    machine,
    module,
)
from benchmarks.machine import ROOT
from benchmarks.rss import memory_by_part
from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings, settings_of

_STREAM = "events"
_EVERY_SECONDS = 5.0
_PLOTTED = 6  # one sample in so many is plotted and kept: goals and medians are of all
_FILES_PER_SECOND = 2.0
_AT_MOST = 1.3
_PARTS = 3
_TABLES = ("bronze.events", "silver.events", "ledger.events", "gold.user_activity")
_OF_PARTS = {"JVM, MiB": "jvm", "driver's Python, MiB": "driver", "workers, MiB": "workers"}
_SETTINGS = {
    "LAKE_MAINTENANCE_EVERY_MINUTES": "0.5",
    "LAKE_MAINTENANCE_KEEP_HOURS": "0.01",
    "LAKE_SETTLE_SECONDS": "0",
}
# Shorter than the warm-up: the rows that silver compares with, and those of a window, grow until then.
_HORIZON = "  - property: silverHorizon\n    value: 5 minutes\n"
_WINDOW = "5 minutes"
Sample = dict[str, float]

ABOUT = [
    f"`consumer run events --maintain` on a local disk while {_FILES_PER_SECOND:g} files of 100 records land each "
    "second, with all layers, a maintenance each half minute, snapshots kept for 36 seconds, a horizon of silver and "
    f"windows of gold of {_WINDOW}, so that an hour has as many of each as weeks have. Each goal sets the last third "
    "of the time against the second one; the first third is the warm-up. Memory: of the whole tree of processes, with "
    "what they share counted once. A trigger is a micro-batch of bronze, from its beginning to its last commit. Files "
    "and snapshots: the most of bronze, silver, gold and the ledger together. An hour: `make soak`."
]


def run(options: Options) -> Report:
    """Run the stream for the time in the options, and sample it every few seconds."""
    about_machine = machine()
    WORK.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="soak-", dir=WORK) as folder:
        samples, notes, maintained, failed = _soak(Path(folder), options.seconds)
    figures = {name: [sample[name] for sample in samples] for name in samples[0] if name not in ("at", "absolute")}
    timed = {
        "commit, s": [each for each in notes if each["what"] == "commit"],
        "trigger, s": [each for each in notes if each["what"] == f"bronze-{_STREAM}"],
    }
    at = [round(sample["at"]) for sample in samples]
    for name, found in timed.items():
        figures[name] = _medians(found, samples)
    goals = [
        Goal(f"{name}, last third over the second", _growth(values), at_most=_AT_MOST)
        for name, values in figures.items()
    ]
    goals.append(Goal("maintenances that failed", float(len(failed)), at_most=0))
    rows = [
        [name, *(f"{statistics.median(part):,.3g}" for part in _parts(values)), f"{max(values):,.3g}"]
        for name, values in figures.items()
    ]
    return Report(
        name="soak",
        title="Soak",
        about=[
            *ABOUT,
            f"{maintained:,} tables were maintained in {options.seconds:,} seconds.",
            *(f"Maintenance of {each['table']} failed: {each['problem']}" for each in failed[:3]),
        ],
        goals=goals,
        tables=[Table("Medians", ["what", "first third", "second", "last", "most"], rows)],
        machine=about_machine | {"load at the end": f"{os.getloadavg()[0]:.2f} (1 minute)"},
        options={"seconds": options.seconds, "files_per_second": _FILES_PER_SECOND},
        lines=[
            Lines(name, "seconds", name, [float(each) for each in at[::_PLOTTED]], {name: values[::_PLOTTED]})
            for name, values in figures.items()
        ],
    )


def _soak(folder: Path, seconds: float) -> tuple[list[Sample], list[dict[str, Any]], int, list[dict[str, Any]]]:
    """Return the samples, the consumer's timings, the number of maintenances, and the failed ones."""
    environment = clean_environment(folder) | _SETTINGS | _definitions(folder)
    own = {name: value for name, value in environment.items() if name.startswith("LAKE_")}
    settings = settings_of(own)
    notes, log = folder / "notes", folder / "consumer.log"
    lander = module(
        "benchmarks.freshness_lander", folder / "landed", int(seconds * _FILES_PER_SECOND), _FILES_PER_SECOND
    )
    arguments = (notes, "run", _STREAM, "--maintain", "--trigger", "1 second")
    (folder / "lake" / "landing").mkdir(parents=True)
    with log.open("wb") as output:
        consumer = subprocess.Popen(
            module("benchmarks.sides.soak_consumer", *arguments),
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
        )
        landing = subprocess.Popen(lander, cwd=ROOT, env=environment, stdout=output, stderr=output)
        try:
            samples = _watch(settings, consumer, seconds)
            consumer.send_signal(signal.SIGTERM)
            consumer.wait(120)
        finally:
            landing.kill()
            consumer.kill()
    said = [json.loads(line) for line in log.read_text().splitlines() if line[:1] == "{"]
    if consumer.returncode:
        ended = [line for line in said if line["event"] == "failed"]
        raise SideFailedError(f"the consumer ended with {consumer.returncode}: {ended[:3]}")
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    failed = [line for line in said if line["event"] == "maintenance failed"]
    return samples, lines, sum(line["event"] == "maintained" for line in said), failed


def _definitions(folder: Path) -> dict[str, str]:
    """Write a contract and a data product whose state is short; return the settings with their folders."""
    contracts, gold = folder / "contracts", folder / "gold"
    contracts.mkdir()
    gold.mkdir()
    contract = (ROOT / "contracts" / f"{_STREAM}.yaml").read_text()
    before, heading, rest = contract.partition("schema:\n")
    (contracts / f"{_STREAM}.yaml").write_text(before + _HORIZON + heading + rest)
    product = (ROOT / "gold" / "user_activity.yaml").read_text()
    (gold / "user_activity.yaml").write_text(product.replace("size: 1 hour", f"size: {_WINDOW}"))
    return {"LAKE_CONTRACTS": str(contracts), "LAKE_GOLD": str(gold)}


def _watch(settings: Settings, consumer: "subprocess.Popen[bytes]", seconds: float) -> list[Sample]:
    samples, began = [], time.time()
    while (now := time.time()) < began + seconds and consumer.poll() is None:
        memory = memory_by_part(consumer.pid)
        used = {"memory, MiB": sum(memory.values())} | {name: memory.get(part, 0.0) for name, part in _OF_PARTS.items()}
        samples.append({"at": now - began} | used | _sizes(settings) | {"absolute": now})
        time.sleep(max(now + _EVERY_SECONDS - time.time(), 0))
    return samples


def _sizes(settings: Settings) -> Sample:
    catalog, files, snapshots = open_catalog(settings), 0, 0
    for name in _TABLES:
        if catalog.table_exists(name):
            table = catalog.load_table(name)
            newest = table.current_snapshot()
            files += int((newest.summary or {})["total-data-files"] or 0) if newest else 0
            snapshots += len(table.snapshots())
    return {"data files": float(files), "snapshots": float(snapshots)}


def _medians(notes: Sequence[dict[str, Any]], samples: Sequence[Sample]) -> list[float]:
    """Return the median timing between each sample and the one before; the last median if there are no timings."""
    found, last, before = [], 0.0, 0.0
    for sample in samples:
        seconds = [each["seconds"] for each in notes if before < each["at"] <= sample["absolute"]]
        last = statistics.median(seconds) if seconds else last
        before = sample["absolute"]
        found.append(round(last, 4))
    return found


def _parts(values: Sequence[float]) -> list[Sequence[float]]:
    """Split values into three parts of about the same length."""
    length = max(len(values) // _PARTS, 1)
    return [values[:length], values[length : 2 * length] or values, values[2 * length :] or values]


def _growth(values: Sequence[float]) -> float:
    """Return the ratio of the medians of the last part and the one before."""
    _, middle, last = (statistics.median(part) for part in _parts(values))
    return last / middle if middle else 1.0
