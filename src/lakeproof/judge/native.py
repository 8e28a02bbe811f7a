"""The native judge: compile a contract for it, and read what it returns as Arrow columns.

It gives the same verdicts as :mod:`lakeproof.judge.exact`, or leaves a unit to that judge. See src/native-judge.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pyarrow as pa

from lakeproof.contracts import (
    ISO_8601,
    Bound,
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    TimeForm,
    TimeFormat,
    Type,
)
from lakeproof.contracts.pattern import portable
from lakeproof.judge.constraint_checks import examiner, expected_range, in_column
from lakeproof.judge.judged import DRIFT, REASONS, ArrowColumn, arrow_type
from lakeproof.judge.scalars import UnfitError
from lakeproof.judge.times import field_converter

_BEYOND = 10**38
# Made once: a chunk of sound records has neither reasons nor drift.
_EMPTY = {kind: pa.array([], kind.value_type) for kind in (REASONS, DRIFT)}
# Rows, validity, buffers, children, and the index of each value's record, as bytes.
_Part = tuple[int, bytes | None, list[bytes], list[Any], bytes | None]


class UnsupportedError(Exception):
    """The native judge is not installed, or does not support a contract; the message is the reason."""


class BrokenError(Exception):
    """The native judge failed; the message is its error."""


@dataclass(frozen=True)
class Units:
    """Units of batches, as arrays of int64."""

    of: Any  # index of the batch of each unit
    positions: Any  # index of each unit in its batch
    starts: Any  # offsets in the batch
    ends: Any

    def __len__(self) -> int:
        return len(self.of)

    def take(self, rows: Any) -> "Units":
        """Return the units at the given indexes."""
        return Units(self.of[rows], self.positions[rows], self.starts[rows], self.ends[rows])

    def and_then(self, others: "Units") -> "Units":
        """Append other units to these."""
        pairs = zip(astuple(self), astuple(others), strict=True)
        return Units(*(np.concatenate(pair) for pair in pairs))

    def sizes(self) -> Iterator[tuple[int, int, int]]:
        """Return the batch, position and number of bytes of each unit."""
        return zip(self.of.tolist(), self.positions.tolist(), (self.ends - self.starts).tolist(), strict=True)

    def cut(self, batches: Sequence[bytes]) -> list[bytes]:
        """Return the bytes of each unit."""
        spans = zip(self.of.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)
        return [batches[number][start:end] for number, start, end in spans]


@dataclass(frozen=True)
class Chunk:
    """The result of judging a run of units."""

    good: Units
    columns: list[ArrowColumn]  # the contract's columns of the good records
    drift: ArrowColumn  # for each good record: list<struct<codes, path, text>> of its drifted values
    bad: Units
    reasons: ArrowColumn  # against each bad unit
    raw: ArrowColumn  # bytes of each bad unit
    undecided: Units  # for the exact judge
    too_large: Units  # not judged
    refused: list[int]  # indexes of the batches that cannot be split
    following: tuple[int, int]  # index of the batch, and position in it, of the first unit after the chunk


_NO_UNITS = Units(*(np.empty(0, np.int64) for _ in range(4)))


def no_chunk(contract: Contract) -> Chunk:
    """Return an empty chunk."""
    columns: list[ArrowColumn] = [pa.array([], arrow_type(field.type)) for field in contract]
    reasons, raw = pa.array([], REASONS), pa.array([], pa.binary())
    return Chunk(_NO_UNITS, columns, pa.array([], DRIFT), _NO_UNITS, reasons, raw, _NO_UNITS, _NO_UNITS, [], (0, 0))


class NativeJudge:
    """Judges records by a contract; raises :class:`UnsupportedError` if it cannot."""

    def __init__(self, contract: Contract) -> None:
        try:
            from native_judge import NativeJudge as Compiled
        except ImportError as error:
            raise UnsupportedError(str(error)) from error
        self._contract = contract
        try:
            self._judge = Compiled(json.dumps(_plan(contract)))
        except (ValueError, TypeError) as error:  # TypeError: another module with this name
            raise UnsupportedError(str(error)) from error

    def judge(self, batches: Sequence[bytes], record_bytes: int, units: int, size: int) -> Iterator[Chunk]:
        """Judge the units of decompressed batches; chunks that were yielded before a :class:`BrokenError` are valid.

        A unit of more than `record_bytes` is not judged. A chunk has at most `units` units, and `size` bytes of them,
        unless a single unit has more.
        """
        judging = self._judge.judge(batches, record_bytes, units, size)
        while True:
            try:
                found = judging.next()
            except RuntimeError as error:
                raise BrokenError(str(error)) from error
            if found is None:
                return
            yield self._chunk(found)

    def _chunk(self, found: dict[str, Any]) -> Chunk:
        good = _units(found["good"])
        undecided = _units(found["undecided"])
        columns = []
        unfit: set[int] = set()
        for field, part in zip(self._contract, found["columns"], strict=True):
            columns.append(_column(part, field.type, field, unfit))
        drift = _lists(found["drift"], DRIFT)
        if unfit:
            left = np.array(sorted(unfit), np.int64)
            kept = np.setdiff1d(np.arange(len(good)), left)
            undecided = undecided.and_then(good.take(left))
            good = good.take(kept)
            indexes = pa.array(kept, pa.int64())
            columns, drift = [column.take(indexes) for column in columns], drift.take(indexes)
        return Chunk(
            good,
            columns,
            drift,
            _units(found["bad"]),
            _lists(found["reasons"], REASONS),
            _array(found["raw"], pa.binary()),
            undecided,
            _units(found["too_large"]),
            found["refused"],
            found["following"],
        )


def _plan(contract: Contract) -> dict[str, Any]:
    return {
        "fields": [_field_plan(field) for field in contract.fields],
        "takes_drift": contract.drift is not DriftPolicy.FREEZE,
        "has_rules": bool(contract.rules),
    }


def _field_plan(field: Field) -> dict[str, Any]:
    return {"name": field.name, "required": field.required, "kind": _kind_plan(field.type, field)}


def _kind_plan(kind: Type, field: Field | None = None) -> dict[str, Any]:
    match kind:
        case ObjectType(fields):
            return {"type": "object", "fields": [_field_plan(each) for each in fields]}
        case MapType(value):
            return {"type": "map", "value": _kind_plan(value)}
        case ListType(item):
            return {"type": "list", "item": _kind_plan(item)}
    scalar: dict[str, Any] = {"type": "scalar", "form": _form_plan(kind, field.time if field else ISO_8601)}
    return scalar | _constraints_plan(kind, field) if field else scalar


def _form_plan(kind: PrimitiveType | DecimalType, time: TimeForm) -> dict[str, Any]:
    if isinstance(kind, DecimalType):
        return {"name": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind is PrimitiveType.SCALAR:
        return {"name": "any"}
    if kind is not PrimitiveType.TIMESTAMP:
        return {"name": kind.value}
    form = time.format
    if form.per_second:
        return {"name": "epoch", "per_second": form.per_second}
    if is_zoned(time):
        return {"name": "zoned"}
    expected = f"a timestamp of the format {form}"
    if time == ISO_8601:
        expected = "an ISO 8601 timestamp with date, time and UTC offset"
    elif form is TimeFormat.DATE:
        expected = "a date (yyyy-MM-dd)"
    return {
        "name": "timestamp",
        "separator": None if form is TimeFormat.DATE else " " if " " in form else "T",
        "needs_offset": form.has_offset,
        "takes_offset": "XXX" in form,
        "expected": expected,
    }


def is_zoned(time: TimeForm) -> bool:
    """Whether timestamps may be local times of a zone, whose rules only Python knows."""
    return time.format.may_lack_offset and time.zone != "UTC"


def _constraints_plan(kind: PrimitiveType | DecimalType, field: Field) -> dict[str, Any]:
    constraints = field.constraints
    plan: dict[str, Any] = {
        "allowed": list(field.allowed),
        "min_length": constraints.min_length,
        "max_length": constraints.max_length,
    }
    if constraints.pattern is not None:
        form = portable(constraints.pattern)
        if "--" in form:
            raise UnsupportedError(f"-- in the pattern {constraints.pattern} of {field.name} may mean something else")
        plan["pattern"] = [constraints.pattern, form]
    if kind is not PrimitiveType.TIMESTAMP or not is_zoned(field.time):
        if constraints.minimum:
            plan["minimum"] = _bound_plan(kind, constraints.minimum, is_least=True)
        if constraints.maximum:
            plan["maximum"] = _bound_plan(kind, constraints.maximum, is_least=False)
    return plan


def _bound_plan(kind: PrimitiveType | DecimalType, bound: Bound, *, is_least: bool) -> dict[str, Any]:
    plan = {"expected": expected_range(bound, is_least=is_least), "exclusive": bound.exclusive}
    value = in_column(bound)
    if kind in (PrimitiveType.FLOAT, PrimitiveType.DOUBLE):
        return plan | {"number": repr(float(value))}
    units = _units_of(value, kind.scale if isinstance(kind, DecimalType) else 0)
    if is_least:
        whole = floor(units) + 1 if bound.exclusive else ceil(units)
    else:
        whole = ceil(units) - 1 if bound.exclusive else floor(units)
    # No column has values beyond 38 digits.
    return plan | {"whole": str(max(-_BEYOND, min(_BEYOND, whole)))}


def _units_of(value: int | Decimal, scale: int) -> Fraction:
    """Return a bound in units of the last decimal place."""
    if isinstance(value, Decimal) and value and value.adjusted() < -scale - 1:
        # Some fraction of one unit: the exact one may have a million digits.
        return Fraction(1 if value > 0 else -1, 10)
    return Fraction(value) * int(10**scale)


def _units(part: tuple[bytes, ...]) -> Units:
    return Units(*(np.frombuffer(values, np.int64) for values in part)) if part[0] else _NO_UNITS


def _array(part: _Part, kind: pa.DataType) -> ArrowColumn:
    """Build an array without children."""
    rows, validity, buffers, _, _ = part
    return pa.Array.from_buffers(kind, rows, [_buffer(validity), *map(pa.py_buffer, buffers)])


def _lists(part: tuple[int, bytes, list[_Part]], kind: Any) -> ArrowColumn:
    """Build an array of lists of structs of texts."""
    rows, offsets, texts = part
    structs = _structs(texts, kind.value_type) if texts[0][0] else _EMPTY[kind]
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets)], children=[structs])


def _structs(texts: list[_Part], kind: Any) -> ArrowColumn:
    structs: ArrowColumn = pa.StructArray.from_arrays([_array(each, pa.string()) for each in texts], fields=list(kind))
    return structs


def _buffer(validity: bytes | None) -> pa.Buffer | None:
    return None if validity is None else pa.py_buffer(validity)


def _column(part: _Part, kind: Type, field: Field | None, unfit: set[int]) -> ArrowColumn:
    """Build a column; records with values that do not fit are added to `unfit`."""
    rows, validity, buffers, children, owners = part
    valid, arrow = _buffer(validity), arrow_type(kind)
    match kind:
        case ObjectType(fields):
            pairs = zip(children, fields, strict=True)
            parts = [_column(child, each.type, each, unfit) for child, each in pairs]
            return pa.Array.from_buffers(arrow, rows, [valid], children=parts)
        case ListType(item):
            items = _column(children[0], item, None, unfit)
            return pa.Array.from_buffers(arrow, rows, [valid, pa.py_buffer(buffers[0])], children=[items])
        case MapType(value):
            keys, values = _array(children[0], pa.string()), _column(children[1], value, None, unfit)
            entry = [pa.field("key", pa.string(), nullable=False), pa.field("value", values.type)]
            entries = pa.StructArray.from_arrays([keys, values], fields=entry)
            return pa.Array.from_buffers(arrow, rows, [valid, pa.py_buffer(buffers[0])], children=[entries])
    if owners is None or field is None:
        return _array(part, arrow)
    return _zoned_column(_array(part, pa.string()), field, np.frombuffer(owners, np.uint32), unfit)


def _zoned_column(texts: ArrowColumn, field: Field, owners: Any, unfit: set[int]) -> ArrowColumn:
    """Convert timestamps of a time zone, which only Python reads."""
    convert, examine = field_converter(PrimitiveType.TIMESTAMP, field.time), examiner(field.constraints)
    converted: list[int | None] = []
    for text, owner in zip(texts.to_pylist(), owners.tolist(), strict=True):
        value = None
        if text is not None:
            try:
                value = convert(text)
                fits = not any(examine(text, value))
            except UnfitError:
                fits = False
            if not fits:
                unfit.add(owner)
        converted.append(value)
    return pa.array(converted, arrow_type(PrimitiveType.TIMESTAMP))
