"""Names of topics."""

import re

from lakeproof.errors import UsageError

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def topic_name(text: str) -> str:
    """Check the name of a topic, and return it.

    Raises
    ------
    UsageError
        Kafka does not accept it.
    """
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise UsageError(
            f"{text!r} is not the name of a Kafka topic.",
            "Write 1 to 249 characters: letters, digits, dots, underscores and hyphens.",
        )
    return text
