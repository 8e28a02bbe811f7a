"""A query whose source is Spark's own, and so does not know of the application's stop file."""

from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from consumer.sources.source import DeclinedError


class Declining:
    """Has the members of Spark's StreamingQuery that the application uses.

    It ends by declining a micro-batch, before anything of it is read: the next run begins with that one.
    """

    def __init__(self, query: StreamingQuery, failure: Callable[[], Exception | None]) -> None:
        self._query = query
        self._failure = failure

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it has not ended."""
        return self._query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """Whether it is in a micro-batch."""
        return self._query.status

    def exception(self) -> Exception | None:
        """Why it failed; None if it declined a micro-batch."""
        return None if self._declined() else self._query.exception()

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Wait until it has ended: its source knows what was there when it started."""
        try:
            self._query.awaitTermination()
        except StreamingQueryException:
            if not self._declined():
                raise

    def stop(self) -> None:
        """End it."""
        self._query.stop()

    def _declined(self) -> bool:
        return isinstance(self._failure(), DeclinedError)
