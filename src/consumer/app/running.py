"""A query that was started, as the application sees it: one of our own loop, or queries of Spark."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery


class Running(Protocol):
    """A query that was started."""

    @property
    def has_ended(self) -> bool:
        """Whether it does nothing more."""

    @property
    def is_busy(self) -> bool:
        """Whether it is in a micro-batch that is worth waiting for."""

    def failure(self) -> Exception | None:
        """Why it failed."""

    def drain(self) -> None:
        """Wait until it has taken all that is available; raise the error that it failed with."""

    def stop(self) -> None:
        """End it."""


class Paused:
    """A query that takes nothing, since an operator has to decide first."""

    has_ended = True
    is_busy = False

    def failure(self) -> Exception | None:
        """Nothing: it was not started."""
        return None

    def drain(self) -> None:
        """Do nothing: there is nothing that it may take."""

    def stop(self) -> None:
        """Do nothing: it was not started."""


class SparkQueries:
    """Streaming queries of Spark that are started and end together.

    A source that Spark ends by itself does not know of the application's stop file: the query declines a micro-batch,
    before anything of it is read, and the next run begins with that one.
    """

    def __init__(
        self,
        queries: Sequence[StreamingQuery],
        *,
        end_themselves: bool = False,
        has_declined: Callable[[], bool] = lambda: False,
        can_be_cut: bool = False,
    ) -> None:
        self._queries = queries
        self._end_themselves = end_themselves  # once they have taken what was there when they were started
        self._has_declined = has_declined
        self._can_be_cut = can_be_cut  # what was not noted as done is done again

    @property
    def has_ended(self) -> bool:
        """Whether one of them has ended."""
        return not all(query.isActive for query in self._queries)

    @property
    def is_busy(self) -> bool:
        """Whether a trigger is active, or the first one, which may repeat a micro-batch without asking."""
        if self._can_be_cut:
            return False
        # Spark says it in no other way: tests/consumer/app/test_contracts.py holds the text.
        return any(
            status["isTriggerActive"] or status["message"].startswith("Initializing")
            for status in (query.status for query in self._queries)
        )

    def failure(self) -> Exception | None:
        """Why one of them failed; None if it declined a micro-batch."""
        if self._has_declined():
            return None
        return next((error for query in self._queries if (error := query.exception())), None)

    def drain(self) -> None:
        """Wait until they have taken all that is available."""
        try:
            for query in self._queries:
                query.awaitTermination() if self._end_themselves else query.processAllAvailable()
        except StreamingQueryException:
            if not self._has_declined():
                raise

    def stop(self) -> None:
        """End all of them."""
        for query in self._queries:
            query.stop()
