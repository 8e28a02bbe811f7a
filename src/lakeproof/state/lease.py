"""Leases: one consumer per stream.

A consumer renews its lease while it runs. A killed consumer is noticed at once on the same machine, and from another
machine or container when its lease expires. Leases avoid wasted work and concurrent checkpoints; exactly-once does not
depend on leases but on markers, see :mod:`consumer.iceberg.append`.
"""

import platform
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import structlog
from sqlalchemy import Connection, Engine, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import LEASES

log = structlog.get_logger()

LEASE_SECONDS = 30.0  # lifetime of a lease without renewal: how long a dead machine blocks the next consumer

_GIVEN_BACK = 0.0
_RENEWALS = 6  # per lifetime, so that some may fail without loss of the lease
_BOOT, _PROCESSES = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


def silver_lease(stream: str) -> str:
    """Lease of the query that fills a stream's silver."""
    return f"silver.{stream}"


def gold_lease(product: str) -> str:
    """Lease of the query that fills a product."""
    return f"gold.{product}"


def alerts_lease(product: str) -> str:
    """Lease of the query that sends a product's alerts."""
    return f"alerts.{product}"


def maintenance_lease(streams: Sequence[str]) -> str:
    """Lease of the query that maintains the tables of streams while these run."""
    return f"maintenance.{'+'.join(sorted(streams))}"


def mode_lease(mode: str, checkpoint: str) -> str:
    """Lease of a mode's checkpoint."""
    return f"{mode} {checkpoint}"  # names of streams have no spaces


def modes_with_leases(database: str, mode: str) -> list[str]:
    """Checkpoints of past and current runs of a mode."""
    prefix = mode_lease(mode, "")
    with transaction(open_database(database)) as connection:
        names = connection.execute(select(LEASES.c.stream)).scalars()
        return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


class QueryState(StrEnum):
    """State of the query that holds or held a lease."""

    NEVER = "never"  # the query has not run
    RUNNING = "running"
    STOPPED = "stopped"
    DIED = "died"  # the lease was not returned: the query was killed, or its machine died


def state_of(database: str, name: str) -> QueryState:
    """State of a lease."""
    with transaction(open_database(database)) as connection:
        return state_in(connection, name)


def state_in(connection: Connection, name: str) -> QueryState:
    """State of a lease, read with an open connection."""
    row = connection.execute(select(LEASES).where(LEASES.c.stream == name)).one_or_none()
    if row is None:
        return QueryState.NEVER
    if row.expires_at == _GIVEN_BACK:
        return QueryState.STOPPED
    return QueryState.RUNNING if _is_held(row) else QueryState.DIED


def expiries(database: str, names: Sequence[str]) -> dict[str, float]:
    """Return when held leases expire unless they are renewed, in seconds since 1970."""
    with transaction(open_database(database)) as connection:
        rows = connection.execute(select(LEASES).where(LEASES.c.stream.in_(names)))
        return {row.stream: row.expires_at for row in rows if row.expires_at != _GIVEN_BACK}


class LeaseHeldError(LakeproofError):
    """Another consumer runs this stream."""

    exit_code = 3
    retryable = True


@contextmanager
def lease(database: str, stream: str) -> Iterator["Lease"]:
    """Hold a lease within the context."""
    held = Lease(open_database(database), stream)
    held.take()
    done = Event()
    renewing = Thread(target=held.renew_until, args=(done,), name="lease", daemon=True)
    renewing.start()
    try:
        yield held
    finally:
        done.set()
        renewing.join()
        held.give_back()


class Lease:
    """A lease held by this process."""

    def __init__(self, engine: Engine, stream: str) -> None:
        self._engine = engine
        self._stream = stream
        self._holder = uuid.uuid4().hex

    def take(self) -> None:
        """Take the lease if it is free, expired, or held by a dead process of this machine or container."""
        me = psutil.Process()
        mine = {
            "holder": self._holder,
            "host": this_host(),
            "pid": me.pid,
            "started": me.create_time(),
            "expires_at": time.time() + LEASE_SECONDS,
        }
        with transaction(self._engine) as connection:
            row = connection.execute(select(LEASES).where(LEASES.c.stream == self._stream)).one_or_none()
            if row is None:
                try:
                    connection.execute(insert(LEASES), mine | {"stream": self._stream})
                except IntegrityError:
                    raise self._held("another consumer", LEASE_SECONDS) from None
                return
            if _is_held(row):
                raise self._held(f"process {row.pid} on {row.host.partition(' ')[0]}", row.expires_at - time.time())
            # Compare-and-swap: of two concurrent consumers, only one gets the lease.
            was = LEASES.c.holder == row.holder
            taken = connection.execute(update(LEASES).where(LEASES.c.stream == self._stream, was).values(mine))
            if taken.rowcount != 1:
                raise self._held("another consumer", LEASE_SECONDS)

    def check(self) -> None:
        """Check that the lease is still held, and renew it."""
        with transaction(self._engine) as connection:
            renewed = connection.execute(
                update(LEASES)
                .where(LEASES.c.stream == self._stream, LEASES.c.holder == self._holder)
                # Where the system derives the start of processes from its clock, a step of the clock moves it.
                .values(expires_at=time.time() + LEASE_SECONDS, started=psutil.Process().create_time())
            )
        if renewed.rowcount != 1:
            raise LeaseHeldError(
                f"Another consumer took over the stream {self._stream!r} because this one did not renew its lease.",
                "No data is lost or duplicated. Run only one of them.",
            )

    def renew_until(self, done: Event) -> None:
        """Renew the lease until `done` is set or the lease is lost; writers check the lease themselves."""
        while not done.wait(LEASE_SECONDS / _RENEWALS):
            try:
                self.check()
            except LeaseHeldError:
                return
            except UnavailableError:
                continue  # the database may be locked or unavailable for a moment

    def give_back(self) -> None:
        """Release the lease; if that fails, the lease expires."""
        mine = (LEASES.c.stream == self._stream) & (LEASES.c.holder == self._holder)
        try:
            with transaction(self._engine) as connection:
                connection.execute(update(LEASES).where(mine).values(expires_at=_GIVEN_BACK))
        except UnavailableError as error:
            log.warning("the lease was not released", stream=self._stream, why=error.message)

    def _held(self, by: str, seconds: float) -> LeaseHeldError:
        return LeaseHeldError(
            f"The stream {self._stream!r} is already run by {by}.",
            "Stop that consumer first. The lease of a machine or container that died expires within "
            f"{max(seconds, 1):.0f} s.",
        )


def this_host() -> str:
    """Return the name of the machine, its boot and its namespace of processes: containers may share a name."""
    found = [platform.node()]
    with suppress(OSError):  # not Linux
        found += [_BOOT.read_text().strip(), str(_PROCESSES.stat().st_ino)]
    return " ".join(found)


def _is_held(row: Row[Any]) -> bool:
    is_gone = row.host == this_host() and not _lives(row.pid, row.started)
    return bool(row.expires_at > time.time()) and not is_gone


def _lives(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        # Process ids are reused: the start time must be the same, too.
        return abs(process.create_time() - started) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
