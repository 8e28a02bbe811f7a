"""Landed input of benchmarks, made once by the producer with a fixed seed, and kept in target/bench/inputs/."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import ROOT, WORK, clean_environment, module

STREAM = "events"
_SEED = 1
_START = "2026-11-21T08:00:00Z"
_LARGE_BYTES = 200_000_000
# The producer's files are all of one day; these dates spread them over days and months of one and two digits.
_DAY = b"2026-11-21"
_DAYS = (b"2026-01-31", b"2026-02-28", b"2026-03-01", b"2026-03-09", b"2026-07-10", b"2026-10-02", _DAY, b"2026-12-30")


@dataclass(frozen=True)
class Input:
    """A backlog of files.

    Parameters
    ----------
    files, records
        Number of files, and of records in each.
    style
        ``compact``, or ``spaced`` as Python's ``json.dumps`` writes.
    invalid, corrupt
        Share of records that break the contract, and of truncated files.
    duplicates
        Share of records that repeat an earlier one.
    days
        Whether the files are from several days.
    """

    files: int
    records: int = 1_000
    style: str = "compact"
    invalid: float = 0.0
    corrupt: float = 0.0
    duplicates: float = 0.0
    days: bool = True

    @property
    def name(self) -> str:
        """Name in a report."""
        return f"{self.style}, {self.invalid:.0%} bad"


@dataclass(frozen=True)
class Landed:
    """A backlog on disk.

    Parameters
    ----------
    root
        The landing zone (``LAKE_LANDING``); the files are below ``events/``.
    sound_files
        A JSON file with the paths of the files that are not truncated.
    """

    root: Path
    sound_files: Path

    @property
    def folder(self) -> Path:
        """Folder with the stream's files."""
        return self.root / STREAM

    @property
    def truth(self) -> dict[str, Any]:
        """The producer's report."""
        found: dict[str, Any] = json.loads((self.root.parent / "report.json").read_text())
        return found

    def paths(self) -> Iterator[Path]:
        """Return all files."""
        return (path for path in self.folder.rglob("*.json"))

    def bytes(self) -> int:
        """Return the total size of the files."""
        return sum(path.stat().st_size for path in self.paths())

    def warm_up(self) -> None:
        """Read all files once, so that each side finds them in the page cache."""
        for path in self.paths():
            path.read_bytes()


def land(wanted: Input) -> Landed:
    """Make a backlog, or return the one made earlier from the same inputs by the same producer."""
    folder = WORK / "inputs" / digest(wanted)
    if not folder.exists():
        new = _empty(folder.with_suffix(".new"))
        print(f"  making {wanted.files:,} files of {wanted.records:,} records, {wanted.name} …", flush=True)
        sizes = ("--batches", wanted.files, "--batch-size", wanted.records, "--seed", _SEED, "--start", _START)
        faults = ("--invalid-schema-chance", wanted.invalid, "--corruption-chance", wanted.corrupt)
        faults = (*faults, "--duplicate-chance", wanted.duplicates)
        target = ("--target", new / "landing" / STREAM, "--report", new / "report.json")
        command = module("producer", STREAM, *sizes, *faults, *target, "--json-style", wanted.style)
        subprocess.run(command, cwd=ROOT, env=clean_environment(new), check=True, capture_output=True)
        if wanted.days:
            vary_days(new / "landing" / STREAM)
        _finish(new, folder)
    return Landed(folder / "landing", folder / "sound.json")


def land_one_large() -> Landed:
    """Make a backlog of one 200 MB file, from the files of a sound backlog."""
    parts = Input(files=1_000)
    folder = WORK / "inputs" / f"{digest(parts)}-one"
    if not folder.exists():
        new = _empty(folder.with_suffix(".new"))
        one = new / "landing" / STREAM / "one.json"
        one.parent.mkdir(parents=True)
        with one.open("wb") as file:
            for path in sorted(land(parts).paths()):
                if file.tell() < _LARGE_BYTES:
                    file.write((b"," if file.tell() else b"[") + path.read_bytes()[1:-1])
            file.write(b"]")
        _finish(new, folder)
    return Landed(folder / "landing", folder / "sound.json")


def land_copies(wanted: Input, times: int) -> Landed:
    """Make a backlog with several hard links, under other names, to each file of another backlog."""
    folder = WORK / "inputs" / f"{digest(wanted)}-by-{times}"
    if not folder.exists():
        new = _empty(folder.with_suffix(".new"))
        source = land(wanted).folder
        for path in sorted(source.rglob("*.json")):
            for copy in range(times):
                target = (new / "landing" / STREAM / path.relative_to(source)).with_stem(f"{path.stem}-{copy:02d}")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.hardlink_to(path)
        _finish(new, folder)
    return Landed(folder / "landing", folder / "sound.json")


def vary_days(folder: Path) -> None:
    """Give the events of each file another day, in turn; everything else remains the same, byte for byte."""
    for number, path in enumerate(sorted(folder.rglob("*.json"))):
        path.write_bytes(path.read_bytes().replace(_DAY, _DAYS[number % len(_DAYS)]))


def digest(wanted: Input) -> str:
    """Return the name of an input, which changes with the input's properties, the producer and the contract."""
    code = sorted((ROOT / "src" / "producer").rglob("*.py"))
    parts = [json.dumps(asdict(wanted), sort_keys=True).encode(), _START.encode(), *_DAYS]
    parts += [path.read_bytes() for path in [*code, ROOT / "contracts" / f"{STREAM}.yaml"]]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _finish(new: Path, folder: Path) -> None:
    sound = [path.relative_to(new) for path in sorted((new / "landing").rglob("*.json")) if _is_json(path)]
    (new / "sound.json").write_text(json.dumps([str(folder / path) for path in sound]))
    new.rename(folder)


def _is_json(path: Path) -> bool:
    try:
        msgspec.json.decode(path.read_bytes(), type=list[msgspec.Raw])
    except msgspec.DecodeError:
        return False
    return True
