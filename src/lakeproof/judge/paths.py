"""Where in a record something is, and what stands there, byte for byte."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from lakeproof.judge.scalars import MAX_SHOWN, cut, escaped

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_read_object = msgspec.json.Decoder(dict[str, Raw]).decode
_read_array = msgspec.json.Decoder(list[Raw]).decode

Place = tuple[Any, ...]
"""Where a value is in the record: the place of what holds it, and its key or index there; empty for the record.

Few values are faulty, so paths are written only for those.
"""
RECORD: Place = ()


class DriftedValue(NamedTuple):
    """A value that has no column, or does not fit it.

    Parameters
    ----------
    path
        JSONPath of its place in the record; no two places have the same.
    codes
        The codes of all reasons, sorted, joined by ``+``.
    text
        Its JSON text as landed.
    """

    path: str
    codes: str
    text: str


def json_path(place: Place) -> str:
    """JSONPath of a place, for a person: long keys are cut."""
    return _path(place, MAX_SHOWN)


def exact_path(place: Place) -> str:
    """JSONPath of a place, from which the place can be restored."""
    return _path(place, None)


def verbatim(unit: bytes, places: Iterable[Place]) -> list[str]:
    """The JSON text at places of a record, as landed, without the white space around it.

    Parameters
    ----------
    unit
        The record: JSON in UTF-8, in which no key of an object is repeated.
    places
        Places that it has.
    """
    parts: dict[Place, Any] = {}

    def raw(place: Place) -> Any:
        if not place:
            return unit
        holder, key = place
        if holder not in parts:
            text = raw(holder)
            parts[holder] = (_read_array if isinstance(key, int) else _read_object)(text)
        return parts[holder][key]

    return [bytes(raw(place)).decode() for place in places]


def _path(place: Place, longest: int | None) -> str:
    steps = []
    while place:
        place, key = place
        steps.append(f"[{key}]" if isinstance(key, int) else _step(key, longest))
    return "$" + "".join(reversed(steps))


def _step(key: str, longest: int | None) -> str:
    if _IDENTIFIER.fullmatch(key) and (longest is None or len(key) <= longest):
        return f".{key}"
    quoted = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped(quoted) if longest is None else cut(quoted)}']"
