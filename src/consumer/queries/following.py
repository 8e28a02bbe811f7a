"""A query that follows tables: it looks for new data, processes it, and keeps its progress in the tables it fills.

The query needs no checkpoint: each commit records the position of its table, so there is no other state that can be
lost, must be restored, or could disagree with the tables.
"""

from collections.abc import Callable, Mapping
from functools import partial
from threading import Condition, Event
from time import monotonic

import structlog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from consumer.iceberg.jvm import activate, cloned_session
from consumer.queries.bulletin import Bulletin

log = structlog.get_logger()

_ATTEMPTS = 5
_NEWS_POLL_SECONDS = 0.05  # also the least time between two looks that find nothing
# Spark refuses a plan if the columns of a table have changed since planning: somebody applied a contract.
_TABLE_CHANGED = "INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS"


class Following:
    """A query in its own thread; see :class:`consumer.queries.running.Running`."""

    def __init__(
        self,
        name: str,
        take: Callable[[], bool],
        every: float,
        is_stopping: Callable[[], bool],
        news: Callable[[], object] = lambda: None,
        *,
        at_once: bool = True,
    ) -> None:
        self._take = take
        self._every = every
        self._is_stopping = is_stopping
        self._news = news
        self._at_once = at_once
        self._ending = Event()
        self._changed = Condition()
        # Looks by their numbers: the newest one, the newest one that found nothing, and the one that `drain` waits for.
        self._newest = self._found_nothing = self._awaited = 0
        self._taking = False
        self._error: Exception | None = None
        # Spark's thread class, so that it inherits the pool of the thread that starts it.
        self._thread = InheritableThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether its thread has ended."""
        return not self._thread.is_alive()

    @property
    def is_busy(self) -> bool:
        """Whether a look is in progress."""
        return self._taking

    def failure(self) -> Exception | None:
        """Return the error that ended the query; None without an error."""
        return self._error

    def drain(self) -> None:
        """Wait until a look that starts after this call finds nothing."""
        with self._changed:
            awaited = self._awaited = self._newest + 1
            self._changed.wait_for(lambda: self._found_nothing >= awaited or self.has_ended or self._error)
        if self._error:
            raise self._error

    def stop(self) -> None:
        """End the query after its current look."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                began, seen = monotonic(), self._news()
                with self._changed:
                    self._newest += 1
                    self._taking = not self._is_stopping()
                took = self._taking and self._take()
                with self._changed:
                    self._taking = False
                    if not took:
                        self._found_nothing = self._newest
                    self._changed.notify_all()
                if not self._at_once:
                    left = self._every - (monotonic() - began)
                    self._wait(max(left, 0 if took else _NEWS_POLL_SECONDS), seen)
                elif not took:
                    self._wait(max(self._every, _NEWS_POLL_SECONDS), seen)
        except Exception as error:  # noqa: BLE001 - the application asks for any error
            with self._changed:
                self._error = error
                self._taking = False
                self._changed.notify_all()

    def _wait(self, seconds: float, seen: object) -> None:
        """Wait, but no longer than until there is news, or `drain` waits for a look."""
        end = monotonic() + seconds
        while self._news() == seen and self._found_nothing >= self._awaited and (left := end - monotonic()) > 0:
            if self._ending.wait(min(left, _NEWS_POLL_SECONDS)):
                return


def follow(
    spark: SparkSession,
    name: str,
    take: Callable[[SparkSession], bool],
    every: float,
    bulletin: Bulletin,
    *,
    follows: str | None = None,
    at_once: bool = True,
    about: Mapping[str, object] | None = None,
) -> Following:
    """Start a query in its own session, with the current settings, as Spark does for a streaming query.

    `about` describes the query in the log; by default, its name.
    """
    session = cloned_session(spark)

    def take_and_tell() -> bool:
        took = take(session)
        if took:
            bulletin.note_progress(name)
        return took

    def take_in_session() -> bool:
        activate(session)
        for _ in range(_ATTEMPTS - 1):
            try:
                return take_and_tell()
            except PySparkException as error:
                if not (error.getCondition() or "").startswith(_TABLE_CHANGED):
                    raise
                log.info("repeating: a table got other columns meanwhile", query=name)
        return take_and_tell()

    log.info("started", **({"query": name} if about is None else about))
    news = partial(bulletin.progress, follows) if follows else lambda: None
    return Following(name, take_in_session, every, lambda: bulletin.is_stopping, news, at_once=at_once)
