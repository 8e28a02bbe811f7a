"""Scenarios of operators and other tools: restore, maintain, unmount, move, start twice, roll back.

After each one, the consumer either continues by itself, or ends with a clear line whose advice is followed exactly.
"""

import itertools
import re
import time
from collections.abc import Callable, Sequence

from tests.chaos.advice import ended, go_on
from tests.chaos.backups import BackUp
from tests.chaos.bench import STRIKE_SECONDS, Bench, NotStruckError
from tests.chaos.grid import Outcome
from tests.chaos.lake import GOLD, OF_BRONZE, TABLES
from tests.chaos.maintenance import PYICEBERG_JOBS, SPARK_JOBS
from tests.chaos.orders import Act, Step
from tests.chaos.processes import Process, wait_until
from tests.operations import landing_zone
from tests.operations.pieces import Piece

Run = Callable[[Bench], Outcome]
PIECES = (Piece.CHECKPOINTS, Piece.LANDING_LOG, Piece.CATALOG)
SUBSETS = [subset for size in (1, 2, 3) for subset in itertools.combinations(PIECES, size)]
TOGETHER = (Piece.WAREHOUSE, Piece.CATALOG)
JOBS = {"plain Spark": SPARK_JOBS, "PyIceberg": PYICEBERG_JOBS}
_REFUSED = {("compact", GOLD)}
"""Iceberg refuses to compact files that got deletion vectors meanwhile, which happens in gold all the time."""
_LEAST_SECONDS = 10.0
_MAINTENANCE_SECONDS = 600.0
_OTHER_STREAM = "sensors"
_MAINTENANCE = "tests.chaos.maintenance"


def names_of(pieces: Sequence[Piece]) -> str:
    """Return the names of pieces as people write them."""
    words = {Piece.LANDING_LOG: "landing log", Piece.CATALOG: "catalog"}
    return " and ".join(words.get(piece, str(piece)) for piece in pieces)


def restored(*pieces: Piece) -> Run:
    """Pieces are restored from a copy; batches landed after the copy was made, and after the consumer was stopped."""

    def run(bench: Bench) -> Outcome:
        bench.ready()
        bench.stop()
        copy = BackUp(bench.lake, "+".join(pieces), *pieces)
        bench.lake.land(6)
        bench.ready()
        bench.stop()
        bench.lake.land(3)
        if not copy.restore(*pieces):
            bench.give_up()
            raise NotStruckError("a piece was as it had been")
        bench.lake.land(3)
        return go_on(bench, Outcome(hits=len(pieces)))

    return run


def maintained_while_running(tool: str, tables: Sequence[str] = OF_BRONZE) -> Run:
    """Another program repeatedly maintains tables while batches land."""

    def run(bench: Bench) -> Outcome:
        bench.ready()
        until = bench.lake.folder / "stop-maintenance"
        until.unlink(missing_ok=True)
        other = bench.start_program(_MAINTENANCE, "loop", ",".join(JOBS[tool]), str(until), *tables)

        def missing() -> set[tuple[str, str]]:
            return {(job, table) for job in JOBS[tool] for table in tables} - set(_done(other)) - _REFUSED

        before, began = len(bench.lake.files), time.monotonic()
        with bench.lake.producing(every=1.0):
            # A job may lose against the consumer's commits; a later round does it.
            wait_until(lambda: not missing() or not other.alive, _MAINTENANCE_SECONDS, every=0.2)
            time.sleep(max(0.0, began + _LEAST_SECONDS - time.monotonic()))
        until.touch()
        code = other.wait(60)
        other.end_all()
        if code != 0:
            raise NotStruckError(f"the maintenance ended with {code}: {other.last_words()}")
        if missing():
            raise NotStruckError(f"never done: {sorted(missing())}")
        outcome = Outcome(hits=len(_done(other)))
        failed = other.text().count("failed ")
        outcome.notes += [f"{failed} of the other program's commits failed"] if failed else []
        outcome.notes.append(f"{len(bench.lake.files) - before} files landed meanwhile")
        return go_on(bench, outcome)

    return run


def maintained_after_kill(step: Step, tool: str, lost: str, tables: Sequence[str] = OF_BRONZE) -> Run:
    """The consumer is killed, tables are maintained; the checkpoint may be lost, with or without the landing log."""

    def run(bench: Bench) -> Outcome:
        bench.kill_at(step)
        hits = len(done_by(bench, "once", ",".join(JOBS[tool]), *tables))
        if lost:
            bench.lake.lose_checkpoint()
        if "log" in lost:
            bench.lake.lose_landing_log()
        return go_on(bench, Outcome(hits=hits))

    return run


def orphans_removed(step: Step, table: str) -> Run:
    """Orphans of any age are removed at a step of a micro-batch, including files that it has written."""

    def run(bench: Bench) -> Outcome:
        bench.order(step, Act.WAIT)
        done = done_by(bench, "once", "orphans", table)
        removed = sum(done.values())
        if not removed:
            bench.orders.take_back()
            raise NotStruckError("no file was removed")
        bench.orders.take_back()
        return go_on(bench, Outcome(hits=removed))

    return run


def unmounted(*, empty: bool) -> Run:
    """The consumer is killed with pending files; the landing zone is unmounted at the next start, and mounted later."""

    def run(bench: Bench) -> Outcome:
        bench.kill_at(Step.BRONZE_APPENDED)
        outcome = Outcome()
        with landing_zone.unmounted(bench.lake.settings, empty):
            bench.consumer = consumer = bench.start()
            consumer.wait(STRIKE_SECONDS)
            outcome.problems += bench.unclear_end()
            code = consumer.wait(0)
            outcome.notes.append(f"ended with {code}: {consumer.last_words()}")
            if code != 3:
                outcome.problems.append(f"it ended with {code}, not 3")
        outcome.hits = 1
        bench.consumer = None
        return go_on(bench, outcome)

    return run


def moved(bench: Bench) -> Outcome:
    """The landing zone is moved to another folder, with files that were not read."""
    bench.kill_at(Step.BRONZE_APPENDED)
    bench.lake.change(landing_zone.moved(bench.lake.settings, bench.lake.folder / "moved-landing"))
    bench.lake.land(3)
    bench.consumer = bench.start()
    outcome = Outcome(hits=1)
    bench.consumer.wait(STRIKE_SECONDS)
    ended(bench, outcome)
    if not any("landing move" in note for note in outcome.notes):
        outcome.problems.append("the move was not noticed")
    go_on(bench, outcome)
    bench.give_up()  # pieces are looked up in their old places
    return outcome


def aliased(bench: Bench) -> Outcome:
    """The landing zone is reached by another name at each start: ``..``, links, another mount point."""
    outcome = Outcome()
    bench.new_lake().land(4)
    base = bench.lake.settings
    for alias in landing_zone.ALIASES:
        bench.ready()
        bench.stop()
        bench.lake.change(alias(base))
        bench.lake.land(2)
        outcome.hits += 1
    go_on(bench, outcome)
    bench.give_up()
    return outcome


def two_first_starts(other_stream: bool) -> Run:
    """Two consumers of one stream, or of two, start at once on an empty lake."""

    def run(bench: Bench) -> Outcome:
        bench.new_lake().land(6)
        outcome = Outcome(hits=1)
        first = bench.start()
        second = bench.start("--available-now", stream=_OTHER_STREAM) if other_stream else bench.start()
        if other_stream:
            bench.consumer = first
            if (code := second.wait(STRIKE_SECONDS)) != 0:
                outcome.problems.append(f"the other stream's ended with {code}: {second.last_words()}")
            return go_on(bench, outcome)
        wait_until(lambda: not (first.alive and second.alive), STRIKE_SECONDS)
        left, refused = (first, second) if first.alive else (second, first)
        code = refused.wait(0)
        outcome.notes.append(f"one of them ended with {code}: {refused.last_words()}")
        if code != 3 or "already" not in refused.last_words():
            outcome.problems.append("one of them was not refused with a clear line")
        bench.consumer = left
        return go_on(bench, outcome)

    return run


def undone(job: str, table: str = TABLES.bronze, advice: str = "CALL") -> Run:
    """A table is rolled back or replaced while the consumer is stopped; the consumer prints how to undo that."""

    def run(bench: Bench) -> Outcome:
        bench.ready()
        bench.lake.land(2)
        bench.ready()  # so that there is a commit to roll back to, even in a new lake
        bench.stop()
        bench.lake.land(3)
        done_by(bench, "once", job, table)
        bench.consumer = bench.start()
        outcome = Outcome(hits=1)
        bench.consumer.wait(STRIKE_SECONDS)
        ended(bench, outcome)
        if not any(f"Followed: {advice}" in note for note in outcome.notes):
            outcome.problems.append("it did not print what undoes it")
        if outcome.problems:
            bench.give_up()
            return outcome
        return go_on(bench, outcome)

    return run


def done_by(bench: Bench, *arguments: str) -> dict[tuple[str, str], int]:
    """Run maintenance to its end; return its results, see :func:`_files_of`."""
    return _files_of(bench.run_program(_MAINTENANCE, *arguments))


def _done(process: Process) -> dict[tuple[str, str], int]:
    return _files_of(process.text())


def _files_of(log: str) -> dict[tuple[str, str], int]:
    """Return, by job and table, the number of orphans in the last round."""
    found = re.findall(r"^done (\S+) (\S+) (\d+)$", log, re.MULTILINE)
    return {(job, table): int(files) for job, table, files in found}
