"""Messages between the application and the processes that Spark starts for a source.

A source imports this module in each of its processes, so it imports little.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeproof.errors import LakeproofError


@dataclass(frozen=True)
class Bulletin:
    """A folder with a file for each message."""

    folder: Path  # exists as long as the application

    @property
    def stop_file(self) -> Path:
        """While this file exists, no query starts a micro-batch."""
        return self.folder / "stop"

    def note_backlog(self, query: str, *, there_is: bool) -> None:
        """Note whether a query has more work for its next micro-batch, because the last one was as large as allowed."""
        if there_is:
            self._backlog(query).touch()
        else:
            self._backlog(query).unlink(missing_ok=True)

    def has_backlog(self, query: str) -> bool:
        """Return whether a query has noted a backlog."""
        return self._backlog(query).exists()

    def _backlog(self, query: str) -> Path:
        return self.folder / f"{query}.backlog"

    def note_progress(self, query: str) -> None:
        """Note that a query has finished a micro-batch."""
        self._progress(query).write_bytes(b"")  # updates the modification time

    def progress(self, query: str) -> int:
        """Return a number that changes with each micro-batch that a query finishes."""
        try:
            return self._progress(query).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _progress(self, query: str) -> Path:
        return self.folder / f"{query}.progress"

    def note(self, query: str, error: "LakeproofError") -> None:
        """Record the error of a failed query as data: Spark would pass it on as the text of a stack trace."""
        part = self.folder / f"{query}.part"
        part.write_bytes(pickle.dumps(error))
        part.replace(self.folder / f"{query}.failure")

    def noted(self, query: str) -> "LakeproofError | None":
        """Return the recorded error of a query, or None."""
        try:
            error: LakeproofError = pickle.loads((self.folder / f"{query}.failure").read_bytes())  # noqa: S301 - our own
        except FileNotFoundError:
            return None
        return error
