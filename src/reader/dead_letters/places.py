r"""Find the place in a dead letter that a reason is about, and show it underlined.

The bytes need not be JSON, and only what leads to the place has to be sound. Bytes that are not UTF-8 are
shown as ``\xFF``, control characters escaped, and the carets are below what is shown.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.streams import printable
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
    """A part of a dead letter, printable on one line, with the place that a reason is about."""

    before: str
    marked: str  # empty if the place is not known
    behind: str


def find_place(raw: bytes, path: str, detail: str) -> Span | None:
    """Where in the bytes a reason is, as characters of :func:`as_characters`; None if that is not known.

    Of a field that is missing, it is the end of the object that should have it.
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
    """Bytes as text, in which each byte that is not UTF-8 is a surrogate; what is behind the first MiB is cut off."""
    return raw[:_MOST_BYTES].decode("utf-8", "surrogateescape")


def underlined(raw: bytes, place: Span | None, width: int) -> tuple[str, str]:
    """A line with the place in a dead letter, and a line with carets below it, both at most so wide."""
    from rich.cells import cell_len

    text = as_characters(raw)
    start, end = place or (0, 0)
    # Around the place, half of the line; the rest of it is what comes behind.
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
    """So many characters of a dead letter, around the place."""
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
    """Text for a terminal, on one line."""
    text = _SURROGATE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02X}", text)
    return printable(text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t"))


def _locate(text: str, steps: Steps) -> Span | None:
    """Find a value; for a member that its object lacks, the bracket that closes the object."""
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
    """Key or index of each member of an object or array, and where its key and its value begin, and where it ends."""
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
    """Where the value that begins at `at` ends; None if it does not."""
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
