"""Decide the rows of keys with several rows, one after the other, as the definition of the verdicts says."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Verdict on a row of bronze; the values are column names of the silver ledger."""

    KEPT = "kept"
    DUPLICATES = "duplicates"
    CONFLICTS = "conflicts"
    LATE = "late"


@dataclass(frozen=True)
class Claim:
    """A row of bronze whose key occurs in other rows, too.

    `number` and `key` are in the order of the stream, times are in microseconds since 1970, and rows with the same key
    and the same content have the same `content` number.
    """

    number: int
    key: int
    event_time: int | None
    horizon: int | None
    content: int


class Arbiter:
    """Decides claims in order; the claims of a key are consecutive."""

    def __init__(self) -> None:
        self._kept: Claim | None = None

    def decide(self, claim: Claim) -> tuple[Verdict, int | None]:
        """Return the verdict and, if the claim lost, the number of the row that was kept for the key."""
        kept = self._kept
        if kept and kept.key == claim.key and not _is_before(kept.event_time, claim.horizon):
            return (Verdict.DUPLICATES if kept.content == claim.content else Verdict.CONFLICTS), kept.number
        if _is_before(claim.event_time, claim.horizon):
            return Verdict.LATE, None
        self._kept = claim
        return Verdict.KEPT, None


def _is_before(event_time: int | None, horizon: int | None) -> bool:
    return event_time is not None and horizon is not None and event_time < horizon
