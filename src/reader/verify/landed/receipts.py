"""Read a file of receipts: JSON lines, each with a receipt or a response of the collector."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lakeproof.errors import UnavailableError, UsageError, expected

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK = 100_000


class Receipt(BaseModel):
    """Topic, partition and offset of an event."""

    model_config = ConfigDict(strict=True)

    topic: str
    partition: Annotated[int, Field(ge=0, lt=2**31)]
    offset: Annotated[int, Field(ge=0, lt=2**63)]


class _Answer(BaseModel):
    """A response of the collector."""

    receipts: list[Receipt]


def read_receipts(path: Path) -> "Iterator[pa.Table]":
    """Yield a file as tables of about 100,000 rows: ``topic``, partition as ``part``, offset as ``place``."""
    import pyarrow as pa

    def table(receipts: list[Receipt]) -> pa.Table:
        topics = pa.array([each.topic for each in receipts], pa.string())
        parts = pa.array([each.partition for each in receipts], pa.int32())
        places = pa.array([each.offset for each in receipts], pa.int64())
        return pa.table([topics, parts, places], ["topic", "part", "place"])

    found: list[Receipt] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    found += _receipts(line, f"{path}:{number}")
                if len(found) >= _CHUNK:
                    yield table(found)
                    found = []
    except OSError as error:
        raise UnavailableError(f"Cannot read {path}: {error.strerror}.", "Check the path.") from error
    yield table(found)


def _receipts(text: bytes, where: str) -> list[Receipt]:
    try:
        if b'"receipts"' in text:
            return _Answer.model_validate_json(text).receipts
        return [Receipt.model_validate_json(text)]
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"{where} is not a receipt: {at + ': ' if at else ''}{expected(first)}",
            'Write one JSON object per line: a receipt {"topic": …, "partition": …, "offset": …}, or an answer of the '
            "collector.",
        ) from error
