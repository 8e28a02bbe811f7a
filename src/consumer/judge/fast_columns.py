"""Columns of the fast judge: one class for each way to read values with msgspec and to build an Arrow column of them.

msgspec is strict about most things; where it is not, a column looks again and declines the record: text that it skipped
unread (`Raw`), -0 read as a double, values beyond the range of the column.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import copysign
from operator import attrgetter
from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, Raw

from consumer.judge.constraint_checks import Examine, column_examiner, examiner
from consumer.judge.judged import ArrowColumn, arrow_field, arrow_type
from consumer.judge.scalars import (
    Converter,
    UnfitError,
    to_date,
    to_text,
)
from consumer.judge.scan import has_minus_zero
from consumer.judge.times import epoch_ends, field_converter
from lakeproof.contracts import (
    ISO_8601,
    Constraints,
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
from lakeproof.contracts.tokens import FloatToken, IntToken

# The usual forms of days that every such month has, and no year that a zone could push out of range: Arrow reads all
# that they match as ISO 8601 means it. What they don't match, a 29th of February too, is converted one by one.
_DAY = r"((0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
_ZONE = r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_TIME = rf"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{{1,6}})?{_ZONE}$"
_TIMESTAMP, _SPACED = (rf"^[1-8]\d{{3}}-{_DAY}{separator}{_TIME}" for separator in "T ")
_DATE = rf"^[1-9]\d{{3}}-{_DAY}$"
_SECOND = 1_000_000
_NO_TEXT = pa.scalar(None, pa.string())
_read_string = msgspec.json.Decoder(str).decode
_read_array = msgspec.json.Decoder(list[Any]).decode


@dataclass
class Chunk:
    """Records on their way through the columns.

    Parameters
    ----------
    raws
        Their bytes.
    declined
        Indexes of the records that are left to the exact judge.
    keys
        How many keys were read of each record, at every depth: an array of int64.
    """

    raws: Sequence[bytes]
    declined: set[int] = field(default_factory=set)
    keys: Any = field(init=False)

    def __post_init__(self) -> None:
        self.keys = np.zeros(len(self.raws), np.int64)
        self._minus_zeros: dict[int, bool] = {}

    def count(self, owners: Sequence[int], keys: Any) -> None:
        """Count keys that were read: one number for each owner, or one for all."""
        if isinstance(owners, range):  # of the records themselves
            self.keys += keys
        else:
            np.add.at(self.keys, np.asarray(owners, np.int64), keys)

    def has_minus_zero(self, owner: int) -> bool:
        """Whether the integer -0 is anywhere in the bytes of a record. They are looked through once."""
        raw = self.raws[owner]
        found = self._minus_zeros.get(id(raw))  # all records of a whole array have the same bytes
        if found is None:
            found = self._minus_zeros[id(raw)] = has_minus_zero(raw)
        return found


class _Column(Protocol):
    """Reads values of one type."""

    annotation: Any
    """The type that msgspec decodes."""

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        """Make the column.

        Parameters
        ----------
        values
            What msgspec read; None for null.
        owners
            Index of the record that each value is of.
        chunk
            Where to count keys, and to decline the owner of a value that does not fit; the column then has null.
        """


class _Plain:
    """Values that msgspec checks to the end, and Arrow takes as they are."""

    def __init__(self, annotation: Any, kind: pa.DataType) -> None:
        self.annotation = annotation
        self._kind = kind

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:  # noqa: ARG002
        return pa.array(values, self._kind)


class _Floating:
    """Numbers with a point."""

    def __init__(self, annotation: Any, kind: pa.DataType) -> None:
        self.annotation = annotation
        self._kind = kind

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        column = pa.array(values, self._kind)
        # Arrow makes infinity of what is too large for a float, and msgspec reads the integer -0 as 0.0.
        chunk.declined.update(owners[index] for index in _indices(pc.is_inf(column)))
        for index in _indices(pc.equal(column, pa.scalar(0, self._kind))):
            value = values[index]
            if value == 0 and copysign(1, value) > 0 and chunk.has_minus_zero(owners[index]):
                chunk.declined.add(owners[index])
        return column


class _Text:
    """Strings in a fixed form, of which Arrow reads the usual ones."""

    annotation = str

    def __init__(self, form: str, convert: Converter, kind: pa.DataType) -> None:
        self._form = form
        self._convert = convert
        self._kind = kind

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        texts = pa.array(values, pa.string())
        usual = pc.match_substring_regex(texts, self._form)
        usual_texts: ArrowColumn = pc.if_else(usual, texts, _NO_TEXT)
        column: ArrowColumn = usual_texts.cast(self._kind)
        unusual = pc.invert(usual)
        others = _indices(unusual)
        if not others:
            return column
        converted = _convert_each(
            [values[index] for index in others], [owners[index] for index in others], chunk, self._convert, self._kind
        )
        mask = unusual.fill_null(False)
        replaced: ArrowColumn = pc.replace_with_mask(column, mask, converted)  # type: ignore[arg-type]
        return replaced


class _EachText:
    """Strings that are converted one by one."""

    annotation = str

    def __init__(self, convert: Converter, kind: pa.DataType) -> None:
        self._convert = convert
        self._kind = kind

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        return _convert_each(values, owners, chunk, self._convert, self._kind)


class _Epoch:
    """Integers that are milliseconds or microseconds since 1970."""

    def __init__(self, per_second: int) -> None:
        least, most = epoch_ends(per_second)
        self.annotation = Annotated[int, Meta(ge=least, le=most)]
        self._unit = pa.scalar(_SECOND // per_second, pa.int64())

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:  # noqa: ARG002
        microseconds: ArrowColumn = pc.multiply(pa.array(values, pa.int64()), self._unit)
        return microseconds.cast(arrow_type(PrimitiveType.TIMESTAMP))


class _Scalar:
    """Any JSON scalar, as text."""

    annotation = Raw

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        tokens = [b"null" if value is None else value for value in values]
        try:
            # Read together, since most are strings, and a call for each costs more than the reading.
            found = _read_array(b"[" + b",".join(tokens) + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = [self._read(token) for token in tokens]
        texts: list[str | None] = []
        for index, value in enumerate(found):
            if type(value) is str or value is None:
                texts.append(value)
            elif isinstance(value, (dict, list)):
                chunk.declined.add(owners[index])
                texts.append(None)
            else:
                texts.append(bytes(tokens[index]).decode("ascii"))
        return pa.array(texts, pa.string())

    def _read(self, token: bytes) -> Any:
        """A value, or a container in place of one that cannot be read."""
        try:
            return msgspec.json.decode(token)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return []


class _Token:
    """Any other scalar: left as it is by msgspec, and converted as the exact judge does."""

    annotation = Raw

    def __init__(self, convert: Converter, kind: pa.DataType) -> None:
        self._convert = convert
        self._kind = kind

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        return _convert_each(values, owners, chunk, self._read, self._kind)

    def _read(self, raw: Raw) -> Any:
        value = _read_token(bytes(raw))
        return None if value is None else self._convert(value)


class _Constrained:
    """Another column's values, of which it declines those that do not meet the contract's constraints."""

    def __init__(self, inner: _Column, outside: Callable[[ArrowColumn], pa.BooleanArray]) -> None:
        self.annotation = inner.annotation
        self._inner = inner
        self._outside = outside

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        column = self._inner.build(values, owners, chunk)
        chunk.declined.update(owners[index] for index in _indices(self._outside(column)))
        return column


class _Map:
    """Objects of any keys."""

    def __init__(self, item: _Column, kind: pa.DataType) -> None:
        self.annotation = dict[str, _nullable(item)]  # type: ignore[misc]
        self._item = item
        self._kind = kind

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        maps = [value or {} for value in values]
        lengths = _lengths(maps)
        chunk.count(owners, lengths)
        items = list(chain.from_iterable(map(dict.values, maps)))
        column = self._item.build(items, np.repeat(np.asarray(owners, np.int64), lengths).tolist(), chunk)
        keys = pa.array(list(chain.from_iterable(maps)), pa.string())
        built: ArrowColumn = pa.MapArray.from_arrays(  # type: ignore[call-overload]  # the stub knows less
            _offsets(lengths), keys, column, type=self._kind, mask=_nulls(values)
        )
        return built


class _List:
    """Arrays."""

    def __init__(self, item: _Column, kind: pa.DataType) -> None:
        self.annotation = list[_nullable(item)]  # type: ignore[misc]
        self._item = item
        self._kind = kind

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        lists = [value or [] for value in values]
        lengths = _lengths(lists)
        items = list(chain.from_iterable(lists))
        column = self._item.build(items, np.repeat(np.asarray(owners, np.int64), lengths).tolist(), chunk)
        return pa.ListArray.from_arrays(_offsets(lengths), column, type=self._kind, mask=_nulls(values))


class ObjectColumn:
    """Objects of known fields; `struct` is what msgspec reads them into."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self._fields = [(f"f{index}", item, _field_column(item)) for index, item in enumerate(fields)]
        self._arrow_fields = [arrow_field(item) for item in fields]
        self.struct = msgspec.defstruct(
            "Record",
            [
                (name, column.annotation) if item.required else (name, _nullable(column), UNSET)
                for name, item, column in self._fields
            ],
            rename={name: item.name for name, item, _ in self._fields},
            forbid_unknown_fields=True,
            kw_only=True,
            gc=False,
        )
        self.annotation = self.struct

    def build(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> ArrowColumn:
        """Make the struct column, as every column is made."""
        columns = self.columns(values, owners, chunk)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=self._arrow_fields, mask=mask)

    def columns(self, values: Sequence[Any], owners: Sequence[int], chunk: Chunk) -> list[ArrowColumn]:
        """The columns of the fields."""
        columns = []
        present = np.array([value is not None for value in values], bool)
        whole = bool(present.all())
        required = sum(item.required for _, item, _ in self._fields)
        chunk.count(owners, required * present)
        for name, item, column in self._fields:
            get = attrgetter(name)
            found = list(map(get, values)) if whole else [value and get(value) for value in values]
            if not item.required:
                is_set = np.array([value is not UNSET for value in found], bool)
                if not is_set.all():
                    found = [None if value is UNSET else value for value in found]
                chunk.count(owners, is_set & present)
            built = column.build(found, owners, chunk)
            if item.required and built.null_count:
                # Null as landed, where msgspec left the token as it is; or just declined.
                for index in _indices(built.is_null()):
                    if present[index]:
                        chunk.declined.add(owners[index])
            columns.append(built)
        return columns


def _field_column(item: Field) -> _Column:
    kind, constraints = item.type, item.constraints
    if not constraints or isinstance(kind, ObjectType | ListType | MapType):
        return _column(kind, item.allowed, item.time)
    if kind in (PrimitiveType.STRING, PrimitiveType.SCALAR, PrimitiveType.TIMESTAMP, PrimitiveType.DATE):
        if kind is PrimitiveType.STRING or not item.allowed:
            return _Constrained(_column(kind, item.allowed, item.time), column_examiner(constraints, arrow_type(kind)))
    elif not item.allowed and not isinstance(kind, DecimalType):
        return _number_column(kind, constraints)
    allowed = frozenset(item.allowed)
    convert = field_converter(kind, item.time)
    return _Token(partial(_convert_checked, convert, allowed, examiner(constraints)), arrow_type(kind))


def _number_column(kind: PrimitiveType, constraints: Constraints) -> _Column:
    """A column of numbers whose range msgspec checks."""
    arrow = arrow_type(kind)
    ends: dict[str, Any] = {}
    if constraints.minimum:
        ends["gt" if constraints.minimum.exclusive else "ge"] = constraints.minimum.value
    if constraints.maximum:
        ends["lt" if constraints.maximum.exclusive else "le"] = constraints.maximum.value
    if kind in (PrimitiveType.FLOAT, PrimitiveType.DOUBLE):
        return _Floating(Annotated[float, Meta(**ends)], arrow)
    last = (1 << (31 if kind is PrimitiveType.INT else 63)) - 1
    return _Plain(Annotated[int, Meta(**{"ge": -last - 1, "le": last} | ends)], arrow)


def _column(kind: Type, allowed: tuple[str, ...] = (), time: TimeForm = ISO_8601) -> _Column:
    arrow = arrow_type(kind)
    match kind:
        case ObjectType():
            return ObjectColumn(kind.fields)
        case MapType():
            return _Map(_column(kind.value), arrow)
        case ListType():
            return _List(_column(kind.item), arrow)
        case PrimitiveType.STRING:
            return _Plain(Literal[allowed] if allowed else str, arrow)
        case _ if allowed:
            return _Token(partial(_convert_checked, field_converter(kind, time), frozenset(allowed), None), arrow)
        case PrimitiveType.BOOLEAN:
            return _Plain(bool, arrow)
        case PrimitiveType.INT:
            return _Plain(Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)], arrow)
        case PrimitiveType.LONG:
            return _Plain(Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)], arrow)
        case PrimitiveType.FLOAT | PrimitiveType.DOUBLE:
            return _Floating(float, arrow)
        case PrimitiveType.TIMESTAMP:
            return _timestamp_column(time)
        case PrimitiveType.DATE:
            return _Text(_DATE, to_date, arrow)
        case PrimitiveType.SCALAR:
            return _Scalar()
        case DecimalType():
            return _Token(field_converter(kind, time), arrow)


def _timestamp_column(form: TimeForm) -> _Column:
    convert, arrow = field_converter(PrimitiveType.TIMESTAMP, form), arrow_type(PrimitiveType.TIMESTAMP)
    if form.format is TimeFormat.EPOCH_S:
        return _Token(convert, arrow)
    if form.format.per_second:
        return _Epoch(form.format.per_second)
    if "XXX" not in form.format:
        return _EachText(convert, arrow)
    return _Text(_SPACED if " " in form.format else _TIMESTAMP, convert, arrow)


def _indices(mask: pa.BooleanArray) -> list[int]:
    """Where `mask` is true."""
    return [index for index in pc.indices_nonzero(mask).to_pylist() if index is not None]


def _nullable(column: _Column) -> Any:
    # msgspec keeps null, like any token, in a Raw; in a union with None it would not keep the others.
    return Raw if column.annotation is Raw else column.annotation | None


def _lengths(values: Sequence[Any]) -> Any:
    return np.fromiter(map(len, values), np.int64, len(values))


def _offsets(lengths: Any) -> pa.Int32Array:
    """Where each list begins, and where the last one ends."""
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _nulls(values: Sequence[Any]) -> pa.BooleanArray | None:
    if None not in values:
        return None
    return pa.array([value is None for value in values], pa.bool_())


def _convert_each(
    values: Sequence[Any], owners: Sequence[int], chunk: Chunk, convert: Converter, kind: pa.DataType
) -> ArrowColumn:
    converted: list[Any] = []
    for index, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
        except (UnfitError, msgspec.MsgspecError, UnicodeDecodeError):
            converted.append(None)
            chunk.declined.add(owners[index])
    return pa.array(converted, kind)


def _convert_checked(convert: Converter, allowed: frozenset[str], examine: Examine | None, value: Any) -> Any:
    if allowed and to_text(value) not in allowed:
        raise msgspec.ValidationError("not allowed")
    converted = convert(value)
    if examine and any(examine(value, converted)):
        raise msgspec.ValidationError("outside of the constraints")
    return converted


def _read_token(token: bytes) -> Any:
    """A JSON scalar as the exact judge reads it. Containers come as an empty one: nothing converts them."""
    match token[:1]:
        case b'"':
            return _read_string(token)
        case b"[" | b"{":
            return {}
        case b"t" | b"f":
            return token == b"true"
        case b"n":
            return None
    text = token.decode("ascii")
    return IntToken(text) if text.lstrip("-").isdigit() else FloatToken(text)
