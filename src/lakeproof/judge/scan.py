"""Find where JSON values begin and end, by quotes and brackets alone.

The end of a value that is broken inside (NaN, a number of 1,100 digits, bytes that are not text) is still found, so
its neighbors are not lost. Nothing here recurses, and time and memory grow only with the input.
"""

import re

WHITE_SPACE = b" \t\r\n"

_QUOTE, _COMMA, _OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT, _CLOSE_OBJECT = b'",[]{}'
_OPENERS = b"[{"
_WINDOW = 1 << 12

# Groups repeat a bounded number of times: the regex engine keeps a state for each repeat, which would take gigabytes
# for 200 MB of escapes. Longer values take more iterations of the loops below.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+){0,64}"'
_INSIDE = re.compile(rb'[^"\[\]{}]*+(?:' + _STRING + rb'[^"\[\]{}]*+){0,200}', re.DOTALL)
_ELEMENT = re.compile(rb'[^"\[\]{},]*+(?:' + _STRING + rb'[^"\[\]{},]*+){0,200}', re.DOTALL)
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+){0,200}', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")


class StructureError(Exception):
    """Brackets or quotes do not match, or a value has no end; `depth` is the nesting depth before the error."""

    def __init__(self, problem: str, depth: int = 0) -> None:
        super().__init__(problem)
        self.depth = depth


def skip_space(value: bytes, start: int, end: int) -> int:
    """Return the offset of the first byte of ``value[start:end]`` that is not white space, or `end`."""
    return _skip(_SPACE, value, start, end)


def content_end(value: bytes, start: int, end: int) -> int:
    """Return the offset after the last byte of ``value[start:end]`` that is not white space, or `start`; no copy."""
    while end > start:
        window = max(start, end - _WINDOW)
        kept = len(value[window:end].rstrip(WHITE_SPACE))
        if kept:
            return window + kept
        end = window
    return start


def container_end(value: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the offset after the object or array that opens at `start`, and the nesting depth of its brackets."""
    skip = _INSIDE.match
    closers = bytearray()
    position, depth, deepest = start, 0, 0
    while position < end:
        byte = value[position]
        if byte == _QUOTE:
            position = string_end(value, position, end, deepest)
        else:
            if byte in _OPENERS:
                closers.append(_CLOSE_OBJECT if byte == _OPEN_OBJECT else _CLOSE_ARRAY)
                depth += 1
                if depth > deepest:
                    deepest = depth
            elif closers.pop() != byte:
                raise StructureError(f"unexpected '{chr(byte)}' at byte {position}", deepest)
            else:
                depth -= 1
            position += 1
            if not depth:
                return position, deepest
        position = skip(value, position, end).end()  # type: ignore[union-attr]  # matches at least ""
    raise StructureError(f"batch ends at byte {end} with {depth} unclosed bracket{'s' * (depth > 1)}", deepest)


def element_end(value: bytes, start: int, end: int) -> int:
    """Return the offset of the ``,`` or ``]`` after the array element at `start`, which must not be empty."""
    position = _skip(_ELEMENT, value, start, end)
    while position < end:
        byte = value[position]
        if byte in (_COMMA, _CLOSE_ARRAY):
            if skip_space(value, start, position) == position:
                raise StructureError(f"expected a value, got '{chr(byte)}' at byte {position}")
            return position
        if byte == _QUOTE:
            position = string_end(value, position, end)
        elif byte == _CLOSE_OBJECT:
            raise StructureError(f"unexpected '}}' at byte {position}")
        else:
            position, _ = container_end(value, position, end)
        position = _skip(_ELEMENT, value, position, end)
    raise StructureError(f"batch ends at byte {end} inside an array")


def string_end(value: bytes, start: int, end: int, depth: int = 0) -> int:
    """Return the offset after the closing quote of the string that opens at `start`, inside `depth` brackets."""
    position = start + 1
    while position < end:
        after = _skip(_IN_STRING, value, position, end)
        if after < end and value[after] == _QUOTE:
            return after + 1
        if after == position:  # a backslash is the last byte
            break
        position = after
    raise StructureError(f"batch ends at byte {end} inside the string that starts at byte {start}", depth)


def _skip(pattern: re.Pattern[bytes], value: bytes, start: int, end: int) -> int:
    return pattern.match(value, start, end).end()  # type: ignore[union-attr]  # matches at least ""
