"""The short form of `make chaos ARGS="--source kafka"`, and the checks that the long form relies on."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.chaos.bench import Bench
from tests.chaos.grid import Outcome, Verdict
from tests.chaos.kafka.modes import WATERMARK, WINDOW, in_order
from tests.chaos.kafka.sinks import Shown, compare
from tests.chaos.mutants import Mutant
from tests.chaos.orders import Step
from tests.consumer.modes.model import expected

Run = Callable[[Bench, str], Outcome]
BROKER_KILLED = f"broker killed {Step.BEFORE_JUDGEMENT}"


@pytest.mark.all
@pytest.mark.spark
@pytest.mark.slow
def test_local(kafka_bench: Bench, run: Run) -> None:
    outcome = run(kafka_bench, BROKER_KILLED)
    assert outcome.verdict is Verdict.GREEN, outcome


@pytest.mark.spark
@pytest.mark.long
def test_a_reader_that_gives_up_on_a_broker_loses_messages(mutant_bench: Callable[..., Bench], run: Run) -> None:
    outcome = run(mutant_bench(Mutant.NO_PATIENCE_WITH_BROKERS, kafka=True), BROKER_KILLED)
    assert outcome.verdict is Verdict.RED
    assert outcome.hits
    assert outcome.lost
    assert "verify: exit code 1" in outcome.problems[-1]


@pytest.mark.spark
@pytest.mark.long
def test_without_markers_messages_are_doubled(mutant_bench: Callable[..., Bench], run: Run) -> None:
    outcome = run(mutant_bench(Mutant.NO_MARKER_CHECK, kafka=True), f"killed {Step.BRONZE_APPENDED}")
    assert outcome.verdict is Verdict.RED
    assert outcome.doubled


def test_what_a_topic_shows_of_a_table() -> None:
    rows = {("a", 0): 1, ("a", 1): 1, ("b", 0): 1}
    assert compare(Counter(rows), rows) == Shown(missing=0, ahead=0, again=0)
    assert compare(Counter({("a", 0): 3, ("b", 0): 1, ("c", 0): 1}), rows) == Shown(missing=1, ahead=1, again=2)


@pytest.mark.parametrize("at_once", [1, 7, 20, 300])
def test_what_becomes_of_the_events_does_not_depend_on_micro_batches(at_once: int) -> None:
    stream = in_order(5, 300)
    found = expected(stream, at_once, WATERMARK, WINDOW)
    assert found == expected(stream, len(stream), WATERMARK, WINDOW)
    assert not found.late
    assert min(map(len, (found.kept, found.duplicates, found.bad, found.newest))) > 5
