"""Places in a record: their JSONPaths, and the JSON text at a place byte for byte."""

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
"""Place of a value: the place of the enclosing object or array, and the key or index in it; empty for the record.

Paths are formatted only for faulty values, which are few.
"""
RECORD: Place = ()


class DriftedValue(NamedTuple):
    """A value without a column, or one that does not fit its column."""

    path: str  # JSONPath of the place in the record, unique to the place
    codes: str  # the codes of all reasons, sorted, joined by ``+``
    text: str  # its JSON text as landed


def json_path(place: Place) -> str:
    """Format a place as JSONPath for a person: long keys are cut."""
    return _path(place, MAX_SHOWN)


def exact_path(place: Place) -> str:
    """Format a place as a JSONPath from which the place can be restored."""
    return _path(place, None)


def verbatim(unit: bytes, places: Iterable[Place]) -> list[str]:
    """Return the JSON text at places of a record without duplicate keys: as landed, without white space around it."""
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
