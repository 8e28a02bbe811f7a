"""Description of the machine that runs a benchmark."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
_PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "duckdb", "dlt")


def machine() -> dict[str, str]:
    """Return the machine's hardware and current load, the commit and the versions."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "CPU": _cpu_model(),
        "memory": f"{psutil.virtual_memory().total / 1024**3:.1f} GiB",
        "load at the start": f"{os.getloadavg()[0]:.2f} (1 minute)",
        "commit": _commit(),
        "versions": ", ".join(_versions()),
    }


@contextmanager
def few_cores(cores: int) -> Iterator[None]:
    """Limit this process and its children to a number of cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _commit() -> str:
    commit = _said("git", "rev-parse", "--short", "HEAD")
    changed = _said("git", "status", "--porcelain", "--untracked-files=no", "--", "src", "contracts", "benchmarks")
    return f"{commit} with changes" if changed else commit


def _versions() -> list[str]:
    found = [f"Python {sys.version.split()[0]}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    jars = (ROOT / "target" / "jars" / "spark").glob("iceberg-spark-runtime-*.jar")
    return found + [f"Iceberg {jar.stem.rpartition('-')[2]}" for jar in jars]


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
