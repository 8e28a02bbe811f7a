"""From the notes of lander, consumer and poller to how fresh each file was, and where its time went."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

STEPS = ("waiting", "planning", "judging", "committing", "reading")
"""What a file's time is made of, in this order; see :class:`Journey`."""


@dataclass(frozen=True)
class Journey:
    """The way of a file from the landing zone to a reader; its steps make up its time without a gap.

    Parameters
    ----------
    landed
        When it was whole, in seconds since 1970.
    waiting
        Until Spark hands the micro-batch over: the trigger before, the trigger's pause, listing, offsets.
    planning
        Until the tasks begin: contract, names of the files, what the tables hold.
    judging
        Until the data files are written.
    committing
        Until bronze has its new snapshot.
    reading
        Until the poll that saw it had its rows.
    """

    landed: float
    waiting: float
    planning: float
    judging: float
    committing: float
    reading: float

    @property
    def seconds(self) -> float:
        """From landed to read."""
        return sum((float(getattr(self, step)) for step in STEPS), 0.0)


def read_notes(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines; a last line that is still being written is left out."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def journeys(
    landed: Iterable[dict[str, Any]], consumed: Iterable[dict[str, Any]], polls: Iterable[dict[str, Any]], records: int
) -> list[Journey]:
    """Put the notes together, file by file.

    Raises
    ------
    ValueError
        A file was never seen, or not all of it, or in two polls.
    """
    batches = {note["micro_batch"]: note for note in consumed if "micro_batch" in note}
    seen: dict[str, tuple[int, float]] = {}
    for poll in polls:
        for name, micro_batch, rows in poll["seen"]:
            if name in seen or rows != records:
                raise ValueError(f"{name} was seen twice, or with {rows} of its {records} rows.")
            seen[name] = (micro_batch, poll["at"])
    found = []
    for file in landed:
        if file["name"] not in seen:
            raise ValueError(f"{file['name']} was never seen.")
        micro_batch, at = seen[file["name"]]
        batch = batches[micro_batch]
        moments = [file["at"], batch["began"], batch["planned"], batch["judged"], batch["bronze"], at]
        found.append(Journey(file["at"], *(end - begin for begin, end in pairwise(moments))))
    return found


def durations(consumed: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
    """Take Spark's own times of the triggers that had rows, in seconds, by name."""
    found: dict[str, list[float]] = {}
    for note in consumed:
        progress = note.get("progress")
        if progress and progress["numInputRows"]:
            for name, milliseconds in progress["durationMs"].items():
                found.setdefault(name, []).append(milliseconds / 1000)
    return found


def commits(consumed: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
    """Take the times of the three commits of each micro-batch, in seconds."""
    order = ("judged", "bronze", "dead_letters", "ledger")
    found: dict[str, list[float]] = {name: [] for name in order[1:]}
    for note in consumed:
        if "micro_batch" in note:
            for before, name in pairwise(order):
                found[name].append(note[name] - note[before])
    return found


def mean(values: Sequence[float]) -> float:
    """The mean of some values."""
    return sum(values) / len(values)
