"""Types and helpers of the reader's tests."""

import subprocess
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from lakeproof.settings import Settings
from reader.connect import Session

Append: TypeAlias = Callable[..., None]
Done: TypeAlias = "subprocess.CompletedProcess[str]"


class Run(Protocol):
    """Runs the reader."""

    def __call__(self, settings: Settings, *arguments: str, text: str | None = None) -> Done:
        """Run ``reader`` with `arguments`, and `text` on its standard input."""
        ...


def rows(session: Session, statement: str) -> list[Any]:
    """Return the rows of a statement's result."""
    result = session.sql(statement)
    assert result is not None
    return result.fetchall()
