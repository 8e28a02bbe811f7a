"""Parse settings that name a topic or offsets."""

import json
import re
from contextlib import suppress
from datetime import UTC, datetime

from lakeproof.errors import UsageError

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def topic_name(text: str) -> str:
    """Check the name of a topic and return it."""
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise UsageError(
            f"{text!r} is not the name of a Kafka topic.",
            "Write 1 to 249 characters: letters, digits, dots, underscores and hyphens.",
        )
    return text


def time_with_zone(text: str) -> datetime | None:
    """Parse an ISO 8601 time with a zone as UTC; None if invalid."""
    with suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(text)
        if time.tzinfo:
            return time.astimezone(UTC)
    return None


def milliseconds_of(time: datetime) -> int:
    """Return a time as brokers look it up: milliseconds since 1970, before which no message was sent."""
    return max(int(time.timestamp() * 1000), 0)  # -1 would be the end of the topic


def starting_files(text: str) -> str | datetime:
    """Parse the start of a stream of files: ``earliest``, ``latest`` or a time with a zone."""
    if text in ("earliest", "latest"):
        return text
    if time := time_with_zone(text):
        return time
    raise UsageError(
        f"expected earliest, latest or a time, got {text!r}.", "Write a time with its zone, like 2026-11-22T06:00:00Z."
    )


def starting_offsets(text: str) -> str | datetime | dict[int, int]:
    """Parse the start of a stream: ``earliest``, ``latest``, a time with a zone, or offsets by partition."""
    if text in ("earliest", "latest"):
        return text
    if text.startswith("{"):
        with suppress(ValueError, OverflowError):
            offsets = json.loads(text)
            if all(type(offset) is int and offset >= 0 for offset in offsets.values()):
                return {int(partition): offset for partition, offset in offsets.items()}
    if time := time_with_zone(text):
        return time
    raise UsageError(
        f"expected earliest, latest, a time or offsets, got {text!r}.",
        'Write a time with its zone, like 2026-11-22T06:00:00Z, or offsets by partition, like {"0": 42, "1": 7}.',
    )
