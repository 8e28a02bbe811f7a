"""Judge one record exactly: its values, or all reasons against it.

The slower of two ways, and the one that decides: :mod:`consumer.bronze.fast` hands over whatever it is not sure of.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from consumer.bronze.columns import Fault
from consumer.bronze.constraints import Examine, examiner
from consumer.bronze.structure import WHITE_SPACE, StructureError, container_end
from consumer.bronze.tokens import MAX_SHOWN, FloatToken, IntToken, UnfitError, converter, cut, shown, to_text
from lakeproof.contracts import Constraints, Contract, Field, ListType, MapType, ObjectType, Type
from lakeproof.reasons import Reason

MAX_DEPTH = 500
"""Brackets within brackets that are read; Python's parser stops somewhere behind it."""
MAX_FAULTS = 100
"""Reasons of one code that are listed; the last one says how many more there are."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ABSENT: Any = object()
_NO_CONSTRAINTS = Constraints()

_Place = tuple[Any, ...]
"""Where a value is in the record: the place of what holds it, and its key or index there; empty for the record.

Few values are faulty, so paths are written only for those.
"""
_RECORD: _Place = ()


class _Doubled(dict[str, Any]):
    """A JSON object with a key more than once; as a dict it has the last value of each."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


class _Faults:
    """Collects reasons, and stops keeping them where there are too many of one code."""

    def __init__(self) -> None:
        self._kept: list[Fault] = []
        self._counts: dict[Reason, int] = {}

    def add(self, code: Reason, place: _Place, detail: str) -> None:
        count = self._counts.get(code, 0) + 1
        self._counts[code] = count
        if count <= MAX_FAULTS:
            self._kept.append(Fault(code, _json_path(place), detail))

    def __bool__(self) -> bool:
        return bool(self._kept)

    def list(self) -> list[Fault]:
        if len(self._kept) == sum(self._counts.values()):
            return self._kept
        dropped = {code: count - MAX_FAULTS for code, count in self._counts.items() if count > MAX_FAULTS}
        for index in range(len(self._kept) - 1, -1, -1):
            fault = self._kept[index]
            if more := dropped.pop(fault.code, 0):
                self._kept[index] = fault._replace(detail=f"{fault.detail} (and {more} more {fault.code.value})")
        return self._kept


_Reader = Callable[[Any, _Place, _Faults], Any]
"""From a JSON value that is not null, its place and the collected reasons, to the column's value."""


class ExactJudge:
    """Holds records to a contract, one at a time."""

    def __init__(self, contract: Contract) -> None:
        self._read = _object_reader(contract.fields)
        self._doubled = False
        self._decode = json.JSONDecoder(
            object_pairs_hook=self._object, parse_int=IntToken, parse_float=FloatToken, parse_constant=_refuse_constant
        ).decode

    def judge(self, unit: bytes) -> dict[str, Any] | list[Fault]:
        """Judge one unit.

        Returns
        -------
        dict[str, Any] or list[Fault]
            Values by field, as pyarrow takes them; or all reasons: first what concerns the text (repeated keys, what
            is no Unicode text), then the contract's fields in its order, then unknown ones in the record's.
        """
        if _depth(unit) > MAX_DEPTH:
            return [Fault(Reason.TOO_DEEP, "$", f"more than {MAX_DEPTH} brackets within each other")]
        faults = _Faults()
        # What is not UTF-8 becomes lone surrogates, so that it can be found in its place later.
        try:
            text, not_utf8 = unit.decode(), None
        except UnicodeDecodeError as error:
            text = unit.decode("utf-8", "surrogateescape")
            not_utf8 = f"byte {error.start} is not UTF-8"
        self._doubled = False
        try:
            value = self._decode(text)
        except json.JSONDecodeError as error:
            byte = len(text[: error.pos].encode("utf-8", "surrogateescape"))
            faults.add(Reason.MALFORMED_RECORD, _RECORD, f"{error.msg} at byte {byte}")
        except _ConstantError as error:
            faults.add(Reason.MALFORMED_RECORD, _RECORD, f"{error} is not JSON")
        except RecursionError:  # the caller's own stack is nearly full
            faults.add(Reason.TOO_DEEP, _RECORD, "more brackets within each other than can be read")
        if faults:
            if not_utf8:
                faults.add(Reason.INVALID_UTF8, _RECORD, not_utf8)
            return faults.list()
        if self._doubled or not_utf8 or b"\\ud" in unit or b"\\uD" in unit:
            _check_text(value, faults)
        if isinstance(value, dict):
            values: dict[str, Any] = self._read(value, _RECORD, faults)
        else:
            faults.add(Reason.NOT_AN_OBJECT, _RECORD, f"an object is due, not {shown(value)}")
        return faults.list() if faults else values

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        self._doubled = True
        return _Doubled(pairs)


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> None:
    raise _ConstantError(name)


def _depth(unit: bytes) -> int:
    if unit.count(b"[") + unit.count(b"{") <= MAX_DEPTH:
        return 0  # not deep, however deep
    start = len(unit) - len(unit.lstrip(WHITE_SPACE))
    if unit[start : start + 1] not in (b"[", b"{"):
        return 0
    try:
        return container_end(unit, start, len(unit))[1]
    except StructureError as error:
        return error.depth


def _check_text(value: Any, faults: _Faults) -> None:
    """Find repeated keys, and strings that are no Unicode text, anywhere."""
    waiting: list[tuple[_Place, Any]] = [(_RECORD, value)]
    while waiting:
        place, item = waiting.pop()
        children: list[tuple[_Place, Any]] = []
        if isinstance(item, dict):
            seen: set[str] = set()
            for key, child in item.pairs if isinstance(item, _Doubled) else item.items():
                child_place = (place, key)
                if key in seen:
                    faults.add(Reason.DUPLICATE_KEY, child_place, "the key is there more than once")
                seen.add(key)
                if _is_no_text(key):
                    faults.add(Reason.INVALID_UTF8, child_place, "the key is not Unicode text")
                children.append((child_place, child))
        elif isinstance(item, list):
            children.extend(((place, index), child) for index, child in enumerate(item))
        elif type(item) is str and _is_no_text(item):
            faults.add(Reason.INVALID_UTF8, place, f"{shown(item)} is not Unicode text")
        waiting.extend(reversed(children))


def _is_no_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _json_path(place: _Place) -> str:
    steps = []
    while place:
        place, key = place
        steps.append(f"[{key}]" if isinstance(key, int) else _step(key))
    return "$" + "".join(reversed(steps))


def _step(key: str) -> str:
    if _IDENTIFIER.fullmatch(key) and len(key) <= MAX_SHOWN:
        return f".{key}"
    quoted = cut(key.replace("\\", "\\\\").replace("'", "\\'"))
    return f"['{quoted}']"


def _reader(kind: Type, allowed: tuple[str, ...] = (), constraints: Constraints = _NO_CONSTRAINTS) -> _Reader:
    match kind:
        case ObjectType():
            return _object_reader(kind.fields)
        case MapType():
            return _map_reader(_reader(kind.value))
        case ListType():
            return _list_reader(_reader(kind.item))
    examine = examiner(constraints) if constraints else None
    return _scalar_reader(converter(kind), frozenset(allowed), examine)


def _scalar_reader(convert: Callable[[Any], Any], allowed: frozenset[str], examine: Examine | None) -> _Reader:
    def read(value: Any, place: _Place, faults: _Faults) -> Any:
        try:
            converted = convert(value)
        except UnfitError as error:
            faults.add(error.code, place, error.detail)
            return None
        if allowed and to_text(value) not in allowed:
            faults.add(Reason.NOT_ALLOWED, place, f"{shown(value)} is not among the allowed values")
        if examine:
            for code, detail in examine(value, converted):
                faults.add(code, place, detail)
        return converted

    return read


def _object_reader(fields: tuple[Field, ...]) -> _Reader:
    plan = [(field.name, field.required, _reader(field.type, field.allowed, field.constraints)) for field in fields]
    known = {field.name for field in fields}

    def read(value: Any, place: _Place, faults: _Faults) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            faults.add(Reason.WRONG_TYPE, place, f"an object is due, not {shown(value)}")
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
                    faults.add(Reason.NULL_FIELD, (place, name), "it is required, and null")
                else:
                    faults.add(Reason.MISSING_FIELD, (place, name), "it is required, and not there")
            values[name] = None if item is _ABSENT else item
        if found != len(value):
            for name in value:
                if name not in known:
                    faults.add(
                        Reason.UNKNOWN_FIELD,
                        (place, name),
                        f"the contract does not know it; it has {shown(value[name])}",
                    )
        return values

    return read


def _map_reader(read_value: _Reader) -> _Reader:
    def read(value: Any, place: _Place, faults: _Faults) -> list[tuple[str, Any]] | None:
        if not isinstance(value, dict):
            faults.add(Reason.WRONG_TYPE, place, f"an object is due, not {shown(value)}")
            return None
        return [(key, None if item is None else read_value(item, (place, key), faults)) for key, item in value.items()]

    return read


def _list_reader(read_item: _Reader) -> _Reader:
    def read(value: Any, place: _Place, faults: _Faults) -> list[Any] | None:
        if not isinstance(value, list):
            faults.add(Reason.WRONG_TYPE, place, f"an array is due, not {shown(value)}")
            return None
        return [None if item is None else read_item(item, (place, index), faults) for index, item in enumerate(value)]

    return read
