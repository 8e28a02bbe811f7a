"""Scenarios of our own maintenance: beside the stream or as a command, killed at each step, with other readers."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from tests.chaos.bench import Bench
from tests.chaos.followers import KEEP_SECONDS, Report
from tests.chaos.grid import Outcome
from tests.chaos.lake import STREAM, Lake
from tests.chaos.letters import Letters
from tests.chaos.orders import Act, Orders, Step
from tests.chaos.processes import Process, wait_until

Run = Callable[[Bench], Outcome]
_OPTION = "--maintain"
_SETTINGS = {
    "LAKE_MAINTENANCE_EVERY_MINUTES": "0.05",
    "LAKE_MAINTENANCE_KEEP_HOURS": f"{KEEP_SECONDS / 3600:.9f}",
    "LAKE_MAINTENANCE_FILE_MIB": "1",
}
_FILES_TO_COMPACT = 20
"""Landed files; four of them are a micro-batch, which adds a data file to each table."""
_STEP_SECONDS = 240.0
_MAINTENANCE_SECONDS = 600.0  # for a program beside others that maintain the same tables
_FOLLOWERS = ("engines", "streams")


def killed(step: Step) -> Run:
    """A consumer that maintains beside its stream is killed at a step of the maintenance, while batches land."""

    def run(bench: Bench) -> Outcome:
        _prepare(bench)
        bench.orders.give(step, Act.KILL)
        consumer = bench.consumer
        assert consumer is not None
        with bench.lake.producing():
            wait_until(lambda: not consumer.alive, _STEP_SECONDS)
        bench.end_by_kill(consumer, step, _STEP_SECONDS)
        bench.consumer = None
        return bench.recover(Outcome(hits=1))

    return run


def beside_a_replay(step: Step) -> Run:
    """`consumer maintain` is killed at a step while a replay waits, and repeated beside the stream."""

    def run(bench: Bench) -> Outcome:
        lake = _new_lake(bench)
        lake.letters = letters = Letters()
        lake.land(_FILES_TO_COMPACT)
        kind = lake.land_refused(4)
        bench.ready()
        bench.stop()
        lake.allow(kind)
        lake.run_arguments = (*lake.run_arguments, _OPTION)
        time.sleep(KEEP_SECONDS)  # so that there are snapshots to expire
        orders = Orders(lake.folder / "orders-of-the-replay.json")
        orders.give(Step.BRONZE_PREPARED, Act.WAIT)
        replaying = bench.start_replay(orders=orders)
        bench.await_step(replaying, orders)
        bench.orders.give(step, Act.KILL)
        bench.end_by_kill(bench.start_victim("maintain", STREAM), step, _STEP_SECONDS)
        orders.take_back()
        outcome = Outcome(hits=1)
        if (ended := replaying.wait(_MAINTENANCE_SECONDS)) != 0:
            outcome.problems.append(f"the replay ended with {ended}: {replaying.last_words()}")
            return outcome
        letters.replayed()
        if bench.recover(outcome).harmless:
            _maintain(bench, outcome)
            bench.check(outcome)
        return outcome

    return run


def two_maintainers(bench: Bench) -> Outcome:
    """Two `consumer maintain` run beside the stream; the second has its own state database, so no lease stops it."""
    _prepare(bench)
    lake, outcome = bench.lake, Outcome()
    own = lake.folder / "other-state.db"
    # Slowly: a micro-batch takes four files, and the maintenances take minutes in a bucket behind the proxy.
    with lake.producing(every=2.0):
        for _ in range(3):
            both = [bench.start_victim("maintain", STREAM)]
            with _other(lake.others, "LAKE_LANDING_LOG_URI", f"sqlite:///{own}"):
                both.append(bench.start_victim("maintain", STREAM))
            for each in both:
                code = each.wait(_MAINTENANCE_SECONDS)
                each.end_all()
                if code not in (0, 3) or "not published" in each.text():
                    outcome.problems.append(f"a maintenance ended with {code}: {each.last_words()}")
            outcome.hits += code == 0 and _has_worked(both[1])
    return bench.recover(outcome)


def read_all_along(kills: int) -> Run:
    """DuckDB, PyIceberg and Spark streams read while the consumer is killed, replays and maintains."""

    def run(bench: Bench) -> Outcome:
        outcome, chance = Outcome(), random.Random(bench.options.seed)
        _prepare(bench)
        done = bench.options.folder / f"followed-{random.getrandbits(40):x}"
        done.mkdir()
        followers = [_follow(bench, what, done) for what in _FOLLOWERS]
        began = time.monotonic()
        for number in range(kills):
            with bench.lake.producing():
                time.sleep(chance.uniform(1, 12))
            if number % 3 == 2:
                bench.stop()
                maintaining = bench.start_victim("maintain", STREAM)
                time.sleep(chance.uniform(4, 15))
                if code := maintaining.wait(0):
                    outcome.problems.append(f"a maintenance ended by itself with {code}: {maintaining.last_words()}")
                maintaining.end_all()
            else:
                bench.kill(outcome)
            outcome.hits += 1
            if not bench.recover(outcome).harmless:
                break
        # One of the streams is idle for longer than the retention, twice.
        while bench.has_lake and time.monotonic() - began < 5 * KEEP_SECONDS:
            with bench.lake.producing():
                time.sleep(1)
        problem = bench.has_lake and bench.drain()
        outcome.problems += [problem] if problem else []
        (done / "end").touch()
        for what, follower in zip(_FOLLOWERS, followers, strict=True):
            code = follower.wait(_MAINTENANCE_SECONDS)
            if code != 0:
                outcome.problems.append(f"{what} ended with {code}: {follower.last_words()}")
                continue
            report = msgspec.json.decode((done / f"{what}.json").read_bytes(), type=Report)
            outcome.problems += report.problems
            outcome.notes += report.notes
        bench.check(outcome)
        return outcome

    return run


def _new_lake(bench: Bench) -> Lake:
    """Return a new lake that keeps snapshots for a short time."""
    lake = bench.new_lake()
    lake.others |= _SETTINGS
    return lake


def _prepare(bench: Bench) -> None:
    """Prepare a new lake, and a consumer that maintains it repeatedly."""
    lake = _new_lake(bench)
    lake.run_arguments = (*lake.run_arguments, _OPTION)
    lake.land(4)
    bench.ready()


def _maintain(bench: Bench, outcome: Outcome) -> None:
    """Repeat the killed maintenance beside the stream, whose own maintenance may have the lease."""
    for _ in range(10):
        maintaining = bench.start_victim("maintain", STREAM)
        code = maintaining.wait(_MAINTENANCE_SECONDS)
        maintaining.end_all()
        if code == 0:
            return
        if code != 3:
            break
    outcome.problems.append(f"a maintenance ended with {code}: {maintaining.last_words()}")


def _has_worked(maintaining: Process) -> bool:
    """Return whether a maintenance has compacted files or expired snapshots."""
    return any(line.values.get("compacted") or line.values.get("to_expire") for line in maintaining.said("maintained"))


def _follow(bench: Bench, what: str, done: Path) -> Process:
    return bench.start_program("tests.chaos.followers", what, str(done))


@contextmanager
def _other(variables: dict[str, str], name: str, value: str) -> Iterator[None]:
    before = variables.get(name)
    variables[name] = value
    try:
        yield
    finally:
        with suppress(KeyError):
            del variables[name]
        if before is not None:
            variables[name] = before
