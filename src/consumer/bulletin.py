"""What the application and the processes that Spark starts for a source tell each other.

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
    """A folder with a file for each thing to tell."""

    folder: Path  # The folder. It is there as long as the application.

    @property
    def stop_file(self) -> Path:
        """While this file exists, no query begins a micro-batch."""
        return self.folder / "stop"

    def note_backlog(self, query: str, *, there_is: bool) -> None:
        """Say whether a query has left something for its next micro-batch, because its own was as large as allowed."""
        if there_is:
            self._backlog(query).touch()
        else:
            self._backlog(query).unlink(missing_ok=True)

    def has_backlog(self, query: str) -> bool:
        """Whether a query said so last."""
        return self._backlog(query).exists()

    def _backlog(self, query: str) -> Path:
        return self.folder / f"{query}.backlog"

    def note_progress(self, query: str) -> None:
        """Say that a query has finished a micro-batch."""
        self._progress(query).write_bytes(b"")  # which moves the time of its change

    def progress(self, query: str) -> int:
        """A number that changes with each micro-batch that a query finishes."""
        try:
            return self._progress(query).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _progress(self, query: str) -> Path:
        return self.folder / f"{query}.progress"

    def note(self, query: str, error: "LakeproofError") -> None:
        """Leave the error that made a query fail, as data: Spark would pass it on as the text of a stack trace."""
        part = self.folder / f"{query}.part"
        part.write_bytes(pickle.dumps(error))
        part.replace(self.folder / f"{query}.failure")

    def noted(self, query: str) -> "LakeproofError | None":
        """The error that was left for a query."""
        try:
            error: LakeproofError = pickle.loads((self.folder / f"{query}.failure").read_bytes())  # noqa: S301 - our own
        except FileNotFoundError:
            return None
        return error
