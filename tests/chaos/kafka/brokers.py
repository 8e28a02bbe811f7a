"""Scenarios in which the brokers die, are unavailable, or are changed while a consumer reads from them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.chaos.bench import STRIKE_SECONDS, Bench
from tests.chaos.grid import Outcome
from tests.chaos.kafka.lake import PATIENCE_SECONDS, TopicLake
from tests.chaos.orders import Act, Step

_AWAY_SECONDS = 3.0
_TIMES = 3


def killed_at(step: Step) -> Callable[[Bench], Outcome]:
    """The broker dies when the consumer is at a step, and is back after 3 s, while the consumer continues."""

    def run(bench: Bench) -> Outcome:
        bench.order(step, Act.WAIT)
        with dead(bench):
            bench.orders.take_back()
            time.sleep(_AWAY_SECONDS)
        return bench.recover(Outcome(hits=1), may_end=True)

    return run


def both_killed(step: Step, *, checkpoint_lost: bool) -> Callable[[Bench], Outcome]:
    """Broker and consumer die at a step, as if their machine did; the checkpoint may be lost, too."""

    def run(bench: Bench) -> Outcome:
        bench.kill_at(step)
        with dead(bench):
            pass
        if checkpoint_lost:
            bench.lake.lose_checkpoint()
        return bench.recover(Outcome(hits=1))

    return run


def again_and_again(bench: Bench) -> Outcome:
    """The broker dies repeatedly while messages are sent and read."""
    bench.ready()
    outcome = Outcome()
    with bench.lake.producing(every=0.1):
        for _ in range(_TIMES):
            time.sleep(2)
            with dead(bench):
                time.sleep(2)
            outcome.hits += 1
    return bench.recover(outcome, may_end=True)


def away_too_long(*, at_start: bool) -> Callable[[Bench], Outcome]:
    """The broker is unavailable for longer than the consumer waits, which therefore ends with a clear error."""

    def run(bench: Bench) -> Outcome:
        bench.ready()
        assert bench.consumer is not None
        if at_start:
            bench.stop()
        outcome = Outcome(hits=1)
        with dead(bench):
            if at_start:
                bench.consumer = bench.start()
            code = bench.consumer.wait(PATIENCE_SECONDS + STRIKE_SECONDS)
            outcome.problems += bench.unclear_end()
        outcome.notes.append(f"ended with {code}: {bench.consumer.last_words()}")
        if code != 3 or "does not respond" not in bench.consumer.last_words():
            outcome.problems.append("it did not say that the brokers are away")
        bench.consumer = None
        return bench.recover(outcome)

    return run


def partition_added(bench: Bench) -> Outcome:
    """The topic gets a partition while it is read; the consumer is killed while reading from that partition."""
    bench.ready()
    assert isinstance(bench.lake, TopicLake)
    bench.lake.add_partition()
    bench.kill_at(Step.BRONZE_APPENDED)
    return bench.recover(Outcome(hits=1))


@contextmanager
def dead(bench: Bench) -> Iterator[None]:
    """Kill the broker with SIGKILL for the duration of the context, then start it again."""
    bench.broker.kill()
    try:
        yield
    finally:
        bench.broker.start()
