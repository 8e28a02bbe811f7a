"""Outcomes of the scenarios: verdicts, and the grid."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rich.table import Table
from rich.text import Text


class Verdict(StrEnum):
    """Verdict on a scenario."""

    GREEN = "green"
    RED = "red"
    NOT_POSSIBLE = "not possible here"


@dataclass
class Outcome:
    """Outcome of a scenario on one storage.

    Parameters
    ----------
    hits
        How often the fault really struck.
    lost, doubled
        Units that no table has; rows without a unit of their own. Both are counted by the harness itself.
    problems
        Other problems, as text.
    notes
        Remarks.
    possible
        Whether this machine allows the fault.
    """

    hits: int = 0
    lost: int = 0
    doubled: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    possible: bool = True

    @property
    def harmless(self) -> bool:
        """Whether nothing was found, so far."""
        return not (self.lost or self.doubled or self.problems)

    @property
    def verdict(self) -> Verdict:
        """Green only if the fault struck and did no harm."""
        if not self.possible:
            return Verdict.NOT_POSSIBLE
        return Verdict.GREEN if self.hits and self.harmless else Verdict.RED

    def why(self) -> list[str]:
        """Return the reasons for the verdict, and remarks."""
        return (["the fault never struck"] if self.possible and not self.hits else []) + self.problems + self.notes


@dataclass(frozen=True)
class Row:
    """A row of the grid."""

    scenario: str
    storage: str
    outcome: Outcome
    seconds: float


_HEADINGS = ("scenario", "storage", "hits", "lost", "doubled", "seconds", "verdict", "notes")
_STYLES = {Verdict.GREEN: "green", Verdict.RED: "bold red", Verdict.NOT_POSSIBLE: "yellow"}


def passed(rows: Sequence[Row]) -> bool:
    """Return whether all possible scenarios are green, and at least one is."""
    verdicts = [row.outcome.verdict for row in rows]
    return Verdict.RED not in verdicts and Verdict.GREEN in verdicts


def as_table(rows: Iterable[Row]) -> Table:
    """Return the grid as a table for the terminal."""
    table = Table(title="Chaos")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in ("hits", "lost", "doubled", "seconds") else "left")
    for row in rows:
        *cells, verdict, notes = _cells(row)
        table.add_row(*cells, Text(verdict, _STYLES[row.outcome.verdict]), Text(notes))
    return table


def as_markdown(rows: Iterable[Row]) -> str:
    """Return the grid as a Markdown table."""
    lines = [_HEADINGS, ["---"] * 2 + ["---:"] * 4 + ["---"] * 2]
    lines += [[cell.replace("|", "\\|") for cell in _cells(row)] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(row: Row) -> list[str]:
    outcome = row.outcome
    numbers = [str(outcome.hits), str(outcome.lost), str(outcome.doubled), f"{row.seconds:.0f}"]
    return [row.scenario, row.storage, *numbers, outcome.verdict, "; ".join(outcome.why())]
