"""Split a batch into its units: records, byte for byte as they landed.

A batch is a JSON array of records, a single object, or newline-delimited objects; docs/json-types.md has the rules.
Any other batch is refused as a whole, before the first unit is returned.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from lakeproof.judge.scan import (
    StructureError,
    container_end,
    content_end,
    element_end,
    skip_space,
    string_end,
)
from lakeproof.reasons import Reason

_COMMA = ord(",")
_BOM = b"\xef\xbb\xbf"
# Bytes that msgspec reads at once. It makes an object per element: 4 MiB of `[1,1,…]` take about 200 MB.
_WINDOW_BYTES = 4 << 20
# After an element that msgspec refuses, the window is smaller, and starts only after some bytes: keeping the end of
# each window must not cost more than the batch itself.
_SMALL_WINDOW_BYTES = 64 << 10
_STRUCTURAL_BYTES = 1 << 10
_TRIES = 8

# Escapes of a longer string are not checked: reading it would take several times its size.
_MAX_SCALAR_BYTES = 16 << 20

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_read_string = msgspec.json.Decoder(str).decode
_ERROR_BYTE = re.compile(r"\(byte (\d+)\)")
_SCALAR = re.compile(rb"true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")


@dataclass(frozen=True)
class Refused:
    """A batch that cannot be split, and becomes a single dead letter."""

    code: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The number of bytes of a unit that is not returned because it is larger than the maximum."""

    size: int


Unit = bytes | TooLarge
_Spans = Iterator[tuple[int, int]]


def split(value: bytes, most: int = sys.maxsize) -> Refused | Iterator[Unit]:
    """Split a decompressed batch into its units; units of more than `most` bytes are not copied.

    Each unit is a slice of `value` without the white space around it (a line of newline-delimited JSON keeps its own).
    It need not be valid JSON. A UTF-8 byte order mark at the start of the batch is skipped.
    """
    start = skip_space(value, len(_BOM) if value.startswith(_BOM) else 0, len(value))
    end = content_end(value, start, len(value))
    if start >= end:
        return Refused(Reason.EMPTY_BATCH, f"batch contains no JSON ({len(value)} bytes)")
    match value[start : start + 1]:
        case b"[":
            return _split_array(value, start, end, most)
        case b"{":
            return _split_objects(value, start, end, most)
    if _is_scalar(value, start, end):
        return Refused(Reason.NOT_A_BATCH, "expected an array or newline-delimited objects, got a single JSON scalar")
    return Refused(Reason.CORRUPT_BATCH, f"expected a JSON array or object at byte {start}")


def salvage(value: bytes) -> tuple[list[bytes], bytes] | None:
    """Split an array that :func:`split` refuses because it was cut short or is broken in the middle.

    Returns the elements before the break, and the bytes after the last one; None if no element is complete, or `value`
    is not an array. A number, true, false or null at the very end of `value` is not complete: digits may be missing.
    """
    start = skip_space(value, len(_BOM) if value.startswith(_BOM) else 0, len(value))
    end = content_end(value, start, len(value))
    if value[start : start + 1] != b"[":
        return None
    elements: list[bytes] = []
    position = behind = start + 1
    while True:
        begin = skip_space(value, position, end)
        try:
            stop = element_end(value, position, end)
        except StructureError:
            if found := _complete_end(value, begin, end):
                elements.append(value[begin:found])
                behind = found
            break
        behind = content_end(value, begin, stop)
        elements.append(value[begin:behind])
        if value[stop] != _COMMA:
            behind = stop + 1
            break
        position = stop + 1
    return (elements, value[behind:end]) if elements else None


def complete_units(value: bytes) -> list[bytes]:
    """Return the complete units of a batch whose end is missing.

    Of an array, these are the elements that :func:`salvage` finds, or all if the array is whole. The last line of
    newline-delimited JSON is complete if it has a line end, or is a whole object.
    """
    found = split(value)
    if isinstance(found, Refused):
        salvaged = salvage(value)
        return salvaged[0] if salvaged else []
    units = [unit for unit in found if isinstance(unit, bytes)]
    start = skip_space(value, len(_BOM) if value.startswith(_BOM) else 0, len(value))
    is_open = value.startswith(b"{", start) and not value.endswith(b"\n")
    return units[:-1] if is_open and not _is_object(units[-1], 0, len(units[-1])) else units


def _complete_end(value: bytes, begin: int, end: int) -> int | None:
    """Return `end` if the object, array or string at `begin` ends there; otherwise None."""
    try:
        if value[begin : begin + 1] in (b"{", b"["):
            stop, _ = container_end(value, begin, end)
        elif value[begin : begin + 1] == b'"':
            stop = string_end(value, begin, end)
        else:
            return None
    except StructureError:
        return None
    return stop if stop == end else None


@dataclass(frozen=True, slots=True)
class _Segment:
    """Elements of an array between `start` and the ``,`` or ``]`` at `stop`; `valid` if msgspec reads them."""

    start: int
    stop: int
    valid: bool


def _split_array(value: bytes, start: int, end: int, most: int) -> Refused | Iterator[Unit]:
    window = _WINDOW_BYTES
    if end - start <= window:  # nearly always
        elements, bad_byte = _read_elements(value[start:end])
        if elements is not None:
            return _read_units(elements, most)
        window = max(1, min(bad_byte, end - start - 2))  # not all of it again
    try:
        # The whole batch is scanned before the first unit is returned. Only the bounds of segments are kept.
        segments = list(_segments(value, start, end, window))
    except StructureError as error:
        return Refused(Reason.CORRUPT_BATCH, str(error))
    return _elements(value, segments, most)


def _segments(value: bytes, start: int, end: int, window: int) -> Iterator[_Segment]:
    position = start + 1
    first = skip_space(value, position, end)
    if value[first : first + 1] == b"]":
        _check_last(first, end)
        return
    while True:  # an element must begin at `position`
        stop, reach = _valid_stop(value, position, end, window)
        valid = stop is not None
        if stop is None:
            stop = element_end(value, position, end)
            while value[stop] == _COMMA and stop - position < reach:
                stop = element_end(value, stop + 1, end)
        window = _SMALL_WINDOW_BYTES if reach else min(2 * window, _WINDOW_BYTES)
        yield _Segment(position, stop, valid)
        if value[stop] != _COMMA:
            _check_last(stop, end)
            return
        position = stop + 1


def _valid_stop(value: bytes, start: int, end: int, window: int) -> tuple[int | None, int]:
    """Find a ``,`` or the last ``]`` up to which msgspec reads the elements from `start`.

    Also returns the number of bytes from `start` before the first obstacle, or 0.
    """
    reach = 0
    # Any comma after a brace may be tried, even one inside a string: if the bytes before it are read as whole elements,
    # a parser of the whole batch would reach that comma in the same state.
    stop = end - 1 if end - start <= window else value.rfind(b"},", start, start + window) + 1
    for _ in range(_TRIES):
        if stop <= start:
            break
        elements, bad_byte = _read_elements(b"[" + value[start:stop] + b"]")
        if elements and value[stop] in b",]":
            return stop, reach
        reach = max(reach, bad_byte, _STRUCTURAL_BYTES)
        stop = value.rfind(b"},", start, min(start + bad_byte, stop)) + 1
    return None, reach or window


def _read_elements(text: bytes) -> tuple[list[msgspec.Raw] | None, int]:
    """Return the elements of a valid array; or None, and roughly the byte where the array becomes invalid."""
    try:
        return _ELEMENTS.decode(text), 0
    except msgspec.DecodeError as error:
        place = _ERROR_BYTE.search(str(error))
        return None, int(place[1]) if place else len(text)
    except RecursionError:
        return None, len(text)


def _check_last(stop: int, end: int) -> None:
    if stop != end - 1:
        raise StructureError(f"unexpected data after the array that ends at byte {stop}")


def _elements(value: bytes, segments: list[_Segment], most: int) -> Iterator[Unit]:
    for segment in segments:
        if segment.valid:
            elements, _ = _read_elements(b"[" + value[segment.start : segment.stop] + b"]")
            if elements is not None:  # the stack may be fuller by now, too full for very deep elements
                yield from _read_units(elements, most)
                continue
        position = segment.start
        while position <= segment.stop:
            stop = element_end(value, position, len(value))
            begin = skip_space(value, position, stop)
            yield _unit(value, begin, content_end(value, begin, stop), most)
            position = stop + 1


def _read_units(elements: list[msgspec.Raw], most: int) -> Iterator[Unit]:
    return (bytes(element) if len(element) <= most else TooLarge(len(element)) for element in elements)


def _unit(value: bytes, start: int, stop: int, most: int) -> Unit:
    return value[start:stop] if stop - start <= most else TooLarge(stop - start)


def _split_objects(value: bytes, start: int, end: int, most: int) -> Refused | Iterator[Unit]:
    try:
        stop, _ = container_end(value, start, end)
        problem = f"unexpected data after the object that ends at byte {stop - 1}"
    except StructureError as error:
        stop, problem = -1, str(error)
    if stop == end:
        return iter((_unit(value, start, end, most),))
    # In a pretty-printed object that was cut short, no line without indentation is an object by itself.
    if any(_is_object(value, *line) for line in _lines(value, start, end)):
        return (_unit(value, begin, behind, most) for begin, behind in _lines(value, start, end))
    return Refused(Reason.CORRUPT_BATCH, problem)


def _lines(value: bytes, start: int, end: int) -> _Spans:
    """Yield start and end of each line that is not blank, without its line end."""
    while start < end:
        newline = value.find(b"\n", start, end)
        behind = stop = end if newline < 0 else newline
        if value[stop - 1 : stop] == b"\r" and stop > start:
            stop -= 1
        if skip_space(value, start, stop) < stop:
            yield start, stop
        start = behind + 1


def _is_object(value: bytes, start: int, stop: int) -> bool:
    if not value.startswith(b"{", start, stop):
        return False
    end = content_end(value, start, stop)
    try:
        return container_end(value, start, end)[0] == end
    except StructureError:
        return False


def _is_scalar(value: bytes, start: int, end: int) -> bool:
    if _SCALAR.fullmatch(value, start, end):
        return True
    try:
        if not value.startswith(b'"', start) or string_end(value, start, end) != end:
            return False
        return end - start > _MAX_SCALAR_BYTES or _read_string(value[start:end]) is not None
    except (StructureError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
