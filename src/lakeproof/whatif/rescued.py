"""Put the values of ``_rescued`` back into the text of a record."""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

Steps = Sequence[str | int]

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]", re.ASCII)
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|x([0-9a-f]{2})|(.))")


def put_back(text: str, values: Sequence[tuple[str, str]]) -> str:
    """Put values of ``_rescued``, as pairs of JSONPath and JSON text, into a record without them.

    Values without a place in the record are left out.
    """
    record = _read(text)
    for path, value in values:
        steps = steps_of(path)
        if steps:
            _set(record, steps, msgspec.Raw(value.encode()))
    return msgspec.json.encode(record).decode()


def steps_of(path: str) -> list[str | int]:
    """Return the keys and indexes of a JSONPath of ``_rescued``; empty if `path` is not a JSONPath."""
    steps: list[str | int] = []
    at = 1
    while path.startswith("$") and at < len(path) and (match := _STEP.match(path, at)):
        name, index, quoted = match.groups()
        steps.append(int(index) if index else name or _ESCAPE.sub(_unescaped, quoted))
        at = match.end()
    return steps if at == len(path) else []


def _read(text: str) -> Any:
    return json.loads(text, parse_int=_raw, parse_float=_raw)


def _raw(token: str) -> msgspec.Raw:
    return msgspec.Raw(token.encode())


def _set(holder: Any, steps: Steps, value: msgspec.Raw) -> None:
    for step in steps[:-1]:
        try:
            holder = holder[step]
        except (KeyError, IndexError, TypeError):
            return
    last = steps[-1]
    fits = isinstance(last, str) if isinstance(holder, dict) else isinstance(last, int) and isinstance(holder, list)
    if fits and not (isinstance(last, int) and last >= len(holder)):
        holder[last] = value


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    return chr(int(code, 16)) if code else match[4]
