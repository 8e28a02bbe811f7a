"""A started query, as the application sees it: a query in our own loop, or queries of Spark."""

from collections.abc import Sequence
from typing import Protocol

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

    They can be cut off at any moment: work that was not recorded as done is repeated.
    """

    is_busy = False

    def __init__(self, queries: Sequence[StreamingQuery]) -> None:
        self._queries = queries

    @property
    def has_ended(self) -> bool:
        """Whether one of the queries has ended."""
        return not all(query.isActive for query in self._queries)

    def failure(self) -> Exception | None:
        """Return the error of one of the queries."""
        return next((error for query in self._queries if (error := query.exception())), None)

    def drain(self) -> None:
        """Wait until the queries, which end by themselves, have processed what was available at their start."""
        for query in self._queries:
            query.awaitTermination()

    def stop(self) -> None:
        """End all queries."""
        for query in self._queries:
            query.stop()
