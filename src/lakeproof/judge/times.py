"""Convert timestamps exactly from the format of the contract; ISO 8601 with an offset is in scalars."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any
from zoneinfo import ZoneInfo

from lakeproof.contracts import ISO_8601, DecimalType, PrimitiveType, TimeForm, TimeFormat
from lakeproof.contracts.tokens import IntToken
from lakeproof.judge.scalars import (
    BEHIND_LAST_MICROSECOND,
    FIRST_MICROSECOND,
    Converter,
    converter,
    microseconds_of,
    unfit,
)
from lakeproof.reasons import Reason

_DAY, _TIME = r"(\d{4})-(\d{2})-(\d{2})", r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
_OFFSET = r"(Z|([+-])(\d{2})(?::?(\d{2}))?)"
_USUAL = r"\d{{4}}-\d\d-\d\d{separator}(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{{1,6}})?"
_DATE = re.compile(_DAY, re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_SECOND = 1_000_000
_SECONDS_OF_DAY = 86_400
_UNITS = {1_000: "milliseconds", _SECOND: "microseconds"}
_LONGEST_EPOCH = len(str(FIRST_MICROSECOND))
_seconds = converter(DecimalType(18, 6))


def field_converter(kind: PrimitiveType | DecimalType, form: TimeForm) -> Converter:
    """Return a function that converts a JSON value for a column of type `kind`; `form` is the format of timestamps."""
    if kind is not PrimitiveType.TIMESTAMP or form == ISO_8601:
        return converter(kind)
    if form.format.per_second:
        return partial(_from_number, per_second=form.format.per_second)
    zone = ZoneInfo(form.zone)
    if form.format is TimeFormat.DATE:
        return partial(_from_date, midnight=lru_cache(maxsize=4096)(partial(_midnight, zone=zone)))
    separator = " " if " " in form.format else "T"
    offset = _OFFSET if form.format.has_offset else f"{_OFFSET}?" if form.format.endswith("[XXX]") else ""
    pattern = re.compile(_DAY + separator + _TIME + offset, re.ASCII)
    usual = re.compile(_USUAL.format(separator=separator), re.ASCII)
    return partial(_from_text, form=form, pattern=pattern, usual=usual, zone=zone)


def _from_number(value: Any, per_second: int) -> int:
    if isinstance(value, IntToken):
        # Python refuses to parse very long integers.
        return _in_range(int(value) * (_SECOND // per_second) if len(value) <= _LONGEST_EPOCH else None, value)
    if per_second == 1:
        return _in_range(int(_seconds(value) * _SECOND), value)
    raise unfit(Reason.WRONG_TYPE, f"an integer, {_UNITS[per_second]} since 1970", value)


def _from_text(value: Any, form: TimeForm, pattern: re.Pattern[str], usual: re.Pattern[str], zone: ZoneInfo) -> int:
    if type(value) is not str:
        raise unfit(Reason.WRONG_TYPE, "a string", value)
    if form.format.may_lack_offset and usual.fullmatch(value):
        try:
            return _in_zone(datetime.fromisoformat(value), zone, value)
        except ValueError:  # a day that is not in the calendar, or the year 0
            pass
    match = pattern.fullmatch(value)
    if not match:
        raise unfit(Reason.WRONG_FORMAT, f"a timestamp of the format {form.format}", value)
    time, offset = match.groups()[:7], match.groups()[7:]
    microseconds = microseconds_of(value, *time, *offset[1:])
    return microseconds if any(offset) else _in_zone(_EPOCH + timedelta(microseconds=microseconds), zone, value)


def _from_date(value: Any, midnight: Callable[[str], int]) -> int:
    if type(value) is not str:
        raise unfit(Reason.WRONG_TYPE, "a string", value)
    return midnight(value)


def _midnight(value: str, zone: ZoneInfo) -> int:
    match = _DATE.fullmatch(value)
    if not match:
        raise unfit(Reason.WRONG_FORMAT, "a date (yyyy-MM-dd)", value)
    local = _EPOCH + timedelta(microseconds=microseconds_of(value, *match.groups()))
    # Like java.time: the earlier of two midnights; a missing midnight is moved by as much as the clock was put forward.
    return _since_epoch(local.replace(tzinfo=zone), value)


def _in_zone(local: datetime, zone: ZoneInfo, value: str) -> int:
    early, late = local.replace(tzinfo=zone), local.replace(tzinfo=zone, fold=1)
    before, after = early.utcoffset(), late.utcoffset()
    if before != after:
        what = "exists" if before and after and before < after else "is not ambiguous"
        raise unfit(Reason.WRONG_FORMAT, f"a local time that {what} in {zone.key}", value)
    return _since_epoch(early, value)


def _since_epoch(at: datetime, value: str) -> int:
    # Not converted to UTC: the first and last hours may be outside of Python's calendar there.
    since = at.replace(tzinfo=None) - _EPOCH - (at.utcoffset() or timedelta())
    return _in_range((since.days * _SECONDS_OF_DAY + since.seconds) * _SECOND + since.microseconds, value)


def _in_range(microseconds: int | None, value: Any) -> int:
    if microseconds is None or not FIRST_MICROSECOND <= microseconds < BEHIND_LAST_MICROSECOND:
        raise unfit(Reason.OUT_OF_RANGE, "a timestamp between the years 0001 and 9999 in UTC", value)
    return microseconds
