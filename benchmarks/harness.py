"""Run the sides of a benchmark, and collect their figures.

A benchmark is a module ``benchmarks.<name>`` with ``run(options: Options) -> Report``; ``benchmarks/__main__.py`` lists
them, prints the report and writes it to docs/benchmarks/ (see :mod:`benchmarks.report`).
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import Bars, Goal, Histogram, Lines, Report, Table
from benchmarks.machine import ROOT, machine
from benchmarks.report import write_report
from benchmarks.rss import MemoryWatch, PeakMemory

__all__ = [
    "FOLDER_VARIABLE",
    "ROOT",
    "WORK",
    "Bars",
    "Goal",
    "Histogram",
    "Lines",
    "Options",
    "PeakMemory",
    "Report",
    "Sample",
    "Side",
    "SideFailedError",
    "Table",
    "clean_environment",
    "machine",
    "measure",
    "medians",
    "module",
    "run_side",
    "write_report",
]

WORK = ROOT / "target" / "bench"
FOLDER_VARIABLE = "BENCH_FOLDER"
"""Variable with a side's own folder for the run, which is empty at the start and deleted after the run."""

_LAST_LINES = 30


@dataclass(frozen=True)
class Options:
    """Size of a benchmark.

    Parameters
    ----------
    files
        Number of files in a backlog.
    repeat
        Number of runs of each side; the report has the median.
    seconds
        Duration of a steady load.
    predict
        Whether the model predicts from earlier measurements.
    """

    files: int = 1_000
    repeat: int = 3
    seconds: int = 300
    predict: bool = False


@dataclass(frozen=True)
class Side:
    """A program that a benchmark compares with others.

    Parameters
    ----------
    name
        Name in the report.
    command
        Command line; the last line of its output may be its figures as a JSON object.
    environment
        Added to :func:`clean_environment`. In the values, ``{folder}`` stands for the run's own folder and ``{run}``
        for the unique name of that folder.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """Measurements of one run of a side.

    Parameters
    ----------
    side
        Name of the side.
    seconds
        Time of the side's work (``seconds`` in its figures) if it prints that; else time of the whole process.
    process_seconds
        From the start of the process to its end.
    peak
        Highest resident memory.
    figures
        Figures printed by the side.
    cpu_seconds
        Processor time of the whole process tree: unlike the other figures, it does not depend on other load.
    """

    side: str
    seconds: float
    process_seconds: float
    peak: PeakMemory
    figures: dict[str, Any]
    cpu_seconds: float = 0.0

    @property
    def peak_rss_mib(self) -> float:
        """Highest resident memory of the whole process tree, in MiB."""
        return self.peak.total

    def as_dict(self) -> dict[str, Any]:
        """Return the sample as a dictionary for a JSON file."""
        return asdict(self)


class SideFailedError(Exception):
    """A side ended with an error and has no figures."""


def module(name: str, *arguments: object) -> tuple[str, ...]:
    """Return the command for a Python module in this environment, e.g. ``consumer`` or ``benchmarks.sides.usual``."""
    return (sys.executable, "-m", name, *(str(argument) for argument in arguments))


def clean_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a side: an embedded lake in `folder`, without the caller's ``LAKE_*`` and ``AWS_*``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LAKE_", "AWS_"))}
    return kept | {
        FOLDER_VARIABLE: str(folder),
        "LAKE_HOME": str(folder / "lake"),
        "LAKE_CONTRACTS": str(ROOT / "contracts"),
        "LAKE_JARS": str(ROOT / "target" / "jars" / "spark"),
        "LAKE_SPARK_UI_PORT": "0",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def run_side(side: Side) -> Sample:
    """Run a side once, in its own empty folder.

    Raises
    ------
    SideFailedError
        The side ended with an error; the message has the last lines of its output.
    """
    (WORK / "runs").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_slug(side.name)}-", dir=WORK / "runs"))
    try:
        own = {name: text.format(folder=folder, run=folder.name) for name, text in side.environment.items()}
        outcome = folder / "stdout", folder / "stderr"
        # Files, not pipes: a JVM that ends a moment after its driver keeps a pipe open.
        with outcome[0].open("wb") as output, outcome[1].open("wb") as errors:
            began = time.monotonic()
            process = subprocess.Popen(
                side.command, cwd=ROOT, env=clean_environment(folder) | own, stdout=output, stderr=errors
            )
            try:
                with MemoryWatch(process.pid) as memory:
                    process.wait()
            finally:
                process.kill()
            took = time.monotonic() - began
        if process.returncode:
            last = "\n".join([line for path in outcome for line in path.read_text().splitlines()][-_LAST_LINES:])
            raise SideFailedError(f"{side.name} ended with exit code {process.returncode}:\n{last}")
        figures = last_line_figures(outcome[0].read_text())
        return Sample(side.name, float(figures.get("seconds", took)), took, memory.peak, figures, memory.cpu_seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(sides: Sequence[Side], repeat: int) -> list[Sample]:
    """Run all sides `repeat` times, in turns (A B C A B C …), so that a slow minute affects all of them."""
    samples = []
    for turn in range(repeat):
        for side in sides:
            sample = run_side(side)
            print(
                f"  {turn + 1}/{repeat} {side.name}: {sample.seconds:.2f} s, {sample.peak_rss_mib:.0f} MiB", flush=True
            )
            samples.append(sample)
    return samples


def medians(samples: Sequence[Sample]) -> dict[str, Sample]:
    """Return the median of each side's runs by figure; figures that are not numbers are from the first run."""
    by_side: dict[str, list[Sample]] = {}
    for sample in samples:
        by_side.setdefault(sample.side, []).append(sample)
    return {name: _median(runs) for name, runs in by_side.items()}


def last_line_figures(output: str) -> dict[str, Any]:
    """Return the JSON object in the last line of an output; empty if the line is not a JSON object."""
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _median(runs: Sequence[Sample]) -> Sample:
    first = runs[0]
    peaks = [asdict(run.peak) for run in runs]
    return Sample(
        first.side,
        statistics.median(run.seconds for run in runs),
        statistics.median(run.process_seconds for run in runs),
        PeakMemory(**{part: statistics.median(peak[part] for peak in peaks) for part in peaks[0]}),
        {
            name: statistics.median(run.figures[name] for run in runs)
            if isinstance(value, int | float) and all(name in run.figures for run in runs)
            else value
            for name, value in first.figures.items()
        },
        statistics.median(run.cpu_seconds for run in runs),
    )


def _slug(name: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in name).strip("-")
