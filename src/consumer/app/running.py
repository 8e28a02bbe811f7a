"""A started query, as the application sees it: a query in our own loop, or queries of Spark."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery


class Running(Protocol):
    """A started query."""

    @property
    def has_ended(self) -> bool:
        """Whether the query has ended."""

    @property
    def is_busy(self) -> bool:
        """Whether the query is in a micro-batch that is worth waiting for."""

    def failure(self) -> Exception | None:
        """Return the error that ended the query; None without an error."""

    def drain(self) -> None:
        """Wait until the query has processed all available data; raise its error if it failed."""

    def stop(self) -> None:
        """End the query."""


class Paused:
    """A query that processes nothing, since an operator has to decide first."""

    has_ended = True
    is_busy = False

    def failure(self) -> Exception | None:
        """Return None: the query was not started."""
        return None

    def drain(self) -> None:
        """Do nothing: the query may not process anything."""

    def stop(self) -> None:
        """Do nothing: the query was not started."""


class SparkQueries:
    """Streaming queries of Spark that start and end together.

    A source that Spark ends by itself does not know the application's stop file: the query declines a micro-batch
    before reading any of it, and the next run begins with that micro-batch.
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
        self._end_themselves = end_themselves  # once they have processed what was available at their start
        self._has_declined = has_declined
        self._can_be_cut = can_be_cut  # work that was not noted as done is repeated

    @property
    def has_ended(self) -> bool:
        """Whether one of the queries has ended."""
        return not all(query.isActive for query in self._queries)

    @property
    def is_busy(self) -> bool:
        """Whether a trigger is active, or the first one is starting, which may repeat a micro-batch without asking."""
        if self._can_be_cut:
            return False
        # Spark offers no other way: tests/consumer/app/test_contracts.py checks the text.
        return any(
            status["isTriggerActive"] or status["message"].startswith("Initializing")
            for status in (query.status for query in self._queries)
        )

    def failure(self) -> Exception | None:
        """Return the error of one of the queries; None if it declined a micro-batch."""
        if self._has_declined():
            return None
        return next((error for query in self._queries if (error := query.exception())), None)

    def drain(self) -> None:
        """Wait until the queries have processed all available data."""
        try:
            for query in self._queries:
                query.awaitTermination() if self._end_themselves else query.processAllAvailable()
        except StreamingQueryException:
            if not self._has_declined():
                raise

    def stop(self) -> None:
        """End all queries."""
        for query in self._queries:
            query.stop()
