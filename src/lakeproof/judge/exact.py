"""Judge one record exactly: return its values, or all reasons against it.

This is the slower of the two judges, and the one that defines the verdicts: the native judge leaves undecided units
to it.
"""

import json
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from lakeproof.contracts import Contract, DriftPolicy, Field, ListType, MapType, ObjectType, Type
from lakeproof.contracts.tokens import MAX_DEPTH, FloatToken, IntToken
from lakeproof.judge.constraint_checks import Examine, examiner
from lakeproof.judge.judged import Fault
from lakeproof.judge.paths import RECORD, DriftedValue, Place, exact_path, json_path, verbatim
from lakeproof.judge.scalars import UnfitError, converter, shown, to_text
from lakeproof.judge.scan import WHITE_SPACE, StructureError, container_end
from lakeproof.judge.times import field_converter
from lakeproof.reasons import Reason

MAX_FAULTS = 100
"""Maximum number of listed reasons per code; the last one says how many more were found."""
MAX_VALUES = 5_000_000
"""Maximum number of values in a record: each takes some 130 bytes of memory, so a record of 64 MiB, which may be 65 kB
of gzip, could take 4 GiB. The native judge leaves records with more than four million values to this one."""
MAX_DRIFT_BYTES = 128 << 10
"""Maximum bytes of the paths of drifted values in a record; a record with more is a dead letter. Paths take the number
of values times the length of the enclosing keys, so a record of a few kilobytes could fill the memory."""

_ABSENT: Any = object()
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*+"')


class _Doubled(dict[str, Any]):
    """A JSON object with duplicate keys; as a dict, it has the last value of each key."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


class Drifted(NamedTuple):
    """A record that goes to bronze although some of its values do not fit."""

    values: dict[str, Any]  # null in place of values that do not fit
    drift: list[DriftedValue]
    faults: list[Fault]  # in case the record becomes a dead letter after all


class _Faults:
    """Collects reasons; keeps at most :data:`MAX_FAULTS` of each code, and counts the others."""

    def __init__(self) -> None:
        self._kept: list[Fault] = []
        self._counts: dict[Reason, int] = {}
        self.drift: dict[Place, list[Reason]] = {}
        self.are_final = False

    def add(self, code: Reason, place: Place, detail: str, is_drift: bool = False) -> None:
        if is_drift:
            if len(self.drift) <= MAX_DRIFT_BYTES:  # further paths would exceed the limit, too
                self.drift.setdefault(place, []).append(code)
        else:
            self.are_final = True
        count = self._counts.get(code, 0) + 1
        self._counts[code] = count
        if count <= MAX_FAULTS:
            self._kept.append(Fault(code, json_path(place), detail))

    def list(self) -> list[Fault]:
        if len(self._kept) == sum(self._counts.values()):
            return self._kept
        dropped = {code: count - MAX_FAULTS for code, count in self._counts.items() if count > MAX_FAULTS}
        for index in range(len(self._kept) - 1, -1, -1):
            fault = self._kept[index]
            if more := dropped.pop(fault.code, 0):
                self._kept[index] = fault._replace(detail=f"{fault.detail} (and {more} more {fault.code.value})")
        return self._kept


_Reader = Callable[[Any, Place, _Faults], Any]
"""Takes a JSON value that is not null, its place and the collected reasons; returns the column's value."""


class ExactJudge:
    """Judges records by a contract, one at a time."""

    def __init__(self, contract: Contract) -> None:
        self._read = _object_reader(contract.fields, False, contract.drift is not DriftPolicy.FREEZE)
        self._seen = threading.local()
        self._decode = json.JSONDecoder(
            object_pairs_hook=self._object, parse_int=IntToken, parse_float=FloatToken, parse_constant=_refuse_constant
        ).decode

    def judge(self, unit: bytes) -> dict[str, Any] | list[Fault] | Drifted:
        """Return the values of a unit by field, or all reasons against it; both if the contract's policy lets it pass.

        Reasons are first those about the text (duplicate keys, invalid Unicode), then those about fields in the order
        of the contract, then unknown fields in the order of the record.
        """
        if _has_too_many_values(unit):
            return [Fault(Reason.TOO_MANY_VALUES, "$", f"more than {MAX_VALUES:,} values")]
        if _depth(unit) > MAX_DEPTH:
            return [Fault(Reason.TOO_DEEP, "$", f"nested more than {MAX_DEPTH} levels deep")]
        faults = _Faults()
        # Invalid UTF-8 becomes lone surrogates, so that its place can be found later.
        try:
            text, not_utf8 = unit.decode(), None
        except UnicodeDecodeError as error:
            text = unit.decode("utf-8", "surrogateescape")
            not_utf8 = f"invalid UTF-8 at byte {error.start}"
        self._seen.doubled = False
        try:
            value = self._decode(text)
        except json.JSONDecodeError as error:
            byte = len(text[: error.pos].encode("utf-8", "surrogateescape"))
            faults.add(Reason.MALFORMED_RECORD, RECORD, f"{error.msg.removesuffix(' at')} at byte {byte}")
        except _ConstantError as error:
            faults.add(Reason.MALFORMED_RECORD, RECORD, f"{error} is not valid JSON")
        except RecursionError:  # the caller's stack is nearly full
            faults.add(Reason.TOO_DEEP, RECORD, "nested too deeply to be parsed")
        if faults.are_final:
            if not_utf8:
                faults.add(Reason.INVALID_UTF8, RECORD, not_utf8)
            return faults.list()
        if self._seen.doubled or not_utf8 or b"\\ud" in unit or b"\\uD" in unit:
            _check_text(value, faults)
        if isinstance(value, dict):
            values: dict[str, Any] = self._read(value, RECORD, faults)
        else:
            faults.add(Reason.NOT_AN_OBJECT, RECORD, f"expected an object, got {shown(value)}")
        if faults.are_final:
            return faults.list()
        if not faults.drift:
            return values
        paths: list[str] = []
        size = 0
        for place in faults.drift:
            paths.append(exact_path(place))
            size += len(paths[-1].encode())
            if size > MAX_DRIFT_BYTES:
                return faults.list()
        codes = ("+".join(sorted(set(each))) for each in faults.drift.values())
        drift = list(map(DriftedValue, paths, codes, verbatim(unit, faults.drift)))
        return Drifted(values, drift, faults.list())

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        self._seen.doubled = True
        return _Doubled(pairs)


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> None:
    raise _ConstantError(name)


def _depth(unit: bytes) -> int:
    if unit.count(b"[") + unit.count(b"{") <= MAX_DEPTH:
        return 0  # too few brackets to exceed the limit
    start = len(unit) - len(unit.lstrip(WHITE_SPACE))
    if unit[start : start + 1] not in (b"[", b"{"):
        return 0
    try:
        return container_end(unit, start, len(unit))[1]
    except StructureError as error:
        return error.depth


def _has_too_many_values(unit: bytes) -> bool:
    if _separators(unit) < MAX_VALUES:
        return False
    # Not those in strings. Escapes go first: a pattern of strings with escapes would need memory for each escape.
    return _separators(_STRING.sub(b"", _ESCAPE.sub(b"", unit))) >= MAX_VALUES


def _separators(unit: bytes) -> int:
    return sum(map(unit.count, (b",", b"[", b"{")))


def _check_text(value: Any, faults: _Faults) -> None:
    """Find duplicate keys and invalid Unicode at any depth."""
    waiting: list[tuple[Place, Any]] = [(RECORD, value)]
    while waiting:
        place, item = waiting.pop()
        children: list[tuple[Place, Any]] = []
        if isinstance(item, dict):
            seen: set[str] = set()
            for key, child in item.pairs if isinstance(item, _Doubled) else item.items():
                child_place = (place, key)
                if key in seen:
                    faults.add(Reason.DUPLICATE_KEY, child_place, "duplicate key")
                seen.add(key)
                if _is_no_text(key):
                    faults.add(Reason.INVALID_UTF8, child_place, "the key is not valid Unicode")
                children.append((child_place, child))
        elif isinstance(item, list):
            children.extend(((place, index), child) for index, child in enumerate(item))
        elif type(item) is str and _is_no_text(item):
            faults.add(Reason.INVALID_UTF8, place, f"{shown(item)} is not valid Unicode")
        waiting.extend(reversed(children))


def _is_no_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _field_reader(field: Field, takes_drift: bool) -> _Reader:
    may_drift = takes_drift and not field.required
    if isinstance(field.type, ObjectType | MapType | ListType):
        return _reader(field.type, may_drift, takes_drift)
    examine = examiner(field.constraints) if field.constraints else None
    return _scalar_reader(field_converter(field.type, field.time), may_drift, frozenset(field.allowed), examine)


def _reader(kind: Type, may_drift: bool, takes_drift: bool) -> _Reader:
    """Return a function that reads values of a type; those that do not fit become null if they `may_drift`.

    `takes_drift`: whether the contract allows values that do not fit at all; applies to nested values.
    """
    match kind:
        case ObjectType():
            return _object_reader(kind.fields, may_drift, takes_drift)
        case MapType():
            return _map_reader(_reader(kind.value, takes_drift, takes_drift), may_drift)
        case ListType():
            return _list_reader(_reader(kind.item, takes_drift, takes_drift), may_drift)
    return _scalar_reader(converter(kind), may_drift)


def _scalar_reader(
    convert: Callable[[Any], Any],
    may_drift: bool,
    allowed: frozenset[str] = frozenset(),
    examine: Examine | None = None,
) -> _Reader:
    def read(value: Any, place: Place, faults: _Faults) -> Any:
        try:
            converted = convert(value)
        except UnfitError as error:
            faults.add(error.code, place, error.detail, may_drift)
            return None
        fits = True
        if allowed and to_text(value) not in allowed:
            faults.add(Reason.NOT_ALLOWED, place, f"{shown(value)} is not an allowed value", may_drift)
            fits = False
        if examine:
            for code, detail in examine(value, converted):
                faults.add(code, place, detail, may_drift)
                fits = False
        return converted if fits else None

    return read


def _object_reader(fields: tuple[Field, ...], may_drift: bool, takes_drift: bool) -> _Reader:
    plan = [(field.name, field.required, _field_reader(field, takes_drift)) for field in fields]
    known = {field.name for field in fields}

    def read(value: Any, place: Place, faults: _Faults) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            faults.add(Reason.WRONG_TYPE, place, f"expected an object, got {shown(value)}", may_drift)
            return None
        values = {}
        found = 0
        for name, required, read_field in plan:
            item = value.get(name, _ABSENT)
            found += item is not _ABSENT
            if item is not _ABSENT and item is not None:
                item = read_field(item, (place, name), faults)
            elif required:
                if item is None:
                    faults.add(Reason.NULL_FIELD, (place, name), "required, but null")
                else:
                    faults.add(Reason.MISSING_FIELD, (place, name), "required, but missing")
            values[name] = None if item is _ABSENT else item
        if found != len(value):
            for name in value:
                if name not in known:
                    detail = f"not in the contract (value: {shown(value[name])})"
                    faults.add(Reason.UNKNOWN_FIELD, (place, name), detail, takes_drift)
        return values

    return read


def _map_reader(read_value: _Reader, may_drift: bool) -> _Reader:
    def read(value: Any, place: Place, faults: _Faults) -> list[tuple[str, Any]] | None:
        if not isinstance(value, dict):
            faults.add(Reason.WRONG_TYPE, place, f"expected an object, got {shown(value)}", may_drift)
            return None
        return [(key, None if item is None else read_value(item, (place, key), faults)) for key, item in value.items()]

    return read


def _list_reader(read_item: _Reader, may_drift: bool) -> _Reader:
    def read(value: Any, place: Place, faults: _Faults) -> list[Any] | None:
        if not isinstance(value, list):
            faults.add(Reason.WRONG_TYPE, place, f"expected an array, got {shown(value)}", may_drift)
            return None
        return [None if item is None else read_item(item, (place, index), faults) for index, item in enumerate(value)]

    return read
