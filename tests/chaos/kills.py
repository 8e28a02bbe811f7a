"""Scenarios in which the consumer is killed: at each step of a micro-batch, and at random moments."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
from tests.chaos.bench import STRIKE_SECONDS, Bench, NotStruckError
from tests.chaos.grid import Outcome
from tests.chaos.orders import Step
from tests.chaos.processes import Process, groups_of, signal_groups, wait_until
from tests.chaos.servers import Rule
from tests.chaos.watch import Watch

_METADATA = "warehouse/bronze/events/metadata"
_CHECKPOINT = "checkpoints/bronze-events"
_HANG_SECONDS = 60.0


def at(step: Step) -> Callable[[Bench], Outcome]:
    """The consumer is killed by a hook at a step."""

    def run(bench: Bench) -> Outcome:
        bench.kill_at(step)
        return bench.recover(Outcome(hits=1))

    return run


def at_and_lost(step: Step, *, landing_log: bool) -> Callable[[Bench], Outcome]:
    """The consumer is killed at a step, and the checkpoint is lost, with the landing log or without it."""

    def run(bench: Bench) -> Outcome:
        bench.kill_at(step)
        bench.lake.lose_checkpoint()
        if landing_log:
            bench.lake.lose_landing_log()
        return bench.recover(Outcome(hits=1))

    return run


def during_append(bench: Bench) -> Outcome:
    """The consumer is killed when data files and a manifest exist, but not the table's metadata."""
    bench.ready()
    before = bench.lake.table_location()
    _kill_at_file(bench, _METADATA, r"-m0\.avro$")
    if bench.lake.table_location() != before:
        return bench.missed("the commit was quicker than the kill")
    return bench.recover(Outcome(hits=1))


def during_checkpoint(part: str) -> Callable[[Bench], Outcome]:
    """The consumer is killed while it writes a file of the checkpoint: ``offsets`` or ``commits``."""

    def run(bench: Bench) -> Outcome:
        bench.ready()
        before = _checkpoint_files(bench, part)
        # A local file is first written under another name; on S3, it exists once its upload is complete.
        _kill_at_file(bench, f"{_CHECKPOINT}/{part}", r"/\d+$" if bench.options.minio else r"^\..*\.tmp$")
        if not bench.options.minio and _checkpoint_files(bench, part) != before:
            return bench.missed("the file was there before the kill")
        return bench.recover(Outcome(hits=1))

    return run


def at_random(kills: int) -> Callable[[Bench], Outcome]:
    """A lake's consumers are killed repeatedly while batches land: the group, the driver's Python or its JVM alone."""

    def run(bench: Bench) -> Outcome:
        outcome, chance = Outcome(), random.Random(bench.options.seed)
        parts, within, at_start = {"group": 0, "driver": 0, "JVM": 0}, 0, 0
        bench.ready()
        for number in range(kills):
            if number == 0 or chance.random() < 0.7:
                bench.ready()
                bench.lake.land(5)
                seconds = chance.uniform(0, 4)
            else:
                bench.kill(outcome)  # it was drained: now a start with pending work, and a kill within it
                bench.lake.land(5)
                bench.consumer = bench.start()
                seconds = chance.uniform(0, 10)
                at_start += 1
            with bench.lake.producing():
                time.sleep(seconds)
            within += bench.lake.accounted() < len(bench.lake.files)
            consumer, part = bench.consumer, ("group", "driver", "JVM")[number % 3]
            assert consumer is not None
            _kill_part(bench, consumer, part, outcome)
            parts[part] += 1
            outcome.hits += 1
            bench.recover(outcome)
            consumer.end_all()  # processes that outlived a driver
            if not outcome.harmless:
                break
        whom = ", ".join(f"{count} {part}" for part, count in parts.items())
        outcome.notes.append(f"killed: {whom}; {at_start} within a start; {within} with work under way")
        bench.give_up()  # a new checkpoint would read its hundreds of files four at a time
        if outcome.harmless and not within:
            raise NotStruckError("no kill met work under way")
        return outcome

    return run


def restarted(bench: Bench) -> Outcome:
    """A consumer is killed and restarted at once: the lease of the killed one does not block it."""
    bench.ready()
    bench.kill(outcome := Outcome(hits=1))
    bench.recover(outcome)
    if bench.consumer:
        outcome.notes.append(f"it had started {bench.starts[bench.consumer.pid]:.1f} s after the command")
    return outcome


def _kill_at_file(bench: Bench, folder: str, name: str) -> None:
    """Kill the group when a matching file is created, or on MinIO while its upload is held, so it never arrives."""
    consumer = bench.consumer
    assert consumer is not None
    if bench.options.minio:
        bench.proxy.enforce(Rule("hold", f"^PUT /[^/]+/{folder}.*{name}", once=True, drop=True))
        bench.lake.land(6)
        struck = wait_until(lambda: bench.proxy.hits() > 0, STRIKE_SECONDS, every=0.01)
        consumer.end_all()
        bench.proxy.lift()
    else:
        path = bench.lake.folder / folder
        groups = groups_of(consumer.pid)
        with Watch(path, name, lambda: signal_groups(groups, signal.SIGKILL)) as watch:
            bench.lake.land(6)
            wait_until(lambda: watch.seen is not None, STRIKE_SECONDS, every=0.01)
        consumer.end_all()
        struck = watch.seen is not None
    bench.consumer = None
    if not struck:
        raise NotStruckError(f"no file {name} was made in {folder}")


def _checkpoint_files(bench: Bench, part: str) -> set[str]:
    return {path.name for path in (bench.lake.folder / _CHECKPOINT / part).glob("[0-9]*")}


def _kill_part(bench: Bench, consumer: Process, part: str, outcome: Outcome) -> None:
    """Kill a part of the consumer, which must be running."""
    problems = bench.ended_by_itself()
    outcome.problems += problems
    bench.consumer = None
    if part == "driver" and not problems:
        consumer.signal_itself(signal.SIGKILL)
        consumer.wait(10)
        return  # its JVM and workers survive for a while, beside the next start
    if part == "JVM" and not problems:
        if not wait_until(lambda: _kill_jvms(consumer), STRIKE_SECONDS):  # there is none early in a start
            outcome.problems.append(f"it had no JVM: {consumer.last_words()}")
        elif consumer.wait(_HANG_SECONDS) is None:
            outcome.problems.append(f"killed its JVM: it did not end within {_HANG_SECONDS:.0f} s")
    consumer.end_all()


def _kill_jvms(consumer: Process) -> bool:
    """Kill the JVMs of a consumer; return whether there was one."""
    killed = False
    for jvm in consumer.named("java"):
        with suppress(psutil.NoSuchProcess):  # Spark's launcher ends soon
            jvm.kill()
            killed = True
    return killed
