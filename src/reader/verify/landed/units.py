"""Find the units of a batch, with their exact bytes, by the rules of docs/json-types.md.

Bytes are decoded as Latin-1: each byte is one character, so offsets stay the same and decoding cannot fail. Python's
JSON parser finds the end of each array element; if it rejects an element, quotes and brackets are matched instead.
"""

import json
import re
import sys
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

_SPACE = " \t\r\n"
_BOM = b"\xef\xbb\xbf".decode("latin-1")
# Size of the text given to the parser, smaller after an error: each error counts the lines from the start of the text.
_WINDOW = 1 << 18
_WINDOW_AFTER_ERROR = 1 << 12
_AFTER_SPACE = re.compile(rf"[{_SPACE}]*")
_BRACKET = re.compile(r'["\[\]{}]')
_BRACKET_OR_COMMA = re.compile(r'["\[\]{},]')
_CLOSERS = {"[": ord("]"), "{": ord("}")}
_step_over = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Units:
    """The units of a batch; their positions are 0 to ``count - 1``.

    A batch that cannot be split is `whole`: its only unit is the batch itself. `picked` has the bytes of the requested
    units, by position. A batch is `too_large` if it exceeds the limit on unpacked bytes.
    """

    count: int
    whole: bool = False
    picked: dict[int, bytes] = field(default_factory=dict)
    too_large: bool = False


TOO_LARGE = Units(1, whole=True, too_large=True)


class _BrokenError(Exception):
    """Quotes, brackets or commas do not form an array or an object."""


def find_units(content: bytes, wanted: AbstractSet[int] = frozenset(), most: int = sys.maxsize) -> Units:
    """Find the units of an unpacked batch, with the bytes of `wanted` positions that have at most `most` bytes."""
    text = content.decode("latin-1")
    start = _skip(text, len(_BOM) if text.startswith(_BOM) else 0)
    end = _end(text, start, len(text))
    split = {"[": _elements, "{": _objects}.get(text[start : start + 1])
    if split is None or start >= end:
        return whole_batch(content, most)
    count, picked = 0, {}
    try:
        for begin, stop in split(text, start, end):
            if count in wanted and stop - begin <= most:
                picked[count] = text[begin:stop].encode("latin-1")
            count += 1
    except _BrokenError:
        return whole_batch(content, most)
    return Units(count, picked=picked)


def whole_batch(content: bytes, most: int = sys.maxsize) -> Units:
    """Return the unit of a batch that cannot be split, with its bytes if there are at most `most`."""
    return Units(1, whole=True, picked={0: content} if len(content) <= most else {})


def salvage(content: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete units of an array that cannot be split to its end, and the bytes after the last unit.

    A unit is complete if a ``,`` or ``]`` follows it; the last unit also if its own brackets or quotes are closed.
    """
    text = content.decode("latin-1")
    start = _skip(text, len(_BOM) if text.startswith(_BOM) else 0)
    end = _end(text, start, len(text))
    units: list[bytes] = []
    behind = at = start + 1
    if text[start : start + 1] != "[":
        return units, content
    try:
        for begin, stop in _elements(text, start, end):
            units.append(text[begin:stop].encode("latin-1"))
            behind = _skip(text, stop)
            at = behind + 1
            if text[behind : behind + 1] == "]":
                return units, text[at:end].encode("latin-1")
            behind = stop
    except _BrokenError:
        pass
    at = _skip(text, at)
    if _is_closed(text, at, end):
        units.append(text[at:end].encode("latin-1"))
        behind = end
    return units, text[behind:end].encode("latin-1")


def complete_units(content: bytes) -> list[bytes]:
    """Return the complete units of a truncated batch, whose last line may be incomplete."""
    count = find_units(content)
    if count.whole:
        return salvage(content)[0]
    picked = find_units(content, frozenset(range(count.count))).picked
    units = [picked[position] for position in range(count.count)]
    text = content.decode("latin-1")
    if text[_skip(text, len(_BOM) if text.startswith(_BOM) else 0)] == "{" and text[-1] != "\n":
        last = units[-1].decode("latin-1")
        return units if last[0] == "{" and _is_object(last, 0, len(last)) else units[:-1]
    return units


def _is_closed(text: str, start: int, end: int) -> bool:
    """Return whether ``text[start:end]`` is exactly one string, array or object."""
    due = bytearray()
    position = start
    try:
        while match := _BRACKET.match(text, start) if position == start else _BRACKET.search(text, position, end):
            position = _behind(text, match, end, due)
            if not due:
                return position == end
    except _BrokenError:
        pass
    return False


def _elements(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each element of the array ``text[start:end]``."""
    last = end - 1
    base = start + 1
    if _skip(text, base) == last and text[last] == "]":
        return
    size = _WINDOW
    while base < end:
        window = text[base : min(base + size, end)]
        size = min(2 * size, _WINDOW)
        at = 0
        while at < len(window):
            if window[at] in _SPACE and (at := _skip(window, at)) == len(window):
                break
            try:
                _, stop = _step_over(window, at)
                behind = stop if window[stop] in ",]" else _skip(window, stop)
                mark = window[behind]
            except (ValueError, RecursionError, IndexError):
                mark = ""
            is_odd = mark not in (",", "]")
            if is_odd:  # the element is not JSON, or extends beyond the window
                behind = _element_end(text, base + at, end) - base
                mark = text[base + behind]
                stop = _end(text, base + at, base + behind) - base
            yield base + at, base + stop
            if mark == "]":
                if base + behind != last:
                    raise _BrokenError
                return
            at = behind + 1
            if is_odd:
                size = _WINDOW_AFTER_ERROR if behind < len(window) else _WINDOW
                break
        base += at
    raise _BrokenError


def _objects(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the only object in ``text[start:end]``, or of each line."""
    if _is_object(text, start, end):
        yield start, end
        return
    if not any(text[begin] == "{" and _is_object(text, begin, stop) for begin, stop in _lines(text, start, end)):
        raise _BrokenError
    yield from _lines(text, start, end)


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each line that is not blank, without the line ending."""
    while start < end:
        newline = text.find("\n", start, end)
        stop = behind = end if newline < 0 else newline
        if text[stop - 1] == "\r" and stop > start:
            stop -= 1
        if _skip(text, start) < stop:
            yield start, stop
        start = behind + 1


def _is_object(text: str, start: int, end: int) -> bool:
    """Return whether the object that opens at `start` closes at `end`, apart from white space."""
    due = bytearray()
    position = start
    try:
        while match := _BRACKET.search(text, position, end):
            position = _behind(text, match, end, due)
            if not due:
                return _skip(text, position) >= end
    except _BrokenError:
        pass
    return False


def _element_end(text: str, start: int, end: int) -> int:
    """Return the offset of the ``,`` or ``]`` after the element that begins at `start`."""
    due = bytearray()
    position = start
    while match := (_BRACKET if due else _BRACKET_OR_COMMA).search(text, position, end):
        if not due and match[0] in ",]":
            if match.start() == start:
                raise _BrokenError
            return match.start()
        position = _behind(text, match, end, due)
    raise _BrokenError


def _behind(text: str, match: re.Match[str], end: int, due: bytearray) -> int:
    """Return the offset after a bracket, or after the string that a quote opens; `due` are the expected brackets."""
    mark = match[0]
    if mark == '"':
        return _string_end(text, match.end(), end)
    if mark in _CLOSERS:
        due.append(_CLOSERS[mark])
    elif not due or due.pop() != ord(mark):
        raise _BrokenError
    return match.end()


def _string_end(text: str, inside: int, end: int) -> int:
    """Return the offset after the closing quote: the first one after an even number of backslashes."""
    while (quote := text.find('"', inside, end)) >= 0:
        if _backslashes(text, inside, quote) % 2 == 0:
            return quote + 1
        inside = quote + 1
    raise _BrokenError


def _backslashes(text: str, start: int, stop: int) -> int:
    """Return the number of backslashes at the end of ``text[start:stop]``, without copying the text."""
    width = 16
    while True:
        tail = text[max(start, stop - width) : stop]
        count = len(tail) - len(tail.rstrip("\\"))
        if count < len(tail) or len(tail) == stop - start:
            return count
        width *= 8


def _end(text: str, start: int, stop: int) -> int:
    """Return the end of ``text[start:stop]`` without trailing white space, or `start`, without copying the text."""
    for behind in range(stop, start, -_WINDOW):
        window = text[max(start, behind - _WINDOW) : behind].rstrip(_SPACE)
        if window:
            return max(start, behind - _WINDOW) + len(window)
    return start


def _skip(text: str, start: int) -> int:
    """Return the offset of the first character from `start` that is not white space."""
    match = _AFTER_SPACE.match(text, start)
    return match.end() if match else start
