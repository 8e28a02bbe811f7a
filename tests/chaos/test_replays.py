"""The short form of `make chaos ARGS="--part replay"` and of the breaker's part, and bugs that they must detect."""

from collections.abc import Callable

import pytest
from tests.chaos.bench import Bench
from tests.chaos.grid import Outcome, Verdict
from tests.chaos.letters import Letters, of_kind
from tests.chaos.mutants import Mutant
from tests.chaos.orders import Step
from tests.chaos.replays import By

from lakeproof.reasons import Reason
from producer.batches import Batch, Record

Run = Callable[[Bench, str], Outcome]


def killed(step: Step, by: By) -> str:
    return f"a replay killed {step}, finished by {by}"


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize(
    ("mutant", "name", "what"),
    [
        (Mutant.INTERRUPTED_REPLAYS_FORGOTTEN, killed(Step.ATTEMPTS_APPENDED, By.RUN), "lost"),
        (Mutant.ATTEMPTS_LAST, killed(Step.BRONZE_APPENDED, By.RUN), "lost"),
        (Mutant.NO_MARKER_CHECK_IN_REPLAYS, killed(Step.BRONZE_APPENDED, By.REPLAY), "doubled"),
        (Mutant.CLOSED_TRIED_AGAIN, killed(Step.ATTEMPTS_APPENDED, By.REPLAY), "doubled"),
        (Mutant.REST_NOT_SALVAGED, killed(Step.ATTEMPTS_APPENDED, By.REPLAY), "lost"),
        (Mutant.NEVER_PARKED, killed(Step.ATTEMPTS_APPENDED, By.REPLAY), "lost"),
        (Mutant.FAILED_CLOSED, killed(Step.ATTEMPTS_APPENDED, By.REPLAY), "lost"),
    ],
)
def test_a_mutant_of_replays_is_seen(
    mutant_bench: Callable[[Mutant], Bench], run: Run, mutant: Mutant, name: str, what: str
) -> None:
    outcome = run(mutant_bench(mutant), name)
    assert outcome.verdict is Verdict.RED
    assert outcome.hits
    assert {"lost": outcome.lost, "doubled": outcome.doubled}[what]


@pytest.mark.spark
@pytest.mark.long
def test_replays_that_the_ledger_lacks_are_seen_by_verify(mutant_bench: Callable[[Mutant], Bench], run: Run) -> None:
    outcome = run(mutant_bench(Mutant.NO_REPLAYS_IN_LEDGER), killed(Step.BEFORE_JUDGEMENT, By.REPLAY))
    assert outcome.verdict is Verdict.RED
    assert "verify: exit code 1" in outcome.problems[-1]


@pytest.mark.spark
@pytest.mark.long
def test_a_restart_that_forgets_a_pause_is_seen(mutant_bench: Callable[[Mutant], Bench], run: Run) -> None:
    outcome = run(mutant_bench(Mutant.PAUSES_FORGOTTEN), "killed after a pause was recorded, checkpoint lost")
    assert outcome.verdict is Verdict.RED
    assert outcome.problems[0].startswith("it did not pause, but runs")


def record(number: int, *reasons: Reason) -> Record:
    return Record(f'{{"event_id":"{number}","event_type":"purchase"}}'.encode(), reasons)


def batch(*records: Record, corrupt: bool = False) -> Batch:
    return Batch("a", b"", records, corrupt)


def test_what_becomes_of_records_that_were_refused() -> None:
    letters = Letters()
    landed = of_kind(batch(record(0), record(1), record(2, Reason.MISSING_FIELD)), "new", every=1)
    assert [each.reasons for each in landed.records] == [(Reason.NOT_ALLOWED,)] * 2 + [(Reason.MISSING_FIELD,)]
    letters.landed("a", landed, "new")
    letters.replayed()
    assert letters.bronze.total() == 0
    letters.allow("new")
    letters.replayed()
    letters.replayed()
    assert letters.bronze == {("a", 0): 1, ("a", 1): 1}
    assert letters.tried == {
        ("a", position, 1, attempt, outcome): 1
        for position, *outcomes in [(0, "failed", "closed"), (1, "failed", "closed"), (2, "failed", "parked")]
        for attempt, outcome in enumerate(outcomes, start=2)
    }


def test_what_becomes_of_a_batch_that_was_cut_short() -> None:
    letters = Letters()
    landed = of_kind(batch(*(record(number) for number in range(8)), corrupt=True), "new", every=2)
    complete = landed.data.count(b"}")
    assert 3 < complete < 8
    letters.landed("a", landed, "new")
    letters.replayed()
    assert letters.bronze == {("a", position): 1 for position in range(1, complete, 2)}
    assert letters.left == {("a", position): 1 for position in (*range(0, complete, 2), complete)}
    assert letters.tried == {("a", 0, 1, 2, "closed"): 1}
    letters.allow("new")
    letters.replayed()
    assert letters.bronze == {("a", position): 1 for position in range(complete)}
    assert letters.tried["a", complete, 2, 2, "failed"] == 1
