"""Transforms: an operator's code that corrects the bytes of a dead letter before they are judged."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakeproof.errors import UsageError

Apply = Callable[[bytes, dict[str, Any]], bytes]
"""Takes the bytes of a dead letter, and its ``_source``, ``_position`` and ``codes``; returns corrected bytes."""

_FUNCTION = "transform"


@dataclass(frozen=True)
class Transform:
    """The file of a transform: a Python function, or an SQL expression over the column ``raw``."""

    name: str
    text: str

    @property
    def is_sql(self) -> bool:
        """Whether the transform is an SQL expression, which Spark evaluates."""
        return self.name.endswith(".sql")

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def compiled(self) -> Apply:
        """Compile the Python function."""
        named: dict[str, Any] = {"__name__": _FUNCTION}
        try:
            exec(compile(self.text, self.name, "exec"), named)  # noqa: S102 - the operator's own file
        except Exception as error:
            raise UsageError(
                f"--transform: {self.name} cannot be loaded: {type(error).__name__}: {error}.", "Correct the file."
            ) from error
        function = named.get(_FUNCTION)
        if not callable(function):
            raise UsageError(
                f"--transform: {self.name} has no function {_FUNCTION}.",
                f"Define it like this: def {_FUNCTION}(raw: bytes, letter: dict) -> bytes",
            )
        apply: Apply = function
        return apply


def read_transform(path: Path) -> Transform:
    """Read the file of a transform, and check that it can be used."""
    if path.suffix not in (".py", ".sql"):
        raise UsageError(
            f"--transform: expected a file that ends in .py or .sql, got {path.name}.",
            f"In .py: def {_FUNCTION}(raw: bytes, letter: dict) -> bytes. In .sql: an expression over raw.",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--transform: cannot read {path}: {error}.", "Check the path.") from error
    transform = Transform(path.name, text)
    if not transform.is_sql:
        transform.compiled()
    return transform
