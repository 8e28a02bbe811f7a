"""Parse the JSONPaths of ``_rescued`` and find the text at a path in a record, independent of the consumer's code."""

import json
import re
from collections.abc import Iterator

Steps = tuple[str | int, ...]
"""Keys and indexes that lead from a record to a value in it."""

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")
_SPACE = re.compile(r"[ \t\r\n]*")
_read = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode  # Python refuses to parse very long integers


def parse_path(path: str) -> Steps | None:
    """Parse a JSONPath; return None if the text is not a JSONPath."""
    steps: list[str | int] = []
    at = 1
    while path.startswith("$") and at < len(path) and (match := _STEP.match(path, at)):
        name, index, quoted = match.groups()
        steps.append(int(index) if index else name or _ESCAPE.sub(_unescaped, quoted))
        at = match.end()
    return tuple(steps) if steps and at == len(path) else None


def text_at(record: str, steps: Steps) -> str:
    """Return the text of the value at a path; the path must exist in the record."""
    text = record
    for step in steps:
        text = next(text[start:end] for key, start, end in _members(text) if key == step)
    return text


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else match[2]


def _members(text: str) -> Iterator[tuple[str | int, int, int]]:
    """Yield key or index of each member of an object or array, and the start and end offset of its value."""
    at = _skip(text, 0)
    is_object = text[at] == "{"
    index = 0
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        key: str | int = index
        if is_object:
            key, at = _read(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = _read(text, at)
        yield key, at, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
