"""Take the measurements for the capacity model: each phase, layer and commit at several sizes.

Each group of measurements is a side (``benchmarks/sides/model_*.py``) in its own process.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.servers import RestCatalogServer

from benchmarks.harness import WORK, Options, Side, module, run_side
from benchmarks.minio import run_minio
from benchmarks.model_inputs import LARGE, SMALL, backlog

CORES = (1, 2, 4)
DELAYS = (0.05, 0.25, 1.0, 5.0)
_BUCKET = "bench"
_FITTED_SNAPSHOTS = (0.25, 1, 2, 4)
_HELD_OUT_SNAPSHOTS = 8


def sizes(options: Options) -> int:
    """Return the number of files of the largest fitted micro-batch."""
    return max(options.files * 2 // 5, 16)


Samples = list[dict[str, Any]]
Environment = Mapping[str, str]


def landed(files: int) -> dict[str, str]:
    """Return backlogs for micro-batches of up to a number of files, as variables of a side."""
    found = {"MODEL_LARGE": backlog(LARGE, files), "MODEL_SMALL": backlog(SMALL, files)}
    return {name: str(each.folder) for name, each in found.items()}


def measure(options: Options) -> dict[str, Samples]:
    """Take all measurements; return samples by kind."""
    files = sizes(options)
    environment = landed(files)
    return {name: take(environment, files, options.repeat) for name, take in KINDS.items()}


def _phases(environment: Environment, files: int, repeat: int) -> Samples:
    return _side("phases", environment, files, repeat)


def _layers(environment: Environment, files: int, repeat: int) -> Samples:
    return [
        {"turn": turn} | each
        for turn in range(repeat)
        for cores in CORES
        for each in _side("layers", environment, cores, files)
    ]


def _triggers(environment: Environment, files: int, _: int) -> Samples:
    return _side("layers", environment, 2, files, "stream")


def _commits(environment: Environment, files: int, _: int) -> Samples:
    snapshots = [round(files * times) for times in (*_FITTED_SNAPSHOTS, _HELD_OUT_SNAPSHOTS)]
    return _side("commits", environment, *snapshots)


def _latency(environment: Environment, files: int, _: int) -> Samples:
    WORK.mkdir(parents=True, exist_ok=True)
    with run_minio() as minio, tempfile.TemporaryDirectory(dir=WORK) as folder:
        minio.make_bucket(_BUCKET)
        lake = minio.lake(_BUCKET)
        with RestCatalogServer(Path(folder) / "catalog", lake["LAKE_WAREHOUSE"], minio.settings()) as catalog:
            ports = catalog.port, minio.endpoint_url.rpartition(":")[2]
            return _side("latency", {**environment, **lake}, *ports, files, *DELAYS)


# The longest one last: errors show early.
KINDS: dict[str, Callable[[Environment, int, int], Samples]] = {
    "triggers": _triggers,
    "commits": _commits,
    "latency": _latency,
    "phases": _phases,
    "layers": _layers,
}


def _side(name: str, environment: Environment, *arguments: object) -> Samples:
    began = time.monotonic()
    side = Side(f"model {name}", module(f"benchmarks.sides.model_{name}", *arguments), environment)
    samples: Samples = run_side(side).figures["samples"]
    print(f"  {name} {' '.join(map(str, arguments))}: {time.monotonic() - began:.0f} s", flush=True)
    return samples
