"""Split a batch into its units: records, byte for byte as they landed.

A batch is a JSON array of records, a single object, or newline-delimited objects; docs/json-types.md has the rules.
What is none of these is refused as a whole, before the first unit is handed out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from consumer.bronze.structure import WHITE_SPACE, StructureError, container_end, element_end, skip_space
from lakeproof.reasons import Reason

_COMMA = ord(",")
_BOM = b"\xef\xbb\xbf"
# msgspec is asked for this many bytes at once. It makes an object per element: 4 MiB of `[1,1,…]` are about 200 MB.
_WINDOW_BYTES = 4 << 20
# After an element that it refuses, it is asked for a smaller window, and only after some bytes: keeping an account of
# where each window ends must not cost more than the batch itself.
_SMALL_WINDOW_BYTES = 64 << 10
_STRUCTURAL_BYTES = 1 << 10
_TRIES = 8

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_ERROR_BYTE = re.compile(r"\(byte (\d+)\)")
_SCALAR = re.compile(rb"true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")


@dataclass(frozen=True)
class Refused:
    """A batch that cannot be split, and so is a single dead letter.

    Parameters
    ----------
    code
        ``empty_batch``, ``not_a_batch`` or ``corrupt_batch``.
    detail
        What is wrong, and where.
    """

    code: Reason
    detail: str


def split(value: bytes) -> Refused | Iterator[bytes]:
    """Split a batch into its units.

    Parameters
    ----------
    value
        The batch as landed, decompressed. A UTF-8 byte order mark at its start is passed over.

    Returns
    -------
    Refused or Iterator[bytes]
        Why it cannot be split; or its units in order, each a slice of `value` without the white space around it
        (a line of newline-delimited JSON keeps its own). A unit need not be valid JSON.
    """
    start = skip_space(value, len(_BOM) if value.startswith(_BOM) else 0, len(value))
    end = len(value.rstrip(WHITE_SPACE))
    if start >= end:
        return Refused(Reason.EMPTY_BATCH, f"no JSON in {len(value)} bytes")
    match value[start : start + 1]:
        case b"[":
            return _split_array(value, start, end)
        case b"{":
            return _split_objects(value, start, end)
    if _is_scalar(value, start, end):
        return Refused(Reason.NOT_A_BATCH, "a JSON scalar, where an array or objects are due")
    return Refused(Reason.CORRUPT_BATCH, f"not JSON: neither an array nor an object begins at byte {start}")


@dataclass(frozen=True, slots=True)
class _Segment:
    """Elements of an array that lie between `start` and the ``,`` or ``]`` at `stop`; `valid` if msgspec reads them."""

    start: int
    stop: int
    valid: bool


def _split_array(value: bytes, start: int, end: int) -> Refused | Iterator[bytes]:
    if end - start <= _WINDOW_BYTES:  # nearly always
        elements, _ = _read_elements(value[start:end])
        if elements is not None:
            return map(bytes, elements)
    try:
        # The whole batch is looked through before the first unit is handed out. Only where segments end is kept.
        segments = list(_segments(value, start, end))
    except StructureError as error:
        return Refused(Reason.CORRUPT_BATCH, str(error))
    return _elements(value, segments)


def _segments(value: bytes, start: int, end: int) -> Iterator[_Segment]:
    position = start + 1
    window = _WINDOW_BYTES
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

    Returns
    -------
    tuple[int or None, int]
        Its offset, or None; and how many bytes from `start` lie before what is in the way, or 0.
    """
    reach = 0
    # Any comma behind a brace may be tried, even one inside a string: what is before it is read as whole elements,
    # and then a parser of the whole batch would come to that comma in the same state.
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
    """Elements of a valid array, or None and about where it stops being valid."""
    try:
        return _ELEMENTS.decode(text), 0
    except msgspec.DecodeError as error:
        place = _ERROR_BYTE.search(str(error))
        return None, int(place[1]) if place else len(text)
    except RecursionError:
        return None, len(text)


def _check_last(stop: int, end: int) -> None:
    if stop != end - 1:
        raise StructureError(f"the array is complete at byte {stop}, but more follows")


def _elements(value: bytes, segments: list[_Segment]) -> Iterator[bytes]:
    for segment in segments:
        if segment.valid:
            elements, _ = _read_elements(b"[" + value[segment.start : segment.stop] + b"]")
            if elements is not None:  # the stack may be fuller by now, and too full for very deep ones
                yield from map(bytes, elements)
                continue
        position = segment.start
        while position <= segment.stop:
            stop = element_end(value, position, len(value))
            yield value[position:stop].strip(WHITE_SPACE)
            position = stop + 1


def _split_objects(value: bytes, start: int, end: int) -> Refused | Iterator[bytes]:
    try:
        stop, _ = container_end(value, start, end)
        problem = f"the object is complete at byte {stop - 1}, but more follows"
    except StructureError as error:
        stop, problem = -1, str(error)
    if stop == end:
        return iter((value[start:end],))
    # A pretty-printed object that was cut short has no line that is an object by itself and is not indented.
    if any(_is_object(line) for line in _lines(value, start, end)):
        return _lines(value, start, end)
    return Refused(Reason.CORRUPT_BATCH, problem)


def _lines(value: bytes, start: int, end: int) -> Iterator[bytes]:
    """Lines that are not blank, without their line ends."""
    while start < end:
        newline = value.find(b"\n", start, end)
        stop = end if newline < 0 else newline
        line = value[start:stop].removesuffix(b"\r")
        if line.strip(WHITE_SPACE):
            yield line
        start = stop + 1


def _is_object(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    end = len(line.rstrip(WHITE_SPACE))
    try:
        return container_end(line, 0, end)[0] == end
    except StructureError:
        return False


def _is_scalar(value: bytes, start: int, end: int) -> bool:
    if _SCALAR.fullmatch(value, start, end):
        return True
    try:
        msgspec.json.decode(value[start:end], type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True
