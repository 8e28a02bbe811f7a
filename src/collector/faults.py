"""Find all faults of a refused post; slow, so valid posts do not use this module."""

import gc
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Any, NoReturn

_MOST_FAULTS = 100
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_ONE_KIND = str.maketrans("{}", "[]")
_NO_BRACKET = re.compile(r"[^{}\[\]]+")
_INTEGERS = range(-(2**63), 2**63)
_MOST_DIGITS = 21
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
}
_SHAPE: dict[str, tuple[type, str]] = {
    "id": (int, "an integer"),
    "type": (str, "a string"),
    "event": (dict, "an object"),
}


@dataclass(frozen=True)
class Bounds:
    """Size limits of a post."""

    events: int
    bytes: int
    depth: int  # levels of nesting of an event


@dataclass(frozen=True)
class Found:
    """A fault with its HTTP status."""

    status: HTTPStatus
    index: int | None
    path: str
    detail: str


def find_faults(text: str, bounds: Bounds) -> list[Found]:
    """Return the faults of a post, at most a hundred."""
    # Parsing millions of values takes five times as long while the garbage collector looks for cycles among them.
    gc.disable()
    try:
        return list(islice(_faults(text, bounds), _MOST_FAULTS))
    finally:
        gc.enable()


def find_excess(values: Iterable[bytes], bounds: Bounds) -> list[Found]:
    """Return faults for too large or too deeply nested events of an otherwise valid post, at most a hundred."""
    found = (fault for index, value in enumerate(values) for fault in _excess(index, value.decode(), bounds))
    return list(islice(found, _MOST_FAULTS))


def _faults(text: str, bounds: Bounds) -> Iterator[Found]:
    start = _after_space(text, 0)
    if text[start : start + 1] != "[":
        yield _top_level(text, start)
        return
    position = _after_space(text, start + 1)
    if text[position : position + 1] == "]":
        yield from _after_the_array(text, position + 1)
        return
    index = 0
    while True:
        if index >= bounds.events:
            what = f"expected at most {bounds.events} events, got more; send smaller posts"
            yield Found(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, None, "$", what)
            return
        begin = position
        try:
            value, position = _DECODER.raw_decode(text, begin)
        except RecursionError:
            yield _too_deep(index, bounds)
            return
        except ValueError as error:
            yield _malformed(index, error)
            return
        yield from _of_event(index, value, text[begin:position], bounds)
        index += 1
        position = _after_space(text, position)
        following = text[position : position + 1]
        if following == "]":
            yield from _after_the_array(text, position + 1)
            return
        if following != ",":
            what = f"not valid JSON: expected a comma or ] after event {index - 1}, at character {position}"
            yield Found(HTTPStatus.BAD_REQUEST, None, "$", what)
            return
        position = _after_space(text, position + 1)


def _top_level(text: str, start: int) -> Found:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        value, end = {}, len(text)
    except ValueError as error:
        return _malformed(None, error)
    end = _after_space(text, end)
    if end < len(text):
        what = f"not valid JSON: expected one array of events, got more at character {end}"
        return Found(HTTPStatus.BAD_REQUEST, None, "$", what)
    what = f"expected an array of events, got {_kind(value)}"
    return Found(HTTPStatus.UNPROCESSABLE_ENTITY, None, "$", what)


def _after_the_array(text: str, end: int) -> Iterator[Found]:
    rest = _after_space(text, end)
    if rest < len(text):
        yield Found(HTTPStatus.BAD_REQUEST, None, "$", f"not valid JSON: text after the array, at character {rest}")


def _of_event(index: int, value: Any, text: str, bounds: Bounds) -> Iterator[Found]:
    yield from _excess(index, text, bounds)
    if not isinstance(value, dict):
        yield _shape(index, "$", "an object", value)
        return
    for name, (kind, wanted) in _SHAPE.items():
        if name not in value:
            yield Found(HTTPStatus.UNPROCESSABLE_ENTITY, index, f"$.{name}", f"expected {wanted}, but it is missing")
        elif type(value[name]) is not kind:
            yield _shape(index, f"$.{name}", wanted, value[name])
    number = value.get("id")
    if type(number) is int and number not in _INTEGERS:
        yield Found(HTTPStatus.UNPROCESSABLE_ENTITY, index, "$.id", "expected a 64-bit integer, got a larger one")
    if _HALF_PAIR.search(text) and not _is_text(value):
        yield Found(HTTPStatus.BAD_REQUEST, index, "$", "not valid JSON: half of a surrogate pair")


def _shape(index: int, path: str, wanted: str, value: Any) -> Found:
    return Found(HTTPStatus.UNPROCESSABLE_ENTITY, index, path, f"expected {wanted}, got {_kind(value)}")


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS[type(value)]


def _malformed(index: int | None, error: ValueError) -> Found:
    what = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)
    return Found(HTTPStatus.BAD_REQUEST, index, "$", f"not valid JSON: {what}")


def _too_deep(index: int, bounds: Bounds) -> Found:
    what = f"expected at most {bounds.depth} levels, the event is nested deeper"
    return Found(HTTPStatus.UNPROCESSABLE_ENTITY, index, "$", what)


def _excess(index: int, text: str, bounds: Bounds) -> Iterator[Found]:
    if len(text.encode()) > bounds.bytes:
        what = f"expected an event of at most {bounds.bytes} bytes"
        yield Found(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, index, "$", what)
    elif _is_deeper(text, bounds.depth):
        yield _too_deep(index, bounds)


def _is_deeper(text: str, levels: int) -> bool:
    """Return whether valid JSON is nested deeper than a limit, by removing innermost brackets level by level."""
    if text.count("{") + text.count("[") <= levels:
        return False
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text)).translate(_ONE_KIND)
    for _ in range(levels):
        brackets = brackets.replace("[]", "")
    return bool(brackets)


def _is_text(value: Any) -> bool:
    """Return whether all strings can be encoded as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _integer(digits: str) -> int:
    """Parse an integer, truncated to enough digits to exceed 64 bits: Python refuses thousands of digits."""
    return int(digits[:_MOST_DIGITS])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=_no_constant)
