"""An application: any number of queries in one Spark session, with one place that handles signals and the end."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from consumer.queries.bulletin import Bulletin
from consumer.queries.running import Running
from lakeproof.catalog import catalog_errors
from lakeproof.errors import LakeproofError, PausedError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.signals import end_at_once, ending_signals
from lakeproof.state.failures import clear_failures, record_failure
from lakeproof.state.lease import Lease, LeaseHeldError, lease

log = structlog.get_logger()

STOPPING = "stopping: finishing the micro-batch"
"""Log event for a signal."""
_POLL_SECONDS = 0.2
_IDLE_POLL_SECONDS = 0.05


class Query(ABC):
    """A query that the application runs."""

    name: str
    """Name of the query, of its checkpoint, its scheduler pool and its markers."""
    lease_name: str
    """Name of the lease that prevents a second consumer from running the query."""
    follows: str | None = None
    """Name of the query whose tables this query reads."""
    weight: int = 10
    """Share of the cores, relative to the other queries."""
    spark_settings: Mapping[str, str] = {}
    """Settings of Spark's session for this query only."""
    micro_batches: int = 0
    """Number of finished micro-batches."""
    retries: int = 0
    """Number of retries because a server was unavailable."""
    reads: Sequence[str] = ()
    """Inputs: tables, and URIs of a folder, or `kafka:` and a topic."""
    writes: Sequence[str] = ()
    """Outputs, in the same form."""
    paused: PausedError | None = None
    """Why the query processes nothing more, though it did not fail: queries that follow it run to their end."""

    @abstractmethod
    def prepare(self) -> None:
        """Create what is missing, without Spark. Called in a thread while the session starts."""

    @abstractmethod
    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Finish the work of an interrupted run, and find where to resume."""

    @abstractmethod
    def start(self, spark: SparkSession, bulletin: Bulletin) -> Running:
        """Start the query."""

    @abstractmethod
    def explain(self, error: Exception) -> LakeproofError:
        """Return the reason for a failure."""


Started = Callable[[Mapping[str, Running], Bulletin], None]
"""A callback for when all queries of an application have been started."""


def run_queries(
    settings: Settings,
    queries: Sequence[Query],
    session: Callable[[], SparkSession],
    *,
    available_now: bool,
    started: Iterable[Started] = (),
) -> None:
    """Run queries until they are done, or until SIGINT or SIGTERM: then finish their micro-batches, and return.

    Each query has its own lease, FAIR scheduler pool and settings. When a query fails, the others finish their current
    micro-batch, and end.
    """
    with ExitStack() as leases:
        held = [leases.enter_context(lease(settings.state.database, query.lease_name)) for query in queries]
        clear_failures(settings.state.database, [query.lease_name for query in queries])
        with ThreadPoolExecutor(1) as pool:
            preparing = pool.submit(_prepare, settings, queries)
            spark = session()
        preparing.result()
        for query, its_lease in zip(queries, held, strict=True):
            with _noting_failure(settings, query):
                query.resume(spark, its_lease)
        with _bulletin() as bulletin:
            _run(settings, spark, queries, held, bulletin, started, available_now=available_now)


def _prepare(settings: Settings, queries: Sequence[Query]) -> None:
    for query in queries:
        with _noting_failure(settings, query), catalog_errors():
            query.prepare()


@contextmanager
def _noting_failure(settings: Settings, query: Query) -> Iterator[None]:
    """Raise an error of Spark as explained by the query, and record it for `consumer status`."""
    try:
        try:
            yield
        except (Py4JError, PySparkException) as error:
            raise query.explain(error) from error
    except LakeproofError as error:
        _note_failure(settings, query, error)
        raise


def _note_failure(settings: Settings, query: Query, error: LakeproofError) -> None:
    """Record the error of a query for `consumer status`."""
    with suppress(UnavailableError):  # the error of the query is what the user has to see
        record_failure(settings.state.database, query.lease_name, error)


def _run(
    settings: Settings,
    spark: SparkSession,
    queries: Sequence[Query],
    leases: Sequence[Lease],
    bulletin: Bulletin,
    started: Iterable[Started],
    *,
    available_now: bool,
) -> None:
    running: dict[str, Running] = {}
    try:
        for query in queries:
            with _noting_failure(settings, query):
                running[query.name] = _start(spark, query, bulletin)
        for tell in started:
            tell(running, bulletin)
        if available_now:
            failed = _wait_until_done(running, {each.name: each.follows for each in queries}, bulletin)
        else:
            failed = _wait_for_the_end(running, bulletin)
        paused = next((query.name for query in queries if query.paused), None)
        if paused and failed in (None, paused):
            failed = paused
            _drain_followers(settings, running, queries, paused)
        if failed:
            bulletin.stop()
            _wait_until_idle(running)
            query, held = next(each for each in zip(queries, leases, strict=True) if each[0].name == failed)
            error = _failure(query, running[failed], held)
            _note_failure(settings, query, error)
            raise _named(query, error, len(queries))
    finally:
        for each in running.values():
            each.stop()
    for query in queries:
        log.info(
            "stopped",
            query=query.name,
            micro_batches=query.micro_batches,
            on_signal=bulletin.is_stopping,
        )


def _drain_followers(settings: Settings, running: Mapping[str, Running], queries: Sequence[Query], paused: str) -> None:
    """Let the queries that follow a paused query process its commits."""
    drained = {paused}
    for query in queries:
        if query.follows and query.follows in drained:
            drained.add(query.name)
            try:
                running[query.name].drain()
            except Exception as error:  # noqa: BLE001 - the pause is what the user has to see
                _note_failure(settings, query, query.explain(error))


def _start(spark: SparkSession, query: Query, bulletin: Bulletin) -> Running:
    """Start a query in its own pool. It copies the session's settings, which are then restored."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.name)
    try:
        with own_settings(spark, query):
            return query.start(spark, bulletin)
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # None removes it


@contextmanager
def own_settings(spark: SparkSession, query: Query) -> Iterator[None]:
    """Give the session the settings of a query, and restore its own."""
    before = {name: spark.conf.get(name, None) for name in query.spark_settings}
    try:
        for name, value in query.spark_settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            spark.conf.unset(name) if was is None else spark.conf.set(name, was)


def _wait_until_done(
    running: Mapping[str, Running], follows: Mapping[str, str | None], bulletin: Bulletin
) -> str | None:
    """Wait until each query has processed all available data; return the name of the first query that failed."""
    draining: dict[str, Future[None]] = {}

    def drain(name: str) -> None:
        before = draining.get(follows[name] or "")
        if before:  # afterwards, the followed query adds nothing more
            with suppress(PausedError):  # what it has committed is processed
                before.result()
        # With an exhausted source, this returns once all is committed.
        running[name].drain()

    with ThreadPoolExecutor(len(running)) as pool:
        for name in running:
            draining[name] = pool.submit(drain, name)
        failed, left = None, {*draining.values()}
        while left and not failed:
            done, left = wait(left, return_when=FIRST_EXCEPTION)
            failed = next((name for name, each in draining.items() if each in done and _has_failed(each)), None)
        if failed:
            bulletin.stop()  # the other queries process nothing more; the pool waits for them
    return failed


def _has_failed(draining: Future[None]) -> bool:
    """Return whether a query ended by an error other than a pause, which stops no other query."""
    error = draining.exception()
    return error is not None and not isinstance(error, PausedError)


def _wait_for_the_end(running: Mapping[str, Running], bulletin: Bulletin) -> str | None:
    """Wait for a signal, or for a query to fail; return the name of that query."""
    while not bulletin.is_stopping:
        time.sleep(_POLL_SECONDS)
        ended = next((name for name, query in running.items() if query.has_ended), None)
        if ended and not bulletin.is_stopping:
            return ended
    _wait_until_idle(running)
    return next((name for name, query in running.items() if query.has_ended and query.failure()), None)


def _wait_until_idle(running: Mapping[str, Running]) -> None:
    # The sources start no more micro-batches: only a running micro-batch is worth waiting for, not the next trigger.
    while any(not query.has_ended and query.is_busy for query in running.values()):
        time.sleep(_IDLE_POLL_SECONDS)


def _failure(query: Query, running: Running, held: Lease) -> LakeproofError:
    try:
        held.check()
    except LeaseHeldError as taken_over:  # two consumers ran at once, which explains any other failure
        return taken_over
    except UnavailableError:
        pass  # the query's own error names the database, too
    return query.explain(running.failure() or RuntimeError("it stopped unexpectedly"))


def _named(query: Query, error: LakeproofError, queries: int) -> LakeproofError:
    """Add the name of the query to an error if there are several queries."""
    if queries > 1:
        error.message = f"{query.name}: {error.message}"
    return error


@contextmanager
def _bulletin() -> Iterator[Bulletin]:
    """Let a signal stop the queries; a second one ends the program at once."""
    bulletin, signals = Bulletin(), SimpleQueue[bool]()

    def stop(number: int, _frame: Any) -> None:
        if bulletin.is_stopping:
            end_at_once(number)
        bulletin.stop()
        signals.put(True)

    def say() -> None:
        if signals.get():
            log.info(STOPPING)

    # A handler must not log: the main thread, in which it runs, may hold the lock of the log.
    Thread(target=say, name="signals", daemon=True).start()

    with ending_signals(stop):
        try:
            yield bulletin
        finally:
            bulletin.stop()  # for the monitor, which outlives the queries
            signals.put(False)
