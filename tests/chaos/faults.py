"""Scenarios in which the consumer is suspended or doubled, or a dependency fails."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from tests.chaos.bench import STRIKE_SECONDS, Bench, NotStruckError
from tests.chaos.grid import Outcome
from tests.chaos.lake import TABLES
from tests.chaos.orders import Act, Step
from tests.chaos.processes import wait_until
from tests.chaos.servers import Rule

from lakeproof.state.lease import LEASE_SECONDS
from lakeproof.storage.s3 import s3_client

DATA_PUT = r"^PUT /[^/]+/warehouse/bronze/events/data/"
METADATA_PUT = r"^PUT /[^/]+/warehouse/bronze/events/metadata/[^/]*metadata\.json"
_LOCATIONS = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'bronze'"
_DISK = "48m"
_SOUND = {"user_id": "u", "event_id": "e", "event_timestamp": "2026-11-21T00:00:00Z", "event_type": "page_view"}


def suspended(bench: Bench, step: Step = Step.BRONZE_PREPARED) -> Outcome:
    """A consumer is suspended past its lease, replaced, and woken up in the middle of an append."""
    outcome = Outcome(hits=1)
    first = bench.order(step, Act.SUSPEND)
    if locked := bench.lake.locked():
        # Another of its queries was just writing. SQLite blocks all other writers until that process continues or ends.
        bench.give_up()
        raise NotStruckError(f"it was suspended while it held the lock of {locked}")
    time.sleep((bench.options.lease_seconds or LEASE_SECONDS) + 2)
    bench.consumer = None
    bench.recover(outcome)
    if outcome.problems:
        return outcome
    first.signal_group(signal.SIGCONT)
    code = first.wait(60)
    if code not in (1, 3) or "took over" not in first.text():
        outcome.problems.append(f"the one that woke up ended with {code}: {first.last_words()}")
    outcome.notes.append(f"the one that woke up ended with {code}: {first.last_words()}")
    first.end_all()
    return bench.recover(outcome)


def two_at_once(bench: Bench) -> Outcome:
    """A second consumer is refused."""
    bench.ready()
    second = bench.start("--available-now")
    code = second.wait(90)
    second.end_all()
    outcome = Outcome(hits=1, notes=[f"the second one ended with {code}: {second.last_words()}"])
    if code != 3 or "already" not in second.last_words() or "Traceback" in second.text():
        outcome.problems.append("the second one was not refused with a clear line")
    return bench.recover(outcome)


def overwritten(bench: Bench) -> Outcome:
    """A file is overwritten between a crash after bronze and the restart: verify reports it, and no other problem."""
    bench.kill_at(Step.BRONZE_APPENDED)
    uri = min(bench.lake.unfinished())
    bench.lake.overwrite(uri, b'[{"another": "content"}]')
    bench.consumer = bench.start()
    outcome = Outcome(hits=1)
    if problem := bench.drain():
        outcome.problems.append(problem)
    counted, verified = bench.lake.count(), bench.lake.verify()
    outcome.lost, outcome.doubled = counted.lost, counted.doubled
    if verified.exit_code != 1 or verified.off() != {uri: "changed"}:
        outcome.problems.append(f"verify: exit code {verified.exit_code}: {sorted(verified.off().values())}")
    bench.give_up()  # its fault remains
    return outcome


def landed_again(bench: Bench) -> Outcome:
    """A file that lands again under another name is two files; verify names them."""
    bench.ready()
    first = bench.lake.files[0]
    again = bench.lake.land_again(first)
    outcome = bench.recover(Outcome(hits=1))
    resent = [names for stream in bench.verified.report["streams"] for names in stream["resent"]]
    if sorted((first, again)) not in resent:
        outcome.problems.append("verify does not say that it was landed again")
    return outcome


def trailing_garbage(bench: Bench) -> Outcome:
    """Bytes follow the array of a batch: no reader may accept the array and ignore the rest."""
    bench.ready()
    batch = b"[" + msgspec.json.encode(_SOUND) + b"] and more"
    bench.lake.land_as_it_is("garbage-at-its-end.json", batch, [(TABLES.dead_letters, 0)])
    return bench.recover(Outcome(hits=1))


def minio_killed(request: str, phase: str) -> Callable[[Bench], Outcome]:
    """MinIO dies during a request, or before answering a completed one, and is back after 5 s."""

    def run(bench: Bench) -> Outcome:
        _hold(bench, Rule("hold", request, phase, every=_which(request), once=True, drop=phase == "response"))
        bench.server.kill()
        bench.proxy.lift()
        time.sleep(5)
        bench.server.restart()
        return bench.recover(Outcome(hits=1), may_end=True)

    return run


def disturbed(rule: Rule, seconds: float = 10) -> Callable[[Bench], Outcome]:
    """Requests to MinIO fail or are slow for a while, as batches land."""

    def run(bench: Bench) -> Outcome:
        bench.ready()
        bench.proxy.enforce(rule)
        with bench.lake.producing():
            time.sleep(seconds)
        hits = bench.proxy.hits()
        return bench.recover(Outcome(hits=hits), may_end=True)

    return run


def commit_held_back(*, killed: bool) -> Callable[[Bench], Outcome]:
    """The metadata of a commit arrives 10 s late; the consumer waits, or is killed meanwhile."""

    def run(bench: Bench) -> Outcome:
        _hold(bench, Rule("hold", METADATA_PUT, every=2, once=True))
        outcome = Outcome(hits=1)
        if killed:
            bench.kill(outcome)
            bench.consumer = bench.start()
        time.sleep(10)
        (held,) = bench.proxy.struck()
        bench.calm()
        if not wait_until(lambda: _arrived(bench, held), STRIKE_SECONDS):
            return bench.missed(f"it never arrived: {held}")
        return bench.recover(outcome)

    return run


def catalog_locked(bench: Bench) -> Outcome:
    """Another program holds the catalog's database for 20 s in the middle of an append."""
    bench.order(Step.BRONZE_PREPARED, Act.WAIT)
    with closing(sqlite3.connect(bench.lake.folder / "catalog.db", isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        before = database.execute(_LOCATIONS).fetchall()
        bench.orders.take_back()
        time.sleep(20)
        if database.execute(_LOCATIONS).fetchall() != before:
            raise NotStruckError("the append went on")
        database.execute("ROLLBACK")
    return bench.recover(Outcome(hits=1), may_end=True)


def catalog_gone(*, at_start: bool) -> Callable[[Bench], Outcome]:
    """The catalog's database is missing for 10 s in the middle of an append, or while a consumer starts."""

    def run(bench: Bench) -> Outcome:
        bench.order(Step.BRONZE_PREPARED, Act.WAIT)
        outcome = Outcome(hits=1)
        if at_start:
            bench.kill(outcome)
        catalog = bench.lake.folder / "catalog.db"
        away = catalog.rename(catalog.with_name("away.db"))
        before = _locations(away)
        bench.orders.take_back()
        if at_start:
            bench.consumer = bench.start()
            bench.consumer.wait(40)
            outcome.problems += bench.unclear_end()
            outcome.notes.append(bench.consumer.last_words())
        else:
            time.sleep(10)
        after = _locations(away)
        away.replace(catalog)
        if after != before:
            return bench.missed("the append went on", may_end=True)
        return bench.recover(outcome, may_end=True)

    return run


def answers_lost(bench: Bench, *, seconds: float = 15) -> Outcome:
    """For a while, every commit that lands in the catalog gets an error as its answer, or no answer."""
    bench.ready()
    proxy = bench.catalog_proxy
    assert proxy is not None
    before = len(proxy.lost)
    bench.loses_answers = True
    with bench.lake.producing():
        time.sleep(seconds)
    hits = len(proxy.lost) - before
    return bench.recover(Outcome(hits=hits), may_end=True)


def disk_full(bench: Bench) -> Outcome:
    """The disk that holds everything is full for a micro-batch."""
    with _small_disk(bench.options.folder / "disk") as disk:
        if disk is None:
            return Outcome(possible=False)
        try:
            bench.new_lake(disk).land(4)
            bench.order(Step.BEFORE_JUDGEMENT, Act.WAIT)
            catalog = bench.lake.folder / "catalog.db"
            before = _locations(catalog)
            filler = disk / "filler"
            _fill(filler)
            bench.orders.take_back()
            assert bench.consumer is not None
            bench.consumer.wait(30)
            after = _locations(catalog)
            filler.unlink()
            if after != before:
                return bench.missed("the append went on", may_end=True)
            return bench.recover(Outcome(hits=1), may_end=True)
        finally:
            bench.give_up()


def _locations(catalog: Path) -> list[Any]:
    """Return the locations of the metadata of bronze in a catalog's database."""
    with closing(sqlite3.connect(catalog)) as database:
        return database.execute(_LOCATIONS).fetchall()


def _arrived(bench: Bench, request: str) -> bool:
    """Return whether MinIO has the object of a PUT request."""
    bucket, _, key = unquote(request.removeprefix("PUT /").partition("?")[0]).partition("/")
    found = s3_client(bench.lake.settings.s3).list_objects_v2(Bucket=bucket, Prefix=key)
    return bool(found["KeyCount"])


def _which(request: str) -> int:
    """Return which matching request counts: an append commits first staged data, then the data that readers see."""
    return 2 if request == METADATA_PUT else 1


def _hold(bench: Bench, rule: Rule) -> None:
    bench.ready()
    bench.proxy.enforce(rule)
    bench.lake.land(6)
    # A later micro-batch is needed where each makes fewer requests of this kind than the rule waits for.
    with bench.lake.producing(every=2.0):
        if not wait_until(lambda: bench.proxy.hits() > 0, STRIKE_SECONDS, every=0.01):
            raise NotStruckError("there was no such request")


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a small file system in memory; yield None if this user may not mount one."""
    folder.mkdir(parents=True)
    try:
        mounted = os.geteuid() == 0 and not subprocess.call(
            ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "chaos", str(folder)], stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        mounted = False
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def _fill(filler: Path) -> None:
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 12)):
            pass
