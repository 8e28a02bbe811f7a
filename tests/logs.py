"""What a command logs as JSON, as tests read it."""

import json
from typing import Any


def failure(log: str) -> dict[str, Any]:
    """The error that ended a command: the last line of its log. Each line is JSON."""
    *_, last = map(json.loads, log.splitlines())
    assert last["event"] == "failed", log
    assert last["level"] == "error"
    found: dict[str, Any] = last
    return found
