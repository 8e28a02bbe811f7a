"""Parsing of messages to events: only the few fields that a mode needs, strictly; the rest is left unchanged."""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Any, NamedTuple

import msgspec

from lakeproof.contracts import ISO_8601, PrimitiveType, TimeForm
from lakeproof.contracts.tokens import FloatToken, IntToken
from lakeproof.judge.scalars import UnfitError, shown
from lakeproof.judge.times import field_converter
from lakeproof.kafka.modes import Fields
from lakeproof.reasons import Reason

AMOUNT_PRECISION, AMOUNT_SCALE = 18, 6
"""Digits of an amount, and digits after the decimal point."""

_UNIT = Decimal((0, (1,), -AMOUNT_SCALE))
_EXACT = Context(prec=AMOUNT_PRECISION, traps=[Inexact, InvalidOperation])
_NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


class BadMessageError(Exception):
    """A message is not an event."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Event(NamedTuple):
    """The fields of a message that a mode reads; user and amount only in `windows`."""

    id: str
    time: int  # in microseconds since 1970
    user: str | None = None
    amount: Decimal | None = None


def parser(fields: Fields, form: TimeForm = ISO_8601) -> Callable[[bytes], Event]:
    """Return a parser for the value of a message, a JSON object in UTF-8.

    It raises :class:`BadMessageError` if the value is not an event, lacks a field, or has a field of another type.
    """
    names = {name: field for name, field in vars(fields).items() if field}
    read_time: Callable[[Any], Any] = field_converter(PrimitiveType.TIMESTAMP, form)
    numbers = {"amount"}
    if form.format.per_second:
        numbers.add("event_time")
        read_time = partial(_read_number, read_time)
    types = {name: msgspec.Raw if name in numbers else str for name in names}
    model = msgspec.defstruct("Fields", list(types.items()), rename=names)
    kinds = {names[name]: kind for name, kind in types.items()}
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(model).decode
    quoted = [json.dumps(field, ensure_ascii=False).encode() for field in names.values()]
    # Escape sequences by which one of the names can be spelled in another way: they have no quotes and backslashes.
    escapes = [b"\\u", b"\\/"] if any("/" in field for field in names.values()) else [b"\\u"]
    of_user = fields.user_id is not None

    def parse(value: bytes) -> Event:
        try:
            found = decode(value)
            if not value.isascii():
                value.decode()
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            bad = _bad(error, value, kinds)
            if bad.reason is Reason.MISSING_FIELD and bad.detail.startswith(f"{fields.user_id}:"):
                bad.detail += ": each window is of one user"
            raise bad from error
        if any(value.count(name) > 1 for name in quoted) or any(escape in value for escape in escapes):
            _check_keys(value, names.values())
        if not found.event_id:
            raise BadMessageError(Reason.WRONG_LENGTH, f"{fields.event_id}: expected an id, got an empty string")
        time = _read(fields.event_time, read_time, found.event_time)
        if not of_user:
            return Event(found.event_id, time)
        return Event(found.event_id, time, found.user_id, _read(str(fields.amount), _amount, found.amount))

    return parse


def _read(field: str, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except UnfitError as error:
        raise BadMessageError(error.code, f"{field}: {error.detail}") from error


def _amount(raw: msgspec.Raw) -> Decimal:
    number = _number(raw)
    try:
        amount = Decimal(number)
        return _UNIT * 0 if not amount else amount.quantize(_UNIT, context=_EXACT)
    except (Inexact, InvalidOperation):
        raise UnfitError(
            Reason.OUT_OF_RANGE,
            f"expected a number with at most {AMOUNT_PRECISION - AMOUNT_SCALE} digits before the decimal point and "
            f"{AMOUNT_SCALE} after it, got {shown(number)}",
        ) from None


def _read_number(convert: Callable[[Any], Any], raw: msgspec.Raw) -> Any:
    return convert(_number(raw))


def _number(raw: msgspec.Raw) -> IntToken | FloatToken:
    text = bytes(raw)
    if not _NUMBER.fullmatch(text):
        raise UnfitError(
            Reason.NULL_FIELD if text == b"null" else Reason.WRONG_TYPE,
            f"expected a number, got {shown(msgspec.json.decode(text))}",
        )
    digits = text.decode()
    return IntToken(digits) if digits.lstrip("-").isdigit() else FloatToken(digits)


def _refuse_constant(name: str) -> None:
    """Refuse NaN and infinite numbers, which Python's JSON has and JSON has not."""
    raise BadMessageError(Reason.MALFORMED_RECORD, f"not valid JSON: {name}")


def _bad(error: Exception, value: bytes, fields: Mapping[str, type]) -> BadMessageError:
    """Return why a value is bad: Python's JSON parser reads it again, and fields are checked one by one."""
    if isinstance(error, UnicodeDecodeError):
        return BadMessageError(Reason.INVALID_UTF8, f"{error.reason} at byte {error.start}")
    text = value.decode(errors="surrogateescape")
    try:
        found = json.loads(text, parse_int=IntToken, parse_float=FloatToken, parse_constant=_refuse_constant)
    except RecursionError:
        return BadMessageError(Reason.TOO_DEEP, "nested too deeply")
    except json.JSONDecodeError as wrong:
        place = len(text[: wrong.pos].encode(errors="surrogateescape"))
        return BadMessageError(Reason.MALFORMED_RECORD, f"not valid JSON at byte {place}")
    if not isinstance(found, dict):
        return BadMessageError(Reason.NOT_AN_OBJECT, f"expected an object, got {shown(found)}")
    for field, kind in fields.items():
        if field not in found:
            return BadMessageError(Reason.MISSING_FIELD, f"{field}: required, but missing")
        if found[field] is None:
            return BadMessageError(Reason.NULL_FIELD, f"{field}: required, but null")
        if kind is str and type(found[field]) is not str:
            return BadMessageError(Reason.WRONG_TYPE, f"{field}: expected a string, got {shown(found[field])}")
    try:
        _check_keys(value, fields)
    except BadMessageError as twice:
        return twice
    return BadMessageError(Reason.MALFORMED_RECORD, "not valid JSON")


def _check_keys(value: bytes, fields: Any) -> None:
    """Refuse an object with a duplicate of one of the fields; nested objects may have fields of the same name."""

    def keys(pairs: list[tuple[str, Any]]) -> list[str]:
        return [key for key, _ in pairs]

    try:
        # Numbers stay text: Python converts no integers of thousands of digits.
        found = json.loads(value, object_pairs_hook=keys, parse_int=str, parse_float=str)
    except RecursionError as error:  # the two parsers need not allow the same depth
        raise BadMessageError(Reason.TOO_DEEP, "nested too deeply") from error
    except ValueError as error:
        raise BadMessageError(Reason.MALFORMED_RECORD, "not valid JSON") from error
    for field in fields:
        if found.count(field) > 1:
            raise BadMessageError(Reason.DUPLICATE_KEY, f"{field}: the object has it twice")
