"""Scenarios of a breaker that pauses: kills around the pause and its acceptance; a restart does not bypass it."""

from collections.abc import Callable

from tests.chaos.bench import PROGRAM_SECONDS, Bench, BrokenError
from tests.chaos.grid import Outcome
from tests.chaos.lake import STREAM, TABLES
from tests.chaos.letters import Letters
from tests.chaos.orders import Act, Step

Run = Callable[[Bench], Outcome]
_PAUSE = "{share: 0.5, units: 60, over: micro-batch, action: pause}"
_PAUSED_CODE = 5
_FILES_AT_ONCE = "LAKE_MAX_FILES_PER_MICRO_BATCH"


def pause_killed(step: Step, *, lost: bool = False) -> Run:
    """A consumer killed while pausing pauses at each restart, whatever has landed since, until an operator accepts.

    If it was killed before the pause was recorded, the next run forms the micro-batch again, and pauses by its content.
    """

    def run(bench: Bench) -> Outcome:
        _prepare(bench)
        _pause(bench, step)
        outcome = Outcome(hits=1)
        if step is Step.PAUSING and (problem := _not_paused(bench)):
            outcome.problems.append(problem)
        if lost:
            bench.lake.lose_checkpoint()
        _pauses_again(bench, outcome)
        _accept(bench)
        return _replayed(bench, outcome)

    return run


def accept_killed(step: Step) -> Run:
    """`consumer accept` is killed: an acceptance that it recorded counts, otherwise the stream stays paused."""

    def run(bench: Bench) -> Outcome:
        _prepare(bench)
        _pause(bench)
        bench.orders.give(step, Act.KILL)
        bench.end_by_kill(bench.start_victim("accept", STREAM), step)
        outcome = Outcome(hits=1)
        if step is Step.ACCEPTING:
            _pauses_again(bench, outcome)
            _accept(bench)
        return _replayed(bench, outcome)

    return run


def accepted_and_killed(step: Step, *, lost: bool = False) -> Run:
    """A consumer killed while committing accepted data finishes that data, and the next pause is a separate one."""

    def run(bench: Bench) -> Outcome:
        _prepare(bench)
        _pause(bench)
        _accept(bench)
        bench.orders.give(step, Act.KILL)
        bench.end_by_kill(bench.start(), step)
        outcome = Outcome(hits=1)
        if lost:
            bench.lake.lose_checkpoint()
        bench.recover(outcome)
        if outcome.problems:
            return outcome
        bench.stop()
        _pause(bench)
        _pauses_again(bench, outcome)
        _accept(bench)
        return _replayed(bench, outcome)

    return run


def _prepare(bench: Bench) -> None:
    """Prepare a new lake with a stopped stream, whose contract has a breaker that pauses."""
    lake = bench.new_lake()
    lake.letters = Letters()
    custom = "customProperties:\n"
    breaker = f"{custom}  - {{property: breaker, value: {_PAUSE}}}\n"
    lake.write_contract(lambda text: text.replace(custom, breaker, 1))
    lake.land(4)
    bench.ready()
    bench.stop()


def _pause(bench: Bench, step: Step | None = None) -> None:
    """Let the breaker trip: the consumer pauses, or is killed at a step of the pause."""
    bench.lake.land_refused(4, every=1)
    if step:
        bench.orders.give(step, Act.KILL)
        bench.end_by_kill(bench.start(), step)
    elif problem := _not_paused(bench):
        bench.give_up()
        raise BrokenError(problem)


def _pauses_again(bench: Bench, outcome: Outcome) -> None:
    """Check that nothing is committed when good units land, and when micro-batches are cut in other ways."""
    lake = bench.lake
    before = {table: _rows(bench, table) for table in (TABLES.bronze, TABLES.dead_letters)}
    lake.land(4)
    for files in ("1", "100"):
        lake.others[_FILES_AT_ONCE] = files
        if problem := _not_paused(bench):
            outcome.problems.append(problem)
    lake.others.pop(_FILES_AT_ONCE)
    if before != {table: _rows(bench, table) for table in before}:
        outcome.problems.append("something was committed, though the stream is paused")


def _not_paused(bench: Bench) -> str | None:
    """Start the consumer; return the problem unless it ends with the exit code of a pause."""
    consumer = bench.start()
    code = consumer.wait(PROGRAM_SECONDS)
    consumer.end_all()
    if code == _PAUSED_CODE:
        return None
    return f"it did not pause, but {f'ended with {code}' if code is not None else 'runs'}: {consumer.last_words()}"


def _accept(bench: Bench) -> None:
    accepting = bench.start_victim("accept", STREAM)
    code = accepting.wait(PROGRAM_SECONDS)
    accepting.end_all()
    if code != 0:
        bench.give_up()
        raise BrokenError(f"accept ended with {code}: {accepting.last_words()}")


def _replayed(bench: Bench, outcome: Outcome) -> Outcome:
    """Commit the accepted data, then allow its kinds, and replay it into bronze."""
    lake = bench.lake
    if bench.recover(outcome).problems:
        return outcome
    bench.stop()
    for kind in lake.kinds:
        lake.allow(kind)
    replaying = bench.start_replay()
    code = replaying.wait(PROGRAM_SECONDS)
    replaying.end_all()
    if code != 0:
        outcome.problems.append(f"a replay ended with {code}: {replaying.last_words()}")
        return outcome
    assert lake.letters
    lake.letters.replayed()
    return bench.recover(outcome)


def _rows(bench: Bench, table: str) -> int:
    return len(bench.lake.column(table, "_source"))
