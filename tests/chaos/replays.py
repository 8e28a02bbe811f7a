"""Scenarios of replays of dead letters: killed at each step, and finished by another replay or by a run.

Each scenario lands batches with records that the contract refuses, and then corrects the contract. A model computes the
expected result of every dead letter, and the number of its attempts.
"""

import random
import signal
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

from tests.chaos.bench import PROGRAM_SECONDS, Bench, BrokenError, NotStruckError
from tests.chaos.grid import Outcome
from tests.chaos.kafka import brokers
from tests.chaos.lake import OF_REPLAYS, STREAM, TABLES
from tests.chaos.letters import Key, Letters
from tests.chaos.operations import JOBS, done_by
from tests.chaos.orders import REPLAY_STEPS, Act, Step
from tests.chaos.processes import Process, wait_until
from tests.chaos.victim import MOST_LETTERS
from tests.operations import landing_zone

from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.state.lease import LEASE_SECONDS
from lakeproof.tables.names import ATTEMPT, INGESTED_AT, POSITION, SOURCE

Run = Callable[[Bench], Outcome]
COMMITTED = REPLAY_STEPS[REPLAY_STEPS.index(Step.ATTEMPTS_APPENDED) :]
"""Steps after the commit of attempts: a begun replay must be finished."""
INTERRUPTED = COMMITTED[: COMMITTED.index(Step.LEDGER_APPENDED)]
"""Committed steps before the commit of the ledger: the next command has a replay to finish."""
IN_TURN = (Step.ATTEMPTS_APPENDED, Step.BRONZE_PREPARED, Step.BRONZE_APPENDED, Step.DEAD_LETTERS_APPENDED)
_LETTERS = 15
_FINISHED = "finished an interrupted replay"


class By(StrEnum):
    """Command after a kill."""

    REPLAY = "a replay"
    RUN = "a run"


def killed(step: Step, by: By, *, lost: str = "", tool: str = "") -> Run:
    """A replay is killed at a step, with the stream stopped; pieces are lost, tables maintained, and it is finished."""

    def run(bench: Bench) -> Outcome:
        _prepare(bench)
        _kill(bench, step)
        hits = len(done_by(bench, "once", ",".join(JOBS[tool]), *OF_REPLAYS)) if tool else 1
        if lost:
            bench.lake.lose_checkpoint()
        if "log" in lost:
            bench.lake.lose_landing_log()
        return _finish(bench, by, Outcome(hits=hits), interrupted=step in INTERRUPTED)

    return run


def run_killed(step: Step) -> Run:
    """The stream is killed at a step, with pending files, and a replay precedes its next run."""

    def run(bench: Bench) -> Outcome:
        _, kind = _land(bench)
        bench.lake.allow(kind)
        bench.kill_at(step)
        bench.calm()
        _replay(bench)
        return bench.recover(Outcome(hits=1))

    return run


def answers_lost(bench: Bench) -> Outcome:
    """Every commit of a replay lands, but gets an error as its answer, or no answer."""
    letters, proxy = _prepare(bench), bench.catalog_proxy
    assert proxy is not None
    before, begun = len(proxy.lost), _begun(bench)
    bench.loses_answers = True
    replaying = bench.start_replay()
    code = replaying.wait(PROGRAM_SECONDS)
    replaying.end_all()
    bench.calm()
    outcome = Outcome(hits=len(proxy.lost) - before)
    if code != 0:
        outcome.notes.append(f"it ended with {code}: {replaying.last_words()}")
        outcome.problems += [] if replaying.said("failed") else ["it ended without a clear line"]
    if _begun(bench) > begun:
        letters.replayed()
    return _finish(bench, By.REPLAY, outcome)


def killed_in_turn(bench: Bench) -> Outcome:
    """A replay is killed, then the run and the replay that should finish it, each one step later."""
    _prepare(bench)
    _kill(bench, IN_TURN[0])
    for number, step in enumerate(IN_TURN[1:]):
        bench.orders.give(step, Act.KILL)
        bench.end_by_kill(bench.start_replay() if number % 2 else bench.start(), step)
    return _finish(bench, By.REPLAY, Outcome(hits=len(IN_TURN)), interrupted=True)


def killed_in_its_second_micro_batch(bench: Bench) -> Outcome:
    """A replay of several micro-batches is killed within the second one."""
    letters = _prepare(bench)
    bench.lake.others[MOST_LETTERS] = str(_LETTERS)
    try:
        first, second = _in_order(bench, letters.open())
        bench.orders.give(Step.BRONZE_APPENDED, Act.WAIT)
        replaying = bench.start_replay()
        bench.await_step(replaying)
        bench.orders.give(Step.BRONZE_APPENDED, Act.KILL)
        bench.end_by_kill(replaying, Step.BRONZE_APPENDED)
        letters.replayed(first)
        letters.replayed(second)
        _replay(bench)
    finally:
        del bench.lake.others[MOST_LETTERS]
    return bench.recover(Outcome(hits=1))


def killed_at_random(kills: int) -> Run:
    """Replays are killed at random moments, and finished by replays and runs in turn."""

    def run(bench: Bench) -> Outcome:
        outcome, chance, within = Outcome(), random.Random(bench.options.seed), 0
        for number in range(kills):
            letters = _prepare(bench)
            before = _begun(bench)
            replaying = bench.start_replay()
            # A start takes a few seconds without judging; a quarter of the kills are within it.
            if number % 4:
                bench.await_start(replaying)
            time.sleep(chance.uniform(0, 4))
            code = replaying.wait(0)
            within += code is None
            if code:
                outcome.problems.append(f"a replay ended by itself with {code}: {replaying.last_words()}")
            replaying.end_all()
            if _begun(bench) > before:
                letters.replayed()
            outcome.hits += 1
            if not _finish(bench, list(By)[number % 2], outcome).harmless:
                break
        outcome.notes.append(f"{within} before its end")
        if outcome.harmless and not within:
            raise NotStruckError("each replay had ended before its kill")
        return outcome

    return run


def maintained_between(tool: str) -> Run:
    """Tables are compacted and expired between two replays: before and after the contract allows the kind."""

    def run(bench: Bench) -> Outcome:
        letters, kind = _land(bench)
        bench.stop()
        _replay(bench)
        hits = len(done_by(bench, "once", ",".join(JOBS[tool]), *OF_REPLAYS))
        bench.lake.allow(kind)
        _replay(bench)
        outcome = Outcome(hits=hits, notes=[f"{len(letters.open())} open in the end"])
        return bench.recover(outcome)

    return run


def maintained_within(step: Step) -> Run:
    """Tables are compacted, expired and cleared of old orphans while a replay is at a step."""

    def run(bench: Bench) -> Outcome:
        letters = _prepare(bench)
        bench.orders.give(step, Act.WAIT)
        replaying = bench.start_replay()
        bench.await_step(replaying)
        hits = len(done_by(bench, "once", ",".join(JOBS["plain Spark"]), *OF_REPLAYS))
        bench.orders.take_back()
        outcome = Outcome(hits=hits)
        code = replaying.wait(PROGRAM_SECONDS)
        replaying.end_all()
        if code != 0:  # files that the replay needed were removed
            outcome.notes.append(f"it ended with {code}: {replaying.last_words()}")
            if not replaying.said("failed"):
                outcome.problems.append("it ended without a clear line")
        if code == 0 or step in COMMITTED:
            letters.replayed()
        return _finish(bench, By.REPLAY, outcome)

    return run


def refused_beside_the_stream(bench: Bench) -> Outcome:
    """A replay is refused while the stream runs, and the stream keeps running."""
    _, kind = _land(bench)
    bench.lake.allow(kind)
    outcome = Outcome(hits=1)
    with bench.lake.producing():
        _refused(bench.start_replay(), outcome)
    return bench.recover(outcome)


def two_at_once(bench: Bench) -> Outcome:
    """Two replays and a run start at once: one of the replays is allowed."""
    letters = _prepare(bench)
    bench.orders.give(Step.ATTEMPTS_PREPARED, Act.WAIT)
    both = [bench.start_replay(), bench.start_replay()]
    if not wait_until(lambda: bench.orders.struck() and not all(each.alive for each in both), PROGRAM_SECONDS):
        bench.give_up()
        raise NotStruckError("neither has ended, or none has come to its commit")
    outcome = Outcome(hits=1)
    left = next((each for each in both if each.alive), None)
    for each in both:
        if each is not left:
            _refused(each, outcome)
    _refused(bench.start(), outcome)
    bench.orders.take_back()
    if left is None or left.wait(PROGRAM_SECONDS) != 0:
        outcome.problems.append(f"the other one ended: {left.last_words() if left else 'both did'}")
    else:
        letters.replayed()
    return bench.recover(outcome)


def suspended(step: Step) -> Run:
    """A replay is suspended past its lease in the middle of a commit, finished by a run, and woken up."""

    def run(bench: Bench) -> Outcome:
        letters = _prepare(bench)
        bench.orders.give(step, Act.SUSPEND)
        first = bench.start_replay()
        bench.await_step(first)
        if locked := bench.lake.locked():
            bench.give_up()
            raise NotStruckError(f"it was suspended while it held the lock of {locked}")
        time.sleep((bench.options.lease_seconds or LEASE_SECONDS) + 2)
        if step in COMMITTED:
            letters.replayed()
        outcome = _finish(bench, By.RUN, Outcome(hits=1), interrupted=step in INTERRUPTED)
        if outcome.problems:
            return outcome
        first.signal_group(signal.SIGCONT)
        code = first.wait(60)
        outcome.notes.append(f"the one that woke up ended with {code}: {first.last_words()}")
        if code not in (1, 3) or "took over" not in first.text():
            outcome.problems.append("the one that woke up was not stopped with a clear line")
        first.end_all()
        return bench.recover(outcome)

    return run


def unmounted(bench: Bench) -> Outcome:
    """A replay is killed, and finished without the landing zone: dead letters contain the landed bytes."""
    _prepare(bench)
    _kill(bench, Step.BRONZE_APPENDED)
    with landing_zone.unmounted(bench.lake.settings):
        _replay(bench)
    return bench.recover(Outcome(hits=1))


def broker_away(bench: Bench) -> Outcome:
    """A replay is killed, and finished without the brokers: dead letters contain the sent bytes."""
    _prepare(bench)
    _kill(bench, Step.BRONZE_APPENDED)
    with brokers.dead(bench):
        _replay(bench)
    return bench.recover(Outcome(hits=1))


def _land(bench: Bench) -> tuple[Letters, str]:
    """Let a running stream take batches with dead letters of a new kind."""
    if not (bench.has_lake and bench.lake.letters):
        bench.new_lake().letters = Letters()
        bench.lake.land(4)
    lake = bench.ready()
    assert lake.letters
    kind = lake.land_refused(4)
    if problem := bench.drain():
        bench.give_up()
        raise BrokenError(problem)
    return lake.letters, kind


def _prepare(bench: Bench) -> Letters:
    """Prepare a stopped stream, with dead letters for which the contract has been corrected."""
    letters, kind = _land(bench)
    bench.stop()
    bench.lake.allow(kind)
    return letters


def _kill(bench: Bench, step: Step) -> None:
    """Kill a replay with SIGKILL at a step."""
    letters = bench.lake.letters
    assert letters
    bench.orders.give(step, Act.KILL)
    bench.end_by_kill(bench.start_replay(in_workers=step is Step.JUDGED_AGAIN), step)
    if step in COMMITTED:
        letters.replayed()


def _replay(bench: Bench) -> None:
    """Run a replay of all open dead letters that the stream has taken."""
    letters = bench.lake.letters
    assert letters
    replaying = bench.start_replay()
    code = replaying.wait(PROGRAM_SECONDS)
    replaying.end_all()
    if code != 0:
        raise BrokenError(f"a replay ended with {code}: {replaying.last_words()}")
    letters.replayed(letters.open().intersection(key for _, key in _dead_letters(bench)))


def _finish(bench: Bench, by: By, outcome: Outcome, *, interrupted: bool = False) -> Outcome:
    """Replay, or only start the stream; then let the stream continue, and check everything."""
    if by is By.REPLAY:
        try:
            _replay(bench)
        except BrokenError as error:
            outcome.problems.append(str(error))
            bench.check(outcome)
            bench.give_up()
            return outcome
        return bench.recover(outcome)
    bench.recover(outcome)
    if interrupted and bench.consumer and not bench.consumer.said(_FINISHED):
        outcome.problems.append("the run did not say that it has finished a replay")
    return outcome


def _refused(process: Process, outcome: Outcome) -> None:
    code = process.wait(90)
    process.end_all()
    outcome.notes.append(f"refused with {code}: {process.last_words()}")
    if code != 3 or "already" not in process.last_words() or "Traceback" in process.text():
        outcome.problems.append("it was not refused with a clear line")


def _begun(bench: Bench) -> int:
    """Return the number of replay micro-batches whose attempts are committed."""
    if not open_catalog(bench.lake.settings).table_exists(TABLES.attempts):
        return 0
    return int(bench.lake.marker(TABLES.attempts, bronze_query(STREAM)).get("end", 0))


def _in_order(bench: Bench, keys: set[Key]) -> tuple[list[Key], list[Key]]:
    """Return the dead letters of the first and the second micro-batch of a replay, which takes them in order."""
    found = [key for _, key in sorted(_dead_letters(bench)) if key in keys]
    if len(found) <= _LETTERS:
        raise NotStruckError(f"there are only {len(found)} dead letters")
    return found[:_LETTERS], found[_LETTERS : 2 * _LETTERS]


def _dead_letters(bench: Bench) -> list[tuple[datetime, Key]]:
    """Return the dead letters in the table, with the time when each was judged."""
    names = (INGESTED_AT, SOURCE, POSITION, ATTEMPT)
    columns = (bench.lake.column(TABLES.dead_letters, name) for name in names)
    return [(at, tuple(key)) for at, *key in zip(*columns, strict=True)]
