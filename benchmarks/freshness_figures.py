"""Compute the freshness of each file, and the time of each step, from the notes of lander, consumer and poller."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

STEPS = ("waiting", "planning", "judging", "committing", "reading")
"""The steps of a file's time, in order; see :class:`Journey`."""


@dataclass(frozen=True)
class Journey:
    """Times of a file from the landing zone to a reader; the steps follow each other without a gap.

    Parameters
    ----------
    landed
        Time when the file was complete, in seconds since 1970.
    waiting
        Until the micro-batch is formed: the previous one, the trigger's interval, listing, the landing log.
    planning
        Until the tasks start: contract, names of the files, contents of the tables.
    judging
        Until the data files are written.
    committing
        Until bronze has its new snapshot.
    reading
        Until the poll that found its rows has received them.
    """

    landed: float
    waiting: float
    planning: float
    judging: float
    committing: float
    reading: float

    @property
    def seconds(self) -> float:
        """Seconds from landed to read."""
        return sum((float(getattr(self, step)) for step in STEPS), 0.0)


def read_notes(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, except for a last line that is still being written."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def journeys(
    landed: Iterable[dict[str, Any]], consumed: Iterable[dict[str, Any]], polls: Iterable[dict[str, Any]], records: int
) -> list[Journey]:
    """Combine the notes by file.

    Raises
    ------
    ValueError
        A file was never seen, was seen in part, or was seen in two polls.
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


def commits(consumed: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the times of the three commits of each micro-batch, in seconds."""
    order = ("judged", "bronze", "dead_letters", "ledger")
    found: dict[str, list[float]] = {name: [] for name in order[1:]}
    for note in consumed:
        if "micro_batch" in note:
            for before, name in pairwise(order):
                found[name].append(note[name] - note[before])
    return found


def mean(values: Sequence[float]) -> float:
    """Return the mean of values."""
    return sum(values) / len(values)
