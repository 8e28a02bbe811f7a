"""Durations like `7 days`, `12 hours`, `90 minutes`, `30 seconds`."""

import re
from datetime import timedelta

from lakeproof.errors import UsageError

_UNITS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
_FORM = re.compile(rf"([1-9]\d{{0,9}}) ({'|'.join(_UNITS)})s?", re.ASCII)

_SHORT = re.compile(r"([1-9]\d{0,9})([dhms])", re.ASCII)

UNBOUNDED = "unbounded"
MAX_DURATION = timedelta(days=36_500)  # added to a time of this era, the result is still a valid time
FORM = "a duration like 7 days, 12 hours or 90 minutes"
FORM_HINT = f"Write a whole number and seconds, minutes, hours or days. The maximum is {MAX_DURATION.days} days."


def read_duration(text: object) -> timedelta | None:
    """Parse a duration; None if it is invalid or longer than the maximum."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if not found:
        return None
    seconds = int(found[1]) * _UNITS[found[2]]
    return timedelta(seconds=seconds) if seconds <= MAX_DURATION.total_seconds() else None


def read_option(text: str) -> timedelta:
    """Parse a duration on the command line, where it may be short: ``30d``, ``12h``."""
    short = _SHORT.fullmatch(text)
    unit = next((unit for unit in _UNITS if short and unit.startswith(short[2])), "")
    found = read_duration(f"{short[1]} {unit}" if short else text)
    if found is None:
        raise UsageError(f"Expected {FORM}, got {text!r}.", f"{FORM_HINT} Short forms are 30d, 12h, 90m and 30s.")
    return found


def horizon_text(horizon: timedelta | None) -> str:
    """Format the horizon of silver."""
    return UNBOUNDED if horizon is None else duration_text(horizon)


def duration_text(duration: timedelta) -> str:
    """Format a duration of whole seconds with the largest unit that fits."""
    seconds = int(duration.total_seconds())
    unit, length = next((unit, length) for unit, length in _UNITS.items() if not seconds % length)
    count = seconds // length
    return f"{count} {unit}{'' if count == 1 else 's'}"
