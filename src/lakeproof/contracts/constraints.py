"""Read a property's ``logicalTypeOptions`` and ``enum``."""

import math
import re
import sys
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from lakeproof.contracts.model import Bound, Constraints, DecimalType, PrimitiveType, Type, type_name
from lakeproof.contracts.pattern import PatternError, portable
from lakeproof.contracts.times import TIME_OPTIONS
from lakeproof.documents.problems import ContractError, Problems
from lakeproof.documents.source import YamlPath

_RANGE = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_TEXT = ("minLength", "maxLength", "pattern")
_MAX_LENGTH = 2**31 - 1
_INTEGERS: dict[Type, int] = {PrimitiveType.INT: 2**31, PrimitiveType.LONG: 2**63}
_FLOATING = {PrimitiveType.FLOAT, PrimitiveType.DOUBLE}
_STRINGS = {PrimitiveType.STRING, PrimitiveType.SCALAR}
_BOUNDS: dict[Type, str] = {
    PrimitiveType.TIMESTAMP: "a timestamp with a UTC offset, like 2026-11-21T00:00:00Z",
    PrimitiveType.DATE: "a date, like 2026-11-21",
}
_LARGEST = Decimal(sys.float_info.max)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})", re.ASCII)
_JSON_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_JSON_NUMBER = re.compile(_JSON_INTEGER.pattern + r"(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def known_options(kind: Type) -> tuple[str, ...]:
    """Return the names of the options that a type supports."""
    if kind in _STRINGS:
        return _TEXT
    if kind is PrimitiveType.TIMESTAMP:
        return (*_RANGE, *TIME_OPTIONS)
    is_scalar = isinstance(kind, PrimitiveType | DecimalType)
    return _RANGE if is_scalar and kind is not PrimitiveType.BOOLEAN else ()


def read_constraints(options: dict[str, Any], kind: Type, place: YamlPath, problems: Problems) -> Constraints:
    """Read the ``logicalTypeOptions`` at `place`; unknown, invalid and unsatisfiable ones are reported."""
    known = known_options(kind)
    for name in options:
        if name not in known:
            hint = f"Supported options: {', '.join(known)}." if known else "Remove it. This type has no options."
            message = f"{name!r} is not a supported option of this type."
            problems.report((*place, name), message, hint, about_key=True)
    options = {name: options[name] for name in options if name in known}
    before = len(problems.found)
    found = Constraints(
        minimum=problems.read(_bound, options, kind, place, "minimum", "exclusiveMinimum"),
        maximum=problems.read(_bound, options, kind, place, "maximum", "exclusiveMaximum"),
        min_length=problems.read(_length, options, place, "minLength"),
        max_length=problems.read(_length, options, place, "maxLength"),
        pattern=problems.read(_pattern, options, place),
    )
    if len(problems.found) == before:
        problems.read(_refuse_contradiction, found, place)
    return found


def read_allowed(values: list[Any], kind: Type, place: YamlPath, problems: Problems) -> tuple[str, ...]:
    """Read the values of an ``enum`` as JSON text; values of another type are reported."""
    if not isinstance(kind, PrimitiveType | DecimalType):
        problems.report(place, "only a scalar can have an enum.", "Remove the enum.", about_key=True)
        return ()
    found = []
    for index, value in enumerate(values):
        text = ("true" if value else "false") if isinstance(value, bool) else str(value)
        if isinstance(value, bool) and kind is PrimitiveType.STRING:
            hint = "Put the value in quotes: in YAML, yes, no, on and off are booleans, too."
            problems.report((*place, index, "value"), "expected a string, got a boolean.", hint)
        elif value is None or not _is_token(text, kind):
            shown = "null" if value is None else text
            message = f"{shown!r} is not a value of the type {type_name(kind)}."
            hint = "Write values as in JSON. Null is always allowed for a field that is not required."
            problems.report((*place, index, "value"), message, hint)
        found.append(text)
    return tuple(found)


def _is_token(text: str, kind: PrimitiveType | DecimalType) -> bool:
    if isinstance(kind, DecimalType) or kind in _FLOATING:
        return bool(_JSON_NUMBER.fullmatch(text))
    if kind in _INTEGERS:
        return bool(_JSON_INTEGER.fullmatch(text))
    if kind is PrimitiveType.BOOLEAN:
        return text in ("true", "false")
    if kind in _STRINGS:
        return True
    return read_moment(text, kind) is not None


def _bound(options: dict[str, Any], kind: Type, place: YamlPath, inclusive: str, exclusive: str) -> Bound | None:
    names = [name for name in (inclusive, exclusive) if name in options]
    if len(names) == 2:
        raise ContractError((*place, exclusive), f"both {inclusive} and {exclusive} are set.", "Remove one of them.")
    if not names:
        return None
    (name,) = names
    text = str(options[name])
    value = None if isinstance(options[name], bool) else _value(text, kind, name)
    if value is None:
        expected = _BOUNDS.get(kind, "a number within the range of the type")
        raise ContractError((*place, name), f"{name}: expected {expected}, got {text!r}.", "Correct the value.")
    return Bound(value, name == exclusive and kind not in _INTEGERS)


def _value(text: str, kind: Type, name: str) -> int | float | Decimal | date | None:
    if kind in (PrimitiveType.TIMESTAMP, PrimitiveType.DATE):
        return read_moment(text, kind)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number.is_finite() or number.adjusted() > _LARGEST.adjusted():  # before its zeros are expanded
        return None
    if kind in _FLOATING:
        return float(number) if abs(number) <= _LARGEST else None
    return _whole(number, _INTEGERS[kind], name) if kind in _INTEGERS else number


def _whole(number: Decimal, behind_last: int, name: str) -> int | None:
    """Return the equivalent inclusive bound for integers; None if the type cannot hold it."""
    match name:
        case "minimum":
            whole = math.ceil(number)
        case "exclusiveMinimum":
            whole = math.floor(number) + 1
        case "maximum":
            whole = math.floor(number)
        case _:
            whole = math.ceil(number) - 1
    return whole if -behind_last <= whole < behind_last else None


def read_moment(text: str, kind: Type) -> date | None:
    """Parse a timestamp or date of a contract; None if invalid."""
    form = _TIMESTAMP if kind is PrimitiveType.TIMESTAMP else _DATE
    if not form.fullmatch(text):
        return None
    try:
        if kind is PrimitiveType.DATE:
            return date.fromisoformat(text)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # February 30, or before the year 1 because of its zone
        return None


def _length(options: dict[str, Any], place: YamlPath, name: str) -> int | None:
    if name not in options:
        return None
    value = options[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_LENGTH:
        raise ContractError(
            (*place, name), f"{name}: expected a number of characters, got {value!r}.", f"Use 0 to {_MAX_LENGTH}."
        )
    return value


def _pattern(options: dict[str, Any], place: YamlPath) -> str | None:
    if "pattern" not in options:
        return None
    pattern = options["pattern"]
    try:
        if not isinstance(pattern, str):
            raise PatternError("expected a string")  # noqa: TRY301 - reported as the others are
        portable(pattern)
    except PatternError as error:
        raise ContractError(
            (*place, "pattern"),
            f"invalid pattern {pattern!r}: {error}.",
            "See docs/contracts/schema.md#patterns.",
        ) from None
    return pattern


def _refuse_contradiction(found: Constraints, place: YamlPath) -> None:
    low, high = found.minimum, found.maximum
    if low and high:
        ends_meet = low.value == high.value and (low.exclusive or high.exclusive)
        if low.value > high.value or ends_meet:  # type: ignore[operator]  # both are of the field's type
            raise ContractError(place, "the range contains no value.", "Correct the range.")
    if found.min_length is not None and found.max_length is not None and found.min_length > found.max_length:
        raise ContractError(place, "minLength is greater than maxLength.", "Correct the lengths.")
