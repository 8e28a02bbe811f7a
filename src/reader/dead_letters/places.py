r"""Find the place in a dead letter to which a reason refers, and show it underlined.

The bytes need not be valid JSON: only the part that leads to the place has to be. Bytes that are not UTF-8 are shown as
``\xFF``, control characters are escaped, and the carets are aligned with the shown text.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.standard_streams import printable
from reader.verify.landed.paths import Steps, parse_path

_BYTE = re.compile(r"\bbyte (\d+)")
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r'[^\s,\[\]{}"]+')
_SURROGATE = re.compile(r"[\udc80-\udcff]")
_MOST_BYTES = 1 << 20
_CLOSERS = {"{": "}", "[": "]"}
_MOST_CARETS = 60
_BOM = "\ufeff"

Span = tuple[int, int]


@dataclass(frozen=True)
class Excerpt:
    """A part of a dead letter, printable on one line, with the place to which a reason refers."""

    before: str
    marked: str  # empty if the place is unknown
    behind: str


def find_place(raw: bytes, path: str, detail: str) -> Span | None:
    """Return the place to which a reason refers, in characters of :func:`as_characters`; None if unknown.

    For a missing field, the place is the end of the object that should contain it.
    """
    text = as_characters(raw)
    steps = parse_path(path)
    if steps and (found := _locate(text, steps)):
        return found
    if match := _BYTE.search(detail):
        at = int(match[1])
        if at <= len(raw):
            begin = min(len(as_characters(raw[:at])), len(text))
            return begin, begin + 1
    return None


def as_characters(raw: bytes) -> str:
    """Decode the first MiB of bytes as text, with a surrogate for each byte that is not UTF-8."""
    return raw[:_MOST_BYTES].decode("utf-8", "surrogateescape")


def underlined(raw: bytes, place: Span | None, width: int) -> tuple[str, str]:
    """Return a line with the place in a dead letter, and a line with carets, both at most `width` columns wide."""
    from rich.cells import cell_len

    text = as_characters(raw)
    start, end = place or (0, 0)
    # Half of the line is for the text before the place, the rest for the place and the text after it.
    most = max(width - 2, 20)
    begin = 0 if len(text) <= most else max(min(start - most // 2, len(text) - most), 0)
    before, marked, behind = (
        text[begin:start],
        text[start:end][:_MOST_CARETS],
        text[start + min(end - start, _MOST_CARETS) :],
    )
    parts = [shown(before), shown(marked), shown(behind[:most])]
    lead = "…" if begin else ""
    while parts[0] and cell_len(lead + parts[0] + parts[1]) > most:
        lead, parts[0] = "…", parts[0][max(len(parts[0]) // 8, 1) :]
    if cell_len(lead + parts[0] + parts[1]) > most:
        parts[1] = parts[1][: most // 2]
    line = lead + "".join(parts)
    cut = len(behind) > most
    while cell_len(line) > most:
        cut, line = True, line[:-1]
    carets = "^" * max(cell_len(parts[1]), 1) if place else ""
    return line + "…" * cut, " " * cell_len(lead + parts[0]) * bool(carets) + carets


def excerpt(raw: bytes, place: Span | None, most: int) -> Excerpt:
    """Return `most` characters of a dead letter, around the place."""
    text = as_characters(raw)
    start, end = place or (0, 0)
    begin = max(min(start - most // 4, len(text) - most), 0)
    stop = min(end, start + most // 2)
    last = max(begin + most, stop)
    return Excerpt(
        "…" * (begin > 0) + shown(text[begin:start]),
        shown(text[start:stop]) + "…" * (stop < end),
        shown(text[stop:last]) + "…" * (last < len(text) or len(raw) > _MOST_BYTES),
    )


def shown(text: str) -> str:
    """Return a text in printable form, on one line."""
    text = _SURROGATE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02X}", text)
    return printable(text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t"))


def _locate(text: str, steps: Steps) -> Span | None:
    """Find a value; for a missing member, the closing bracket of its object."""
    at = _skip(text, len(_BOM) if text.startswith(_BOM) else 0)
    end = _end(text, at)
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        found = None
        for key, key_at, value_at, stop in _members(text, at):
            if key == step:
                found = (key_at if last and isinstance(step, str) else value_at), value_at, stop  # the last one counts
        if found is None:
            is_member = last and isinstance(step, str) and text[at : at + 1] == "{" and end is not None
            return (end - 1, end) if is_member and end is not None else None
        at, end = (found[0] if last else found[1]), found[2]
    return None if end is None else (at, end)


def _members(text: str, at: int) -> Iterator[tuple[str | int, int, int, int]]:
    """Yield key or index of each member of an object or array, the start of its key and of its value, and its end."""
    if text[at : at + 1] not in _CLOSERS:
        return
    is_object = text[at] == "{"
    at = _skip(text, at + 1)
    index = 0
    while at < len(text) and text[at] not in "}]":
        begin = at
        key: str | int = index
        if is_object:
            match = _STRING.match(text, at)
            if not match:
                return
            try:
                key = json.loads(match[0], strict=False)
            except ValueError:
                key = match[0]
            at = _skip(text, match.end())
            if text[at : at + 1] != ":":
                return
            at = _skip(text, at + 1)
        stop = _end(text, at)
        if stop is None or stop == at:
            return
        yield key, begin, at, stop
        at = _skip(text, stop)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        index += 1


def _end(text: str, at: int) -> int | None:
    """Return the end of the value that begins at `at`; None if it is incomplete."""
    mark = text[at : at + 1]
    if mark == '"':
        match = _STRING.match(text, at)
        return match.end() if match else None
    if mark not in _CLOSERS or not mark:
        match = _SCALAR.match(text, at)
        return match.end() if match else None
    due: list[str] = []
    while at < len(text):
        mark = text[at]
        if mark == '"':
            match = _STRING.match(text, at)
            if not match:
                return None
            at = match.end()
            continue
        if mark in _CLOSERS:
            due.append(_CLOSERS[mark])
        elif mark in "]}":
            if due.pop() != mark:
                return None
            if not due:
                return at + 1
        at += 1
    return None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
