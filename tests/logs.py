"""The JSON log of a command."""

import json
from typing import Any


def failure(log: str) -> dict[str, Any]:
    """Return the error that ended a command: the last line of its log. Check that each line is JSON."""
    *_, last = map(json.loads, log.splitlines())
    assert last["event"] == "failed", log
    assert last["level"] == "error"
    found: dict[str, Any] = last
    return found
