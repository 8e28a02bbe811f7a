"""Read the window section of a product."""

from datetime import timedelta

from lakeproof.contracts.duration import FORM, FORM_HINT, duration_text, read_duration
from lakeproof.documents.problems import ContractError
from lakeproof.documents.source import YamlPath
from lakeproof.gold.model import Window

MAX_OVERLAP = 1_440  # maximum number of windows that contain a record: windows of a day that start every minute

_DAY = timedelta(days=1)


def read_session(gap: str) -> Window:
    """Read the gap between the sessions of a product."""
    length = duration_at(gap, ("window", "gap"))
    return Window(length, length, session=True)


def read_window(size: str, every: str | None) -> Window:
    """Read size and distance of a product's windows; the distance defaults to the size."""
    length = _length("size", size)
    if every is None:
        return Window(length, length)
    step = _length("every", every)
    place = ("window", "every")
    if length % step:
        raise ContractError(
            place,
            f"the size, {duration_text(length)}, is not a multiple of {duration_text(step)}.",
            "Use a duration that divides the size.",
        )
    if length // step > MAX_OVERLAP:
        raise ContractError(
            place,
            f"each record would be in {length // step:,} windows, but the maximum is {MAX_OVERLAP:,}.",
            "Use a longer duration, or a smaller size.",
        )
    return Window(length, step)


def _length(key: str, text: str) -> timedelta:
    length = duration_at(text, ("window", key))
    if length % _DAY and _DAY % length:
        raise ContractError(
            ("window", key),
            f"{text} does not divide a day, and is not a number of days.",
            "Windows start at midnight UTC. Use a duration like 5 minutes, 1 hour, 6 hours or 7 days.",
        )
    return length


def duration_at(text: str, place: YamlPath) -> timedelta:
    """Read the duration at a place of a product."""
    length = read_duration(text)
    if length is None:
        raise ContractError(place, f"expected {FORM}, got {text!r}.", FORM_HINT)
    return length
