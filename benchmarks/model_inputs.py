"""Input of the model's micro-batches: files with many records and with few, each in several sizes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.inputs import Input, Landed, land

LARGE, SMALL = 1_000, 50
"""Records per file."""
_DUPLICATES, _INVALID = 0.05, 0.01


@dataclass(frozen=True)
class Round:
    """A micro-batch with a number of files; if it is held out, it is predicted and not fitted."""

    files: int
    records: int
    held_out: bool = False


def large_rounds(files: int) -> list[Round]:
    """Return micro-batches of files with many records; the last is held out, at 1.5 times the largest fitted size."""
    fitted = [Round(max(files // part, 1), LARGE) for part in (8, 4, 2, 1)]
    return [*fitted, Round(files * 3 // 2, LARGE, held_out=True)]


def small_rounds(files: int) -> list[Round]:
    """Return micro-batches of files with few records."""
    return [Round(max(count, 1), SMALL) for count in (files // 4, files // 2, files, files * 2)]


def backlog(records: int, files: int) -> Landed:
    """Make a backlog with enough files for one of each round, and for the warm-up."""
    rounds = large_rounds(files) if records == LARGE else small_rounds(files)
    count = 8 + sum(each.files for each in rounds)
    return land(Input(count, records, invalid=_INVALID, duplicates=_DUPLICATES, days=False))


def cut(folder: Path) -> Iterator[Path]:
    """Return an iterator over the files of a backlog."""
    return iter(sorted(folder.rglob("*.json")))


def linked(files: Iterator[Path], folder: Path, count: int) -> list[Path]:
    """Land the next files in a folder, as hard links."""
    folder.mkdir(parents=True)
    found = []
    for path in islice(files, count):
        target = folder / path.name
        target.hardlink_to(path)
        found.append(target)
    if len(found) < count:
        raise AssertionError(f"The backlog has {count - len(found)} files too few.")
    return found
