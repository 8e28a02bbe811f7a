"""Scenarios of a breaker that pauses: killed around the pause and its acceptance, a restart does not slip past it."""

import signal
from collections.abc import Callable

from tests.chaos.bench import PROGRAM_SECONDS, Bench, BrokenError, NotStruckError
from tests.chaos.grid import Outcome
from tests.chaos.lake import STREAM, TABLES
from tests.chaos.letters import Letters
from tests.chaos.orders import Act, Step
from tests.chaos.processes import Process

Run = Callable[[Bench], Outcome]
_PAUSE = "{share: 0.5, units: 60, over: micro-batch, action: pause}"
_PAUSED_CODE = 5
_FILES_AT_ONCE = "LAKE_MAX_FILES_PER_MICRO_BATCH"


def pause_killed(step: Step, *, lost: bool = False) -> Run:
    """Killed as it pauses; it pauses again at each restart, whatever has landed since, until an operator accepts."""

    def run(bench: Bench) -> Outcome:
        _prepare(bench)
        _pause(bench, step)
        outcome = Outcome(hits=1)
        if lost:
            bench.lake.lose_checkpoint()
        _pauses_again(bench, outcome)
        _accept(bench)
        return _replayed(bench, outcome)

    return run


def accept_killed(step: Step) -> Run:
    """`consumer accept` is killed: what it has recorded counts, and otherwise the stream stays paused."""

    def run(bench: Bench) -> Outcome:
        _prepare(bench)
        _pause(bench)
        bench.orders.give(step, Act.KILL)
        _end_by_kill(bench, bench.start_victim("accept", STREAM), step)
        outcome = Outcome(hits=1)
        if step is Step.ACCEPTING:
            _pauses_again(bench, outcome)
            _accept(bench)
        return _replayed(bench, outcome)

    return run


def accepted_and_killed(step: Step, *, lost: bool = False) -> Run:
    """Killed as what was accepted is committed: it is finished, and the next pause is one of its own."""

    def run(bench: Bench) -> Outcome:
        _prepare(bench)
        _pause(bench)
        _accept(bench)
        bench.orders.give(step, Act.KILL)
        _end_by_kill(bench, bench.start(), step)
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
    """Have a stream that is stopped, of a lake of its own, whose contract has a breaker that pauses."""
    lake = bench.new_lake()
    lake.letters = Letters()
    custom = "customProperties:\n"
    breaker = f"{custom}  - {{property: breaker, value: {_PAUSE}}}\n"
    lake.write_contract(lambda text: text.replace(custom, breaker, 1))
    lake.land(4)
    bench.ready()
    bench.stop()


def _pause(bench: Bench, step: Step | None = None) -> None:
    """Let the breaker trip: the consumer is killed at a step of that, or pauses."""
    bench.lake.land_refused(4, every=1)
    if step:
        bench.orders.give(step, Act.KILL)
        _end_by_kill(bench, bench.start(), step)
    elif problem := _not_paused(bench):
        bench.give_up()
        raise BrokenError(problem)


def _pauses_again(bench: Bench, outcome: Outcome) -> None:
    """Good units land, and it is cut in other ways: nothing is committed."""
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
    """Start the consumer; return what is wrong unless it ends with the exit code of a pause."""
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
    """Commit what was accepted, then allow it, and replay it into bronze."""
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


def _end_by_kill(bench: Bench, process: Process, step: Step) -> None:
    code = process.wait(PROGRAM_SECONDS)
    process.end_all()
    bench.calm()
    if code != -signal.SIGKILL:
        bench.give_up()
        raise NotStruckError(f"it was not killed {step}: {process.last_words()}")


def _rows(bench: Bench, table: str) -> int:
    return len(bench.lake.column(table, "_source"))
