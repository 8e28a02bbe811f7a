"""Problems of a stream as messages, and since when they exist."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import ClassVar

from lakeproof.contracts import Contract
from lakeproof.state.lease import QueryState
from lakeproof.state.proofs import Proof, ProofOutcome
from lakeproof.wording import are, count_of
from reader.page.ledgers import Storm
from reader.page.model import Ledger, Level, Problem
from reader.page.state import Waiting

_PATIENCE = timedelta(minutes=1)  # for landed data to be consumed
_SILVER_PATIENCE = timedelta(minutes=5)
_PROOF_AGE = timedelta(days=1)
_LONGEST = 120  # characters of the name of a source
_WORDS = {
    "duplicates": "Duplicates: {0:,} of {1:,} rows ({2:.0%}) were sent again",
    "conflicts": "Conflicts: {0:,} of {1:,} rows ({2:.0%}) have a known key and other content",
    "late": "Late rows: {0:,} of {1:,} ({2:.0%}) came after the horizon had passed them, and are not in silver",
}


@dataclass(frozen=True)
class Facts:
    """Input of :func:`problems`."""

    shares: ClassVar[Mapping[str, Decimal]] = {
        "duplicates": Decimal("0.25"),
        "conflicts": Decimal("0.05"),
        "late": Decimal("0.05"),
    }
    """Share of the newest rows from which on a verdict is a problem."""

    contract: Contract
    missing: Sequence[str] = ()  # tables
    total: Ledger = field(default_factory=Ledger)
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # rows of tables, by metadata and by ledger
    broken: Mapping[str, str] = field(default_factory=dict)  # unreadable tables, with the error message
    waiting: Waiting = field(default_factory=lambda: Waiting(0))
    unit: str = "file"
    lease: QueryState = QueryState.NEVER
    silver_waits: datetime | None = None  # when the oldest micro-batch without verdicts was committed
    failures: Mapping[str, tuple[str, datetime]] = field(default_factory=dict)
    paused: datetime | None = None
    proof: Proof | None = None
    bad: Storm | None = None
    worst: str = ""  # the set of reasons with the most dead letters
    verdicts: Mapping[str, Storm | None] = field(default_factory=dict)
    is_applied: bool = True


def problems(facts: Facts) -> Sequence[Problem]:
    """Return the problems and notes for the operator, problems first."""
    found = [*_lost(facts), *_proof(facts), *_stopped(facts), *_storms(facts), *_notes(facts)]
    return sorted(found, key=lambda each: each.level is Level.NOTE)


def _lost(facts: Facts) -> Iterator[Problem]:
    verify = f"Run `reader verify {facts.contract.stream}`"
    for name in facts.missing:
        yield Problem(f"The table {name} is missing: restore it, or run the consumer")
    for name, why in facts.broken.items():
        yield Problem(f"{name} cannot be read: {why.rstrip('.')}")
    for name, (has, counted) in facts.counts.items():
        if has != counted:
            what = "missing" if has < counted else "too many"
            yield Problem(
                f"{name} has {count_of(has, 'row')}, and the ledger counted {counted:,}: "
                f"{are(abs(has - counted), 'row')} {what}. {verify}"
            )
    for names, text, since in (
        (
            facts.waiting.lost,
            f"lost: the consumer has passed it, and no table has its records. {verify}",
            facts.waiting.lost_since,
        ),
        (
            facts.waiting.gone,
            "gone: it disappeared before it was read, and the consumer waits for it",
            facts.waiting.since,
        ),
    ):
        if names:
            more = f" and {count_of(len(names) - 1, 'other file')}" if len(names) > 1 else ""
            yield Problem(f"The file {names[0][:_LONGEST]}{more} is {text}", since)


def _proof(facts: Facts) -> Iterator[Problem]:
    proof = facts.proof
    if proof is None:
        text = f"Nothing was proven yet: run `reader verify {facts.contract.stream}`"
        yield Problem(text, level=Level.NOTE)
    elif proof.outcome is ProofOutcome.FAILED:
        yield Problem(f"The last proof found {count_of(proof.faults, 'fault')}", proof.proven_at)
    elif proof.proven_at < datetime.now(UTC) - _PROOF_AGE:
        yield Problem("The last proof is more than a day old", proof.proven_at)


def _stopped(facts: Facts) -> Iterator[Problem]:
    waits = facts.waiting
    if facts.paused:
        yield Problem("The breaker has paused the stream: see `consumer status`", facts.paused)
    for query, (message, at) in facts.failures.items():
        yield Problem(f"The query {query} failed: {message.rstrip('.')}", at)
    if waits.problem:
        yield Problem(f"The backlog is unknown: {waits.problem.rstrip('.')}", level=Level.NOTE)
    is_old = waits.since is None or waits.since < datetime.now(UTC) - _PATIENCE
    if waits.count and is_old and waits.count > len(waits.gone):
        runs = "" if facts.lease is QueryState.RUNNING else ", and no consumer runs"
        waiting = f"{count_of(waits.count, facts.unit)} {'waits' if waits.count == 1 else 'wait'}"
        yield Problem(f"The consumer is behind: {waiting}{runs}", waits.since)
    if facts.silver_waits and facts.silver_waits < datetime.now(UTC) - _SILVER_PATIENCE:
        yield Problem(f"silver.{facts.contract.stream} is behind: rows of bronze wait for verdicts", facts.silver_waits)


def _storms(facts: Facts) -> Iterator[Problem]:
    if facts.bad:
        most = f", most often for {facts.worst}" if facts.worst else ""
        yield Problem(
            f"Too many bad units: {facts.bad.part:,} of {facts.bad.whole:,} "
            f"({facts.bad.part / facts.bad.whole:.0%}) became dead letters{most}{_first(facts.bad)}",
            facts.bad.since,
        )
    for name, storm in facts.verdicts.items():
        if storm:
            text = _WORDS[name].format(storm.part, storm.whole, storm.part / storm.whole)
            yield Problem(f"{text}{_first(storm)}", storm.since)


def _first(storm: Storm) -> str:
    return f"; first in {storm.source[:_LONGEST]}" if storm.source else ""


def _notes(facts: Facts) -> Iterator[Problem]:
    if facts.total.open and not facts.bad:
        yield Problem(f"{are(facts.total.open, 'dead letter')} open", level=Level.NOTE)
    if not facts.is_applied:
        text = "The file of the contract differs from the contract that was applied last"
        yield Problem(text, level=Level.NOTE)
