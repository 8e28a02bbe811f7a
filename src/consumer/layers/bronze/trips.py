"""Texts that describe a trip of the breaker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MICRO_BATCH = "micro-batch"
"""The scope of the count, if it is not a length of time."""
_MOST_REASONS = 3


@dataclass(frozen=True)
class BadUnit:
    """A bad unit."""

    source: str
    position: int
    reason: str  # code of the first reason
    path: str
    detail: str  # cut, and printable
    raw: str  # the first bytes as text, printable

    def __str__(self) -> str:
        return f"{self.source}, position {self.position}: {self.reason} at {self.path}, {self.detail}: {self.raw}"


def described(facts: Mapping[str, Any]) -> str:
    """Describe a trip in a sentence."""
    where = "a micro-batch" if facts["over"] == MICRO_BATCH else f"the last {facts['over']}"
    reasons = ", ".join(f"{codes} {count:,}" for codes, count in list(facts["reasons"].items())[:_MOST_REASONS])
    return (
        f"{facts['bad']:,} of {facts['units']:,} units of {where} are bad ({facts['share']:.1%}; the breaker of "
        f"contract {facts['contract']} trips at {facts['limit']['share']:.4g} of {facts['limit']['units']:,} units or "
        f"more). Reasons: {reasons}"
    )


def ways_on(stream: str) -> str:
    """Return a hint with the options of an operator."""
    return (
        f"Correct the contract, run `lakeproof contract apply {stream}`, and run the consumer again: it judges the "
        f"same units again. Or run `consumer accept {stream}`: the next run commits them as they are, the bad ones as "
        "dead letters, which can be replayed later."
    )
