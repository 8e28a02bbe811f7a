"""Convert one JSON scalar to the value of a column, by its token and lexical form, without guessing or rounding.

See docs/json-types.md for the values that fit each type.
"""

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache, partial
from typing import Any

from lakeproof.contracts import DecimalType, PrimitiveType
from lakeproof.contracts.tokens import FloatToken, IntToken
from lakeproof.reasons import Reason

MAX_SHOWN = 80
"""Maximum number of characters of a value in a detail."""

_CONTROLS = {code: f"\\u{code:04x}" for code in (*range(32), 127)}
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d{2})(?::?(\d{2}))?)", re.ASCII
)
# The form of nearly all timestamps. Python's parser reads those that it accepts like the slower code below.
_USUAL_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_EPOCH = date(1970, 1, 1).toordinal()
_EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_IN_400_YEARS = 146_097
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
FIRST_MICROSECOND = (1 - _EPOCH) * _DAY  # 0001-01-01T00:00:00Z
BEHIND_LAST_MICROSECOND = (date.max.toordinal() + 1 - _EPOCH) * _DAY
_LONGEST_INT = len(str(-(1 << 63)))


class UnfitError(Exception):
    """A value does not fit its field; `detail` is what was expected, and what was found."""

    def __init__(self, code: Reason, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


Converter = Callable[[Any], Any]
"""Takes a JSON value (str, IntToken, FloatToken, bool, dict, list; never None); returns a value for pyarrow.

Raises :class:`UnfitError` for a value that does not fit.
"""


def converter(kind: PrimitiveType | DecimalType) -> Converter:
    """Return a function that converts a JSON value for a column of type `kind`."""
    if isinstance(kind, DecimalType):
        exact = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
        return partial(_to_decimal, precision=kind.precision, scale=kind.scale, exact=exact)
    converters: dict[PrimitiveType, Converter] = {
        PrimitiveType.STRING: _to_string,
        PrimitiveType.BOOLEAN: _to_boolean,
        PrimitiveType.INT: partial(_to_integer, bits=32),
        PrimitiveType.LONG: partial(_to_integer, bits=64),
        PrimitiveType.FLOAT: _to_float,
        PrimitiveType.DOUBLE: _to_double,
        PrimitiveType.TIMESTAMP: to_timestamp,
        PrimitiveType.DATE: to_date,
        PrimitiveType.SCALAR: to_text,
    }
    return converters[kind]


def to_text(value: Any) -> str:
    """Return a string's value, or the characters of a number or boolean as landed."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise _wrong_type("a scalar", value)


def to_timestamp(value: Any) -> int:
    """Convert an ISO 8601 timestamp with date, time and zone to microseconds since 1970-01-01T00:00:00Z."""
    if type(value) is not str:
        raise _wrong_type("a string", value)
    if _USUAL_TIMESTAMP.fullmatch(value):
        try:
            since = datetime.fromisoformat(value) - _EPOCH_TIME
        except ValueError:  # a day that is not in the calendar, or the year 0
            return _to_unusual_timestamp(value)
        microseconds = since.days * _DAY + since.seconds * _SECOND + since.microseconds
        if FIRST_MICROSECOND <= microseconds < BEHIND_LAST_MICROSECOND:
            return microseconds
    return _to_unusual_timestamp(value)


def _to_unusual_timestamp(value: str) -> int:
    match = _TIMESTAMP.fullmatch(value)
    if not match:
        raise unfit(Reason.WRONG_FORMAT, "an ISO 8601 timestamp with date, time and UTC offset", value)
    return microseconds_of(value, *match.groups())


def microseconds_of(
    value: str,
    year: str,
    month: str,
    day: str,
    hour: str = "0",
    minute: str = "0",
    second: str | None = None,
    fraction: str | None = None,
    sign: str | None = None,
    zone_hours: str | None = None,
    zone_minutes: str | None = None,
) -> int:
    """Convert the parts of a timestamp to microseconds since 1970-01-01T00:00:00Z; `value` is its text for messages."""
    days = _days(year, month, day)
    hours, minutes, seconds = int(hour), int(minute), int(second or 0)
    offset_hours, offset_minutes = int(zone_hours or 0), int(zone_minutes or 0)
    if days is None or max(hours, offset_hours) > 23 or max(minutes, seconds, offset_minutes) > 59:
        raise unfit(Reason.WRONG_FORMAT, "a valid date and time", value)
    nanoseconds = (fraction or "").ljust(9, "0")
    if nanoseconds[6:] != "000":
        raise unfit(Reason.OUT_OF_RANGE, "a timestamp with at most microsecond precision", value)
    offset = (offset_hours * 60 + offset_minutes) * (-1 if sign == "-" else 1)
    since_midnight = ((hours * 60 + minutes - offset) * 60 + seconds) * _SECOND + int(nanoseconds[:6])
    microseconds = days * _DAY + since_midnight
    if not FIRST_MICROSECOND <= microseconds < BEHIND_LAST_MICROSECOND:
        raise unfit(Reason.OUT_OF_RANGE, "a timestamp between the years 0001 and 9999 in UTC", value)
    return microseconds


def to_date(value: Any) -> int:
    """Convert a date like ``2026-11-21`` to days since 1970-01-01."""
    if type(value) is not str:
        raise _wrong_type("a string", value)
    match = _DATE.fullmatch(value)
    if not match:
        raise unfit(Reason.WRONG_FORMAT, "an ISO 8601 date (YYYY-MM-DD)", value)
    days = _days(*match.groups())
    if days is None:
        raise unfit(Reason.WRONG_FORMAT, "a valid calendar date", value)
    if match[1] == "0000":
        raise unfit(Reason.OUT_OF_RANGE, "a date between the years 0001 and 9999", value)
    return days


def shown(value: Any) -> str:
    """Format a value for a person: its kind, or its first characters. The result is always valid Unicode."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if type(value) is str:
        return f'"{cut(value)}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return cut(value)


def cut(text: str) -> str:
    """Return the first characters of `text`, with control characters and invalid Unicode escaped."""
    return escaped(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…")


def escaped(text: str) -> str:
    """Escape control characters and invalid Unicode in `text`."""
    return text if text.isprintable() else text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


def _to_string(value: Any) -> str:
    if type(value) is not str:
        raise _wrong_type("a string", value)
    return value


def _to_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type("true or false", value)
    return value


def _to_integer(value: Any, bits: int) -> int:
    if not isinstance(value, IntToken):
        raise _wrong_type("an integer without a decimal point or exponent", value)
    if len(value) <= _LONGEST_INT:  # Python refuses to parse very long integers
        number = int(value)
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            return number
    raise unfit(Reason.OUT_OF_RANGE, f"a {bits}-bit integer", value)


def _to_double(value: Any) -> float:
    if not isinstance(value, (IntToken, FloatToken)):
        raise _wrong_type("a number", value)
    number = float(value)
    if math.isinf(number):
        raise unfit(Reason.OUT_OF_RANGE, "a number that fits in a double", value)
    return number


def _to_float(value: Any) -> float:
    number = _to_double(value)
    try:
        struct.pack("<f", number)
    except OverflowError:
        raise unfit(Reason.OUT_OF_RANGE, "a number that fits in a float", value) from None
    return number


def _to_decimal(value: Any, precision: int, scale: int, exact: Context) -> Decimal:
    if not isinstance(value, (IntToken, FloatToken)):
        raise _wrong_type("a number", value)
    unit = Decimal((0, (1,), -scale))
    try:
        if not value.lower().partition("e")[0].strip("-.0"):
            return 0 * unit  # zero, with any exponent
        return Decimal(value).quantize(unit, context=exact)
    except (Inexact, InvalidOperation):
        detail = f"a number with at most {precision - scale} digits before the decimal point and {scale} after it"
        raise unfit(Reason.OUT_OF_RANGE, detail, value) from None


@lru_cache(maxsize=4096)
def _days(year: str, month: str, day: str) -> int | None:
    """Days since 1970-01-01; None for a day that is not in the calendar."""
    try:
        if year == "0000":  # Python's calendar starts with the year 1, and repeats every 400 years
            return date(400, int(month), int(day)).toordinal() - _DAYS_IN_400_YEARS - _EPOCH
        return date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:
        return None


def _wrong_type(expected: str, found: Any) -> UnfitError:
    return unfit(Reason.WRONG_TYPE, expected, found)


def unfit(code: Reason, expected: str, found: Any) -> UnfitError:
    """Return the error for a value other than the expected one."""
    return UnfitError(code, f"expected {expected}, got {shown(found)}")
