"""Statistics of the values in samples: kinds of tokens, counts, and distinct values if they are few."""

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lakeproof.contracts.constraints import read_moment
from lakeproof.contracts.model import PrimitiveType, TimeFormat
from lakeproof.contracts.tokens import FloatToken, IntToken

MAX_VALUES = 12  # distinct texts to keep per field
MAX_DEPTH = 20  # greatest nesting depth of described values
MAX_KEYS = 300  # distinct keys above which objects are seen as a map
_MAX_LONG_DIGITS = 19
_MAX_DECIMAL_DIGITS = 38

_TIMESTAMP = re.compile(
    r"(?P<time>\d{4}-\d{2}-\d{2}T([01]\d|2[0-3]):\d{2}(:\d{2}(?P<fraction>\.\d{1,9})?)?)"
    r"(Z|(?P<hours>[+-]\d{2})(:?(?P<minutes>[0-5]\d))?)",
    re.ASCII,
)
_MICROSECONDS = len(".123456")
_DECIMALS = 6
_TIME_LIKE = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}", re.ASCII)
_EPOCHS = range(946_684_800, 4_102_444_800)  # plausible times: 2000 to 2099
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


class Token(StrEnum):
    """The narrowest kind of a JSON scalar."""

    TEXT = "text"
    TIMESTAMP = "timestamp"
    LOCAL = "timestamp without a UTC offset"
    SPACED = "timestamp with a blank"
    SPACED_LOCAL = "timestamp with a blank, without a UTC offset"
    DATE = "date"
    UUID = "UUID"
    BOOLEAN = "boolean"
    LONG = "integer"  # a 64-bit integer
    WHOLE = "large integer"  # an integer with up to 38 digits
    NUMBER = "number"  # any other number in the range of a double
    HUGE = "number that no double can have"


TIMES = {
    Token.TIMESTAMP: TimeFormat.T_OFFSET,
    Token.LOCAL: TimeFormat.T_LOCAL,
    Token.SPACED: TimeFormat.SPACE_OFFSET,
    Token.SPACED_LOCAL: TimeFormat.SPACE_LOCAL,
    Token.DATE: TimeFormat.DATE,
}
"""Timestamp formats of these kinds of text."""


@dataclass
class Observed:
    """Statistics of the values of a field."""

    values: int = 0  # how many records, objects or arrays had it, null included
    nulls: int = 0
    objects: int = 0
    arrays: int = 0
    # Count of scalars by kind, and the first example of each.
    tokens: Counter[Token] = field(default_factory=Counter)
    examples: dict[Token, str] = field(default_factory=dict)
    # Numbers that are a time from 2000 to 2099 in a unit: counts and the first example of each.
    epochs: Counter[TimeFormat] = field(default_factory=Counter)
    epoch_examples: dict[TimeFormat, str] = field(default_factory=dict)
    other_number: str = ""  # an example of a number outside of these times
    # Counts of distinct texts, up to :data:`MAX_VALUES` + 1.
    texts: Counter[str] = field(default_factory=Counter)
    time_like: str = ""  # an example of a text with date and time that is not a timestamp
    # Maximum number of digits after the decimal point; None if a number has an exponent.
    scale: int | None = 0
    fields: "dict[str, Observed]" = field(default_factory=dict)
    entries: "Observed | None" = None  # values of all keys, once objects have more than :data:`MAX_KEYS`
    items: "Observed | None" = None
    is_too_deep: bool = False  # whether nested values were skipped

    def add(self, value: Any, depth: int = 0) -> None:
        """Add a value at a nesting depth."""
        self.values += 1
        if value is None:
            self.nulls += 1
        elif depth > MAX_DEPTH and isinstance(value, dict | list):
            self.is_too_deep = True
        elif isinstance(value, dict):
            self.objects += 1
            for name, item in value.items():
                self._of(name).add(item, depth + 1)
        elif isinstance(value, list):
            self.arrays += 1
            self.items = self.items or Observed()
            for item in value:
                self.items.add(item, depth + 1)
        else:
            self._add_scalar(value)

    def merged(self) -> "Observed":
        """Merged statistics of all keys."""
        whole = Observed()
        for each in self.fields.values():
            whole.merge(each)
        if self.entries:
            whole.merge(self.entries)
        return whole

    def merge(self, other: "Observed") -> None:
        """Add the statistics of another field."""
        self.values += other.values
        self.nulls += other.nulls
        self.objects += other.objects
        self.arrays += other.arrays
        self.tokens += other.tokens
        self.examples = other.examples | self.examples
        self.epochs += other.epochs
        self.epoch_examples = other.epoch_examples | self.epoch_examples
        self.other_number = self.other_number or other.other_number
        self.time_like = self.time_like or other.time_like
        self.is_too_deep |= other.is_too_deep
        self.scale = None if self.scale is None or other.scale is None else max(self.scale, other.scale)
        for name, each in other.fields.items():
            self._of(name).merge(each)
        if other.entries:
            self._as_map().merge(other.entries)
        if other.items:
            self.items = self.items or Observed()
            self.items.merge(other.items)

    def _of(self, name: str) -> "Observed":
        if self.entries is None and name not in self.fields and len(self.fields) == MAX_KEYS:
            self._as_map()
        return self.entries or self.fields.setdefault(name, Observed())

    def _as_map(self) -> "Observed":
        if self.entries is None:
            self.entries = self.merged()
            self.fields = {}
        return self.entries

    def _add_scalar(self, value: Any) -> None:
        token = _token(value)
        self.tokens[token] += 1
        if token not in self.examples:
            self.examples[token] = json.dumps(value, ensure_ascii=False) if type(value) in (str, bool) else str(value)
        if isinstance(value, IntToken | FloatToken):
            whole, _, behind = value.partition(".")
            plain = (whole + behind).lstrip("-").isdigit()
            self.scale = max(self.scale, len(behind)) if plain and self.scale is not None else None
            if plain and (unit := _epoch(whole, behind)):
                self.epochs[unit] += 1
                self.epoch_examples.setdefault(unit, str(value))
            else:
                self.other_number = self.other_number or value
        elif isinstance(value, str):
            if token is Token.TEXT and _TIME_LIKE.match(value):
                self.time_like = self.time_like or value
            if value in self.texts or len(self.texts) <= MAX_VALUES:
                self.texts[value] += 1


def _token(value: str | bool) -> Token:
    if isinstance(value, bool):
        return Token.BOOLEAN
    if isinstance(value, IntToken):
        digits = len(value.lstrip("-"))
        if digits <= _MAX_LONG_DIGITS and -(2**63) <= int(value) < 2**63:
            return Token.LONG
        return Token.WHOLE if digits <= _MAX_DECIMAL_DIGITS else _of_double(value)
    if isinstance(value, FloatToken):
        return _of_double(value)
    if read_moment(value, PrimitiveType.DATE) is not None:
        return Token.DATE
    if (kind := _time(value)) is not None:
        return kind
    return Token.UUID if _UUID.fullmatch(value) else Token.TEXT


def _time(text: str) -> Token | None:
    """The kind of a timestamp in text: with T or a blank, with or without an offset."""
    is_spaced = text[10:11] == " "
    text = f"{text[:10]}T{text[11:]}" if is_spaced else text
    if is_timestamp(text):
        return Token.SPACED if is_spaced else Token.TIMESTAMP
    if is_timestamp(f"{text}Z"):
        return Token.SPACED_LOCAL if is_spaced else Token.LOCAL
    return None


def _epoch(whole: str, decimals: str) -> TimeFormat | None:
    """The unit in which a number is a plausible time; only seconds may have decimals."""
    if len(whole) > _MAX_LONG_DIGITS:
        return None
    for form in (TimeFormat.EPOCH_S, TimeFormat.EPOCH_MS, TimeFormat.EPOCH_US):
        if int(whole) // (form.per_second or 1) in _EPOCHS:
            fits = len(decimals.rstrip("0")) <= _DECIMALS if form is TimeFormat.EPOCH_S else not decimals
            return form if fits else None
    return None


def _of_double(number: str) -> Token:
    return Token.HUGE if math.isinf(float(number)) else Token.NUMBER


def is_timestamp(text: str) -> bool:
    """Whether a text is a timestamp with a UTC offset and at most microseconds."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return False
    fraction = found["fraction"] or ""
    if fraction[_MICROSECONDS:].strip("0"):
        return False
    time = found["time"].removesuffix(fraction) + fraction[:_MICROSECONDS]
    zone = f"{found['hours']}:{found['minutes'] or '00'}" if found["hours"] else "Z"
    return read_moment(time + zone, PrimitiveType.TIMESTAMP) is not None
