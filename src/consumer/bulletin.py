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
    """A folder with a file for each thing to tell.

    Parameters
    ----------
    folder
        The folder. It is there as long as the application.
    """

    folder: Path

    @property
    def stop_file(self) -> Path:
        """While this file exists, no query begins a micro-batch."""
        return self.folder / "stop"

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
