"""Messages between the queries of an application, and the application."""

from collections import Counter


class Bulletin:
    """What queries tell each other.

    It has no lock: each message is one operation of a set, a counter or a flag, and a signal handler may leave one.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        """While this is true, no query starts a micro-batch."""
        self._backlogs: set[str] = set()
        self._progress: Counter[str] = Counter()

    def stop(self) -> None:
        """Let no query start another micro-batch."""
        self.is_stopping = True

    def note_backlog(self, query: str, *, there_is: bool) -> None:
        """Note whether a query, or one that it follows, has more work: its last micro-batch was as large as allowed."""
        if there_is:
            self._backlogs.add(query)
        else:
            self._backlogs.discard(query)

    def has_backlog(self, query: str) -> bool:
        """Return whether a query has noted a backlog."""
        return query in self._backlogs

    def note_progress(self, query: str) -> None:
        """Note that a query has finished a micro-batch."""
        self._progress[query] += 1

    def progress(self, query: str) -> int:
        """Return the number of micro-batches that a query has finished."""
        return self._progress[query]
