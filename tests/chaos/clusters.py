"""Scenarios on a cluster: its processes are killed at each step or while tasks run; workers are slow or cut off.

The driver waits at a step while another process is killed. The lake is in MinIO and Postgres; see tests/cluster.py.
"""

import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from tests.chaos.bench import STRIKE_SECONDS, Bench, NotStruckError
from tests.chaos.grid import Outcome
from tests.chaos.lake import OF_BRONZE, OF_LAYERS
from tests.chaos.orders import Act, Step
from tests.chaos.processes import wait_until
from tests.cluster import Cluster

from consumer.maintenance.folders import orphans
from lakeproof.catalog import open_catalog

Run = Callable[[Bench], Outcome]
VICTIMS = ("executor", "worker", "master")
_RANDOM_VICTIMS = (*VICTIMS, "driver")
_AWAY_SECONDS = 5
_APART_MINUTES = 10
_ENOUGH_TASKS = 20
_DONE = "Finished task"
_REFUSED = re.compile(r"denied|forbidden|signature", re.IGNORECASE)
_FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
_SPECULATION = """\
spark.speculation true
spark.speculation.interval 100ms
spark.speculation.quantile 0.1
spark.speculation.multiplier 1.1
spark.speculation.minTaskRuntime 100ms
spark.speculation.task.duration.threshold 1s
spark.speculation.efficiency.enabled false
spark.python.task.killTimeout 600s
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.dir {log}
"""
"""A slow attempt is not killed: it writes its files after those of its copy were committed."""


def killed(victim: str, step: Step) -> Run:
    """An executor, a worker with its executors, or the master is killed while the driver waits at a step."""

    def run(bench: Bench) -> Outcome:
        bench.order(step, Act.WAIT)
        _kill(bench.cluster, victim, random.Random(f"{victim} {step}"))
        bench.orders.take_back()
        return _counted(bench, bench.recover(Outcome(hits=1)))

    return run


def at_random(kills: int) -> Run:
    """Executors, workers, the master and the driver are killed in turn while batches land."""

    def run(bench: Bench) -> Outcome:
        outcome, chance = Outcome(), random.Random(bench.options.seed)
        within = 0
        for number in range(kills):
            bench.ready()
            bench.lake.land(6)
            with bench.lake.producing():
                time.sleep(chance.uniform(0, 3))
            within += bench.lake.accounted() < len(bench.lake.files)
            victim = _RANDOM_VICTIMS[number % len(_RANDOM_VICTIMS)]
            if victim == "driver":
                bench.kill(outcome)
            else:
                _kill(bench.cluster, victim, chance)
            outcome.hits += 1
            if not bench.recover(outcome).harmless:
                break
        if outcome.harmless and not within:
            raise NotStruckError("no kill met work under way")
        outcome.notes.append(f"{within} with work under way")
        return _counted(bench, outcome)

    return run


def speculated(bench: Bench) -> Outcome:
    """The tasks of an executor hang; Spark starts copies, which are committed; then the slow attempts finish."""
    log = bench.options.folder / "event-log"
    log.mkdir(exist_ok=True)
    properties = bench.options.folder / "spark-conf" / "spark-defaults.conf"
    properties.parent.mkdir(exist_ok=True)
    properties.write_text(_SPECULATION.format(log=log.as_uri()))
    with _consumer_with(bench, {"SPARK_CONF_DIR": str(properties.parent)}):
        bench.ready()
        bench.lake.land(8)  # every executor starts its Python
        bench.ready()
        slowed = _tasks_of(bench.cluster, 0)
        for process in slowed:
            process.suspend()
        try:
            bench.lake.land(12)
            problem = bench.drain()
            copies = _copies(log)  # Spark writes this log when a stage ends
        finally:
            for process in slowed:
                process.resume()
        outcome = Outcome(hits=copies, problems=[problem] if problem else [])
        time.sleep(_AWAY_SECONDS)  # the slow attempts write their files
        return _counted(bench, bench.recover(outcome))


def postgres_restarted(step: Step) -> Run:
    """Catalog and landing log are away for some seconds at a step."""

    def run(bench: Bench) -> Outcome:
        bench.order(step, Act.WAIT)
        bench.postgres.stop()
        bench.orders.take_back()
        time.sleep(_AWAY_SECONDS)
        bench.postgres.start()
        return _counted(bench, bench.recover(Outcome(hits=1), may_end=True))

    return run


def cut_off(bench: Bench) -> Outcome:
    """The storage refuses the keys of one of the two workers, until they are corrected."""
    bench.ready()
    consumer = bench.consumer
    assert consumer is not None
    with _worker_with(bench, {"AWS_SECRET_ACCESS_KEY": "wrong"}), bench.lake.producing(every=2.0):
        # Its executor gets no tasks until it has registered, which takes a minute on a busy machine, and then some of
        # them. A task returns its error to the driver, which ends: Spark's log has no failed task.
        wait_until(lambda: not consumer.alive, 3 * STRIKE_SECONDS, every=1.0)
    hits = len(_REFUSED.findall(consumer.last_words()))
    return _counted(bench, bench.recover(Outcome(hits=hits), may_end=True))


def clocks_apart(bench: Bench) -> Outcome:
    """The clock of the tasks on one of the two workers is ten minutes ahead."""
    if not _FAKETIME.is_file():
        return Outcome(possible=False, notes=["the Debian package libfaketime is missing"])
    # Only the Python of tasks: a JVM asks for the time too often for libfaketime.
    python = bench.cluster.own / "python-with-a-clock"
    python.write_text(
        f'#!/bin/sh\n[ -z "$FAKETIME" ] || export LD_PRELOAD={_FAKETIME}\nexec {bench.cluster.python} "$@"\n'
    )
    python.chmod(0o755)
    clock = {"FAKETIME": f"+{_APART_MINUTES}m"}
    told = subprocess.run([python, "-c", "import time; print(time.time())"], env=clock, capture_output=True, check=True)
    ahead = (float(told.stdout) - time.time()) / 60
    bench.ready()
    with _worker_with(bench, clock) as work, _consumer_with(bench, {"LAKE_SPARK_PYTHON": str(python)}):
        bench.ready()
        with bench.lake.producing(every=2.0):
            wait_until(lambda: _said(work, _DONE) > _ENOUGH_TASKS, 3 * STRIKE_SECONDS, every=1.0)
        outcome = bench.recover(Outcome(hits=_said(work, _DONE) if ahead > _APART_MINUTES - 1 else 0))
        return _counted(bench, outcome)


def _kill(cluster: Cluster, victim: str, chance: random.Random) -> None:
    worker = chance.choice(cluster.workers)
    if victim == "executor":
        if not wait_until(lambda: any(each.executors() for each in cluster.workers), STRIKE_SECONDS):
            raise NotStruckError("there is no executor")
        chance.choice([process for each in cluster.workers for process in each.executors()]).kill()
    elif victim == "worker":
        worker.kill(executors=True)
        worker.start()
    else:
        cluster.master.kill()
        cluster.master.start()


def _counted(bench: Bench, outcome: Outcome) -> Outcome:
    """Note the number of files in the folders of the tables that no snapshot refers to."""
    if bench.has_lake:
        catalog = open_catalog(bench.lake.settings)
        tables = [name for name in (*OF_BRONZE, *OF_LAYERS) if catalog.table_exists(name)]
        found = sum(len(orphans(bench.lake.settings, catalog.load_table(name))) for name in tables)
        outcome.notes.append(f"{found} orphan files so far")
    return outcome


@contextmanager
def _consumer_with(bench: Bench, variables: Mapping[str, str]) -> Iterator[None]:
    """Run the consumer with other variables."""
    bench.ready()
    bench.stop()
    lake = bench.lake
    before = dict(lake.others)
    lake.others |= variables
    try:
        yield
    finally:
        lake.others = before
        bench.end_consumers()


@contextmanager
def _worker_with(bench: Bench, variables: Mapping[str, str]) -> Iterator[Path]:
    """Restart a worker with other variables, which its executors inherit; yield its folder of executors."""
    worker = bench.cluster.workers[1]
    before = worker.variables
    worker.kill(executors=True)
    worker.variables = {**before, **variables}
    worker.start()
    try:
        if not wait_until(lambda: bool(worker.executors()), STRIKE_SECONDS):
            raise NotStruckError("the worker got no executor")
        yield worker.folder / "work"
    finally:
        worker.kill(executors=True)
        worker.variables = before
        worker.start()


def _tasks_of(cluster: Cluster, number: int) -> list[psutil.Process]:
    """Return the Python processes that run tasks on a worker: forks of the executor's daemon."""
    found = [
        process
        for executor in cluster.workers[number].executors()
        for process in executor.children(recursive=True)
        if process.name() != "java" and not process.children()
    ]
    if not found:
        raise NotStruckError("the executor has no Python process")
    return found


def _copies(log: Path) -> int:
    """Return the number of speculative attempts in Spark's event logs."""
    files = (path for path in log.rglob("*") if path.is_file())
    started = ("SparkListenerTaskStart", '"Speculative":true')
    lines = (line for path in files for line in path.read_text(errors="replace").splitlines())
    return sum(all(part in line for part in started) for line in lines)


def _said(work: Path, words: str) -> int:
    """Return how often the log of a worker's newest executor has these words."""
    newest = max(work.glob("app-*/*/stderr"), key=lambda path: path.stat().st_mtime)
    return newest.read_text(errors="replace").count(words)
