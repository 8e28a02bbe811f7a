"""What the model's micro-batches are made of: files of many records and of few, several sizes of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.inputs import Input, Landed, land

LARGE, SMALL = 1_000, 50
"""Records of a file."""
_DUPLICATES, _INVALID = 0.05, 0.01


@dataclass(frozen=True)
class Round:
    """A micro-batch of so many files; one that is held out is predicted, and not fitted."""

    files: int
    records: int
    held_out: bool = False


def large_rounds(files: int) -> list[Round]:
    """Micro-batches of files of many records, the largest last: half as large again as any that is fitted."""
    fitted = [Round(max(files // part, 1), LARGE) for part in (8, 4, 2, 1)]
    return [*fitted, Round(files * 3 // 2, LARGE, held_out=True)]


def small_rounds(files: int) -> list[Round]:
    """Micro-batches of files of few records."""
    return [Round(max(count, 1), SMALL) for count in (files // 4, files // 2, files, files * 2)]


def backlog(records: int, files: int) -> Landed:
    """Enough files for one of each of these rounds, and for the first ones, which do not count."""
    rounds = large_rounds(files) if records == LARGE else small_rounds(files)
    count = 8 + sum(each.files for each in rounds)
    return land(Input(count, records, invalid=_INVALID, duplicates=_DUPLICATES, days=False))


def cut(folder: Path) -> Iterator[Path]:
    """The files of a backlog, one after the other."""
    return iter(sorted(folder.rglob("*.json")))


def linked(files: Iterator[Path], folder: Path, count: int) -> list[Path]:
    """Let the next files land in a folder, as hard links."""
    folder.mkdir(parents=True)
    found = []
    for path in islice(files, count):
        target = folder / path.name
        target.hardlink_to(path)
        found.append(target)
    if len(found) < count:
        raise AssertionError(f"The backlog has {count - len(found)} files too few.")
    return found
