"""Compare the values of bronze rows with the landed bytes.

JSON tokens are converted to column values by the tables of docs/json-types.md, independent of the consumer's code.

Bronze may lack a landed value if the contract allows null there, or does not define the field. Then the value must be
in ``_rescued``, with the exact landed text, or it was discarded, and the ledger has the number of discarded values.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from lakeproof.contracts import (
    ISO_8601,
    Contract,
    DecimalType,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    TimeForm,
    TimeFormat,
    Type,
)
from lakeproof.tables.names import CONTRACT_VERSION, POSITION, RESCUED, SOURCE
from reader.verify.landed.paths import Steps, parse_path, text_at

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 60
_DAY = 86_400 * 1_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_A_DAY = timedelta(days=1)
_LEAST, _MOST = 1e-60, 1e60  # floats that are not 0 are between these, and so is the middle between two of them
# The calendar repeats every 400 years: year 0, which Python does not support, is year 2000 shifted by this many days.
_DAYS_FROM_0_TO_2000 = 5 * 146_097


class _Number(str):
    """The text of a JSON number."""

    __slots__ = ()


@dataclass
class Differences:
    """Texts about the differences between rows and landed bytes, with the number of compared rows.

    Values are `missing` if bronze may lack them: they were discarded if the ledger has as many.
    """

    rows: int = 0
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def excess(missing: int, texts: Sequence[str], discarded: int, *, is_whole: bool, of: str = "") -> Iterator[str]:
    """Yield messages if more values are missing than the ledger has as discarded: also `texts`, about the values.

    If all rows that the ledger counts were compared (`is_whole`), both numbers must be equal. `of` begins the message
    about the numbers.
    """
    if missing > discarded or (is_whole and missing < discarded):
        if discarded:
            yield f"{of}the ledger has {discarded:,} discarded values, but {missing:,} are missing"
        if missing > discarded:
            yield from texts


class Sample:
    """Bronze rows to compare with the landed bytes.

    `contracts` has the contracts that judged the rows, by version, newest last; unknown versions use the newest. `rows`
    has the columns of the newest contract, ``_source``, ``_position``, ``_contract_version``, and ``_rescued`` if any.
    """

    def __init__(self, contracts: Mapping[str, Contract], rows: "pa.Table") -> None:
        newest = list(contracts.values())[-1]
        self._columns = newest.renamed
        # Records cannot have dropped fields: such a field counts as unknown.
        contracts = {version: replace(each, fields=each.live) for version, each in contracts.items()}
        newest = list(contracts.values())[-1]
        self._contracts = [contracts.get(str(version), newest) for version in rows[CONTRACT_VERSION].to_pylist()]
        self._rows = rows
        self._places: dict[str, dict[int, int]] = {}
        places = zip(rows[SOURCE].to_pylist(), rows[POSITION].to_pylist(), strict=True)
        for number, (source, position) in enumerate(places):
            if source is not None and position is not None:
                self._places.setdefault(source, {})[position] = number

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))

    def positions(self, source: str) -> frozenset[int]:
        """Return the positions of the sampled rows of a source."""
        return frozenset(self._places.get(source, ()))

    def compare(self, source: str, units: Mapping[int, bytes]) -> Differences:
        """Compare the rows of a source with the landed `units`; a row whose unit is missing is not compared."""
        found = Differences()
        for position, number in sorted(self._places.get(source, {}).items()):
            if position in units:  # a missing unit is reported elsewhere
                found.rows += 1
                for text, is_missing in self._of_row(units[position], number):
                    (found.missing if is_missing else found.wrong).append(f"unit {position}{text}")
        return found

    def _of_row(self, unit: bytes, number: int) -> Iterator[tuple[str, bool]]:
        """Yield messages about a row, and whether each is about a missing value."""
        try:
            record = json.loads(unit, parse_int=_Number, parse_float=_Number)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            yield " is in bronze, but it is not a JSON object", False
            return
        missing: _Missing = {}
        contract = self._contracts[number]
        for each in contract:
            column = self._columns.get(each.name, each.name)
            kept, token = self._rows[column][number], record.get(each.name)
            if not _is_field_same(each, token, kept, (), missing):
                yield f": {each.name} is {_short(str(kept))} in bronze, but {_shown(token)} landed", False
        missing |= _unknown(contract.fields, record, ())
        rescued = self._rows[RESCUED][number].as_py() if RESCUED in self._rows.column_names else None
        for path, text in rescued or ():
            place = parse_path(path)
            if place is None or place not in missing:
                yield f": {path} is in _rescued, but its value is not missing in bronze", False
            elif text != (landed := text_at(unit.decode(), place)):
                yield f": {path} is {_short(str(text))} in _rescued, but {_short(landed)} landed", False
            missing.pop(place or (), None)
        for place, token in missing.items():
            yield f": {'.'.join(map(str, place))} is null in bronze, but {_shown(token)} landed", True


_Missing = dict[Steps, Any]
"""Landed values that may be missing from the columns, and are."""


def _shown(token: Any) -> str:
    return _short(json.dumps(token, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _is_field_same(field: Field, token: Any, kept: "pa.Scalar[Any]", within: Steps, missing: _Missing) -> bool:
    if field.required and not kept.is_valid:
        return False
    return _is_same(field.type, token, kept, (*within, field.name), missing, field.time)


def _is_same(
    kind: Type, token: Any, kept: "pa.Scalar[Any]", place: Steps, missing: _Missing, time: TimeForm = ISO_8601
) -> bool:
    """Return whether a column has the value of the JSON `token` (None for null); collect missing values."""
    if token is None:
        return not kept.is_valid
    if not kept.is_valid:
        missing[place] = token
        return True
    try:
        return _has_value(kind, token, kept, place, missing, time)
    except (ValueError, TypeError, ArithmeticError):
        return False  # the token is not of that type


def _unknown(fields: Sequence[Field], record: Mapping[str, Any], place: Steps) -> _Missing:
    known = {field.name for field in fields}
    return {(*place, name): token for name, token in record.items() if name not in known}


def _has_value(kind: Type, token: Any, kept: Any, place: Steps, missing: _Missing, time: TimeForm) -> bool:
    match kind:
        case ObjectType():
            if not isinstance(token, dict):
                return False
            missing |= _unknown(kind.fields, token, place)
            return all(
                _is_field_same(field, token.get(field.name), kept[field.name], place, missing) for field in kind.fields
            )
        case ListType():
            return (
                isinstance(token, list)
                and len(token) == len(kept.values)
                and all(
                    _is_same(kind.item, item, value, (*place, index), missing)
                    for index, (item, value) in enumerate(zip(token, kept.values, strict=True))
                )
            )
        case MapType():
            entries = {entry["key"].as_py(): entry["value"] for entry in kept.values}
            return (
                isinstance(token, dict)
                and len(kept.values) == len(token) == len(entries)
                and all(
                    key in entries and _is_same(kind.value, item, entries[key], (*place, key), missing)
                    for key, item in token.items()
                )
            )
        case DecimalType():
            return isinstance(token, _Number) and _decimal(token) == kept.as_py()
        case PrimitiveType():
            return _is_scalar(kind, token, kept, time)


def _is_scalar(kind: PrimitiveType, token: Any, kept: Any, time: TimeForm) -> bool:
    match kind:
        case PrimitiveType.TIMESTAMP if time.format.per_second:
            return isinstance(token, _Number) and _is_epoch(token, time.format, kept.value)
        case PrimitiveType.SCALAR:
            text = json.dumps(token) if isinstance(token, bool) else token
            return isinstance(text, str) and str(text) == kept.as_py()
        case PrimitiveType.BOOLEAN:
            return isinstance(token, bool) and bool(kept.as_py() is token)
        case PrimitiveType.INT | PrimitiveType.LONG:
            return isinstance(token, _Number) and bool(int(token) == kept.as_py())
        case PrimitiveType.DOUBLE:
            return isinstance(token, _Number) and bool(float(token) == kept.as_py())
        case PrimitiveType.FLOAT:
            return isinstance(token, _Number) and _is_nearest_float(token, kept.as_py())
    if type(token) is not str:
        return False
    match kind:
        case PrimitiveType.TIMESTAMP:
            return bool(_time(token, time) == kept.value)
        case PrimitiveType.DATE:
            return bool(date.fromisoformat(token).toordinal() - _EPOCH == kept.value)
        case _:
            return bool(token == kept.as_py())


def _is_nearest_float(token: str, kept: float) -> bool:
    # Rounded once, or twice via a double, which may yield the other neighbor for a number halfway between two floats.
    twice: float = struct.unpack("<f", struct.pack("<f", float(token)))[0]
    if kept == twice:
        return True
    if not _LEAST < abs(float(token)) < _MOST:
        return False  # far from the middle between two floats; its fraction may have any number of digits
    exact = Fraction(Decimal(token))
    return abs(Fraction(kept) - exact) < abs(Fraction(twice) - exact)


def _decimal(token: str) -> Decimal:
    """Return the exact value of a number; Python does not read a zero with a very long exponent."""
    return Decimal(token) if token.lower().partition("e")[0].strip("-.0") else Decimal()


def _is_epoch(token: str, unit: TimeFormat, kept: int) -> bool:
    if unit is TimeFormat.EPOCH_S:
        return _decimal(token) == Decimal(kept).scaleb(-6)  # exact for any exponents
    return int(token) * {TimeFormat.EPOCH_MS: 1_000, TimeFormat.EPOCH_US: 1}[unit] == kept


def _time(text: str, form: TimeForm) -> int:
    """Return the microseconds since 1970 of a timestamp in the format `form`."""
    is_date = form.format is TimeFormat.DATE
    if not is_date and text[10:11] != (" " if " " in form.format else "T"):
        raise ValueError(text)
    if not form.format.may_lack_offset or any(mark in text[10:] for mark in "Z+-"):
        return _microseconds(text)
    local = datetime.fromisoformat(text)
    zone = ZoneInfo(form.zone)
    found = _when_clocks_show(local, zone)
    if not found and is_date:  # the clock was put forward at midnight
        found = [local - _offset_at(local - _A_DAY, zone)]
    if len(found) != 1 and not is_date:
        raise ValueError(text)
    return _microseconds(f"{min(found).isoformat()}Z")


def _when_clocks_show(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the times in UTC at which clocks in a zone show a local time: none, one or two."""
    near = max(local, datetime.min + 2 * _A_DAY) - _A_DAY, min(local, datetime.max - 2 * _A_DAY) + _A_DAY
    times = {local - _offset_at(at, zone) for at in near}
    return [at for at in times if at + _offset_at(at, zone) == local]


def _offset_at(at: datetime, zone: ZoneInfo) -> timedelta:
    """Return the offset of a zone at a time in UTC."""
    return at.replace(tzinfo=UTC).astimezone(zone).utcoffset() or timedelta()


def _microseconds(text: str) -> int:
    """Return the microseconds since 1970 of an ISO 8601 timestamp with a zone."""
    days = 0
    if text.startswith("0000"):
        text, days = "2000" + text[4:], -_DAYS_FROM_0_TO_2000
    moment = datetime.fromisoformat(text)
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(text)
    days += moment.toordinal() - _EPOCH
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    return days * _DAY + (seconds - round(offset.total_seconds())) * 1_000_000 + moment.microsecond
