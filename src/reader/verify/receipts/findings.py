"""What verify finds of receipts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reader.verify.tables import TableFinding


class Outcome(StrEnum):
    """What became of an event that has a receipt."""

    KEPT = "kept"
    """In bronze once, and in silver."""
    DUPLICATE = "duplicate"
    """In bronze once; silver has another copy of it."""
    CONFLICT = "conflict"
    """In bronze once, and among the conflicts: silver has another event with its key."""
    LATE = "late"
    """In bronze once, and among the late rows."""
    BRONZE = "bronze"
    """In bronze once; the stream has no silver."""
    DEAD_LETTER = "dead letter"
    """It does not meet its contract."""
    UNDECIDED = "undecided"
    """In bronze once; silver has not read it yet."""
    PENDING = "pending"
    """Not consumed yet."""
    LOST = "lost"
    """In no table."""
    DOUBLED = "doubled"
    """In several rows of bronze and the dead letters."""
    LOST_IN_SILVER = "lost in silver"
    """Silver has read it, and no table of silver has it."""
    DOUBLED_IN_SILVER = "doubled in silver"
    """Silver has several rows with its key."""
    FOREIGN = "foreign"
    """Of a topic that the stream does not come from."""

    @property
    def off(self) -> bool:
        """Whether the promise is broken."""
        return self in _BROKEN


_BROKEN = {Outcome.LOST, Outcome.DOUBLED, Outcome.LOST_IN_SILVER, Outcome.DOUBLED_IN_SILVER, Outcome.FOREIGN}


@dataclass(frozen=True)
class ReceiptsVerification:
    """What became of all receipts.

    Parameters
    ----------
    receipts
        Different ones in the file.
    outcomes
        How many are what.
    findings
        What is wrong, with examples.
    conflicts
        Sources of some events that are conflicts: the client sent another event with the same identity.
    """

    receipts: int
    outcomes: Mapping[Outcome, int]
    findings: tuple[TableFinding, ...]
    conflicts: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def waiting(self) -> int:
        """How many are not in their final place yet."""
        return self.outcomes[Outcome.PENDING] + self.outcomes[Outcome.UNDECIDED]
