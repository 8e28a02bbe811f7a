"""What verify finds about the silver tables of a stream, in words."""

from collections.abc import Mapping
from dataclasses import dataclass

from reader.verify.silver.claims import Verdict
from reader.verify.tables import TableFinding

NOT_IN_BRONZE = "not in bronze"
DIFFERS = "differs from its row in bronze"
REPEATED = "several rows of one record"
WRONG_WINNER = "wrong winner"
WRONG_HORIZON = "wrong horizon"
WRONG_COUNTS = "wrong counts"
AHEAD = "in a micro-batch that was not decided"

_EACH = {
    Verdict.KEPT: "kept",
    Verdict.DUPLICATES: "a duplicate",
    Verdict.CONFLICTS: "a conflict",
    Verdict.LATE: "late",
}


def should_be(verdict: Verdict) -> str:
    """Of rows that are in the table of another verdict."""
    return f"should be {_EACH[verdict]}"


def missing(verdict: Verdict) -> str:
    """Of rows that are in no table."""
    return f"missing: should be {_EACH[verdict]}"


def place(source: str | None, position: int | None, text: str = "") -> str:
    """A row of bronze, with what is said of it."""
    where = f"{source}, position {position}" if source is not None else "no source"
    return f"{where}: {text}" if text else where


@dataclass(frozen=True)
class SilverVerification:
    """What verify found in the silver tables of a stream.

    Parameters
    ----------
    verdicts
        How many rows of bronze have which verdict, recomputed from bronze.
    undecided
        Rows of bronze in micro-batches that silver does not have yet.
    findings
        What is wrong with the tables.
    problems
        What is wrong with silver as a whole, in words.
    exists
        Whether the tables exist. If not, and that is no problem, they have not been filled yet.
    """

    verdicts: Mapping[Verdict, int]
    undecided: int
    findings: tuple[TableFinding, ...] = ()
    problems: tuple[str, ...] = ()
    exists: bool = True

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings and not self.problems
