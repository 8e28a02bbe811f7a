"""Results of judging: good records and dead letters, as Arrow columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.contracts import (
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Type,
)
from lakeproof.judge.paths import DriftedValue
from lakeproof.reasons import Reason

ArrowColumn: TypeAlias = "pa.Array[Any]"  # a string, since pyarrow's own class cannot be subscripted
ArrowField: TypeAlias = "pa.Field[Any]"


class Fault(NamedTuple):
    """A reason against a unit."""

    code: Reason
    path: str  # JSONPath of the place in the record; ``$`` for the whole unit
    detail: str  # what was expected and what was found, in words


REASONS = pa.list_(pa.struct([pa.field(name, pa.string()) for name in ("code", "path", "detail")]))
DRIFT = pa.list_(pa.struct([pa.field(name, pa.string()) for name in ("codes", "path", "text")]))
_CODES = pa.list_(pa.string())
_RESCUED = pa.map_(pa.string(), pa.string())
_PRIMITIVES: dict[PrimitiveType, pa.DataType] = {
    PrimitiveType.STRING: pa.string(),
    PrimitiveType.BOOLEAN: pa.bool_(),
    PrimitiveType.INT: pa.int32(),
    PrimitiveType.LONG: pa.int64(),
    PrimitiveType.FLOAT: pa.float32(),
    PrimitiveType.DOUBLE: pa.float64(),
    PrimitiveType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    PrimitiveType.DATE: pa.date32(),
    PrimitiveType.SCALAR: pa.string(),
}


@dataclass(frozen=True)
class Good:
    """Records that meet the contract."""

    values: pa.RecordBatch  # the contract's fields, and no other column
    positions: ArrowColumn  # int64: index of each record in its batch
    # list<string>: for each value of a record that did not fit, the codes of its reasons, joined by ``+``; null for a
    # record without such values. None with the policy freeze.
    drift: "ArrowColumn | None"
    # map<string, string>: the JSONPaths of these values, and their text. None unless the policy is rescue.
    rescued: "ArrowColumn | None"

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Bad:
    """Units that do not meet the contract."""

    positions: ArrowColumn  # int64: index of each unit in its batch
    reasons: ArrowColumn  # list<struct<code, path, detail>>: all reasons against each unit
    raw: ArrowColumn  # binary: the bytes of each unit; null if there are too many to keep

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Judged:
    """Units of a batch, each either good or bad."""

    good: Good
    bad: Bad

    def __len__(self) -> int:
        return len(self.good) + len(self.bad)


@dataclass(frozen=True)
class Together:
    """Units of several batches that were judged together; positions are indexes in their own batches."""

    judged: Judged
    good_of: Any  # array of int64: index of the batch of each good record
    bad_of: Any  # and of each bad unit


def value_schema(contract: Contract) -> pa.Schema:
    """Columns of good records: the contract's fields."""
    return pa.schema([arrow_field(field) for field in contract])


def good_records(
    schema: pa.Schema, policy: DriftPolicy, positions: Any, columns: list[ArrowColumn], drift: ArrowColumn
) -> Good:
    """Build a :class:`Good` from columns of :func:`value_schema`; `drift` is of the type :data:`DRIFT`."""
    codes = rescued = None
    if policy is not DriftPolicy.FREEZE:
        codes = _by_record(drift, _CODES, "codes")
        if policy is DriftPolicy.RESCUE:
            rescued = _by_record(drift, _RESCUED, "path", "text")
    values = pa.RecordBatch.from_arrays(columns, schema=schema)
    return Good(values, pa.array(positions, pa.int64()), codes, rescued)


def reasons_column(faults: Iterable[Sequence[Fault]]) -> ArrowColumn:
    """Build the ``reasons`` column."""
    return _listed([[(fault.code.value, fault.path, fault.detail) for fault in each] for each in faults], REASONS)


def _by_record(drift: Any, kind: Any, *names: str) -> ArrowColumn:
    """Build lists or maps of type `kind` from fields of the drifted values; null for a record without any."""
    if not drift.values:
        nothing: ArrowColumn = pa.nulls(len(drift), kind)
        return nothing
    parts = [drift.values.field(name) for name in names]
    lists: Any = pa.MapArray if pa.types.is_map(kind) else pa.ListArray
    found: ArrowColumn = lists.from_arrays(drift.offsets, *parts, type=kind, mask=_is_empty(drift))
    return found


def _is_empty(lists: Any) -> Any:
    lengths: Any = pc.list_value_length(lists)
    return pc.equal(lengths, pa.scalar(0, pa.int32()))


def drift_column(values: Iterable[Sequence[DriftedValue]]) -> ArrowColumn:
    """Build the column of each record's drifted values for :func:`good_records`."""
    return _listed([[(each.codes, each.path, each.text) for each in row] for row in values], DRIFT)


def _listed(rows: Iterable[Sequence[tuple[str, ...]]], kind: Any) -> ArrowColumn:
    """Build an array of type `kind`: lists of structs of texts."""
    structs: list[tuple[str, ...]] = []
    offsets = [0]
    for row in rows:
        structs += row
        offsets.append(len(structs))
    columns = list(zip(*structs, strict=True)) or [()] * kind.value_type.num_fields
    parts = [pa.array(texts, pa.string()) for texts in columns]
    items = pa.StructArray.from_arrays(parts, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=kind)


def arrow_field(field: Field) -> ArrowField:
    """Return the column of a field. All columns are nullable: a dead letter has no values."""
    return pa.field(field.name, arrow_type(field.type))


def arrow_type(kind: Type) -> pa.DataType:
    """Return the Arrow type that holds every value of a contract's type exactly."""
    if isinstance(kind, PrimitiveType):  # nearly always, and quicker than a pattern
        return _PRIMITIVES[kind]
    match kind:
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case MapType():
            return pa.map_(pa.string(), arrow_type(kind.value))
        case ListType():
            return pa.list_(arrow_type(kind.item))
        case ObjectType():
            return pa.struct([arrow_field(field) for field in kind.fields])


def value_columns(records: Sequence[dict[str, Any]], contract: Contract) -> list[ArrowColumn]:
    """Build the contract's columns from records of :func:`lakeproof.judge.exact.ExactJudge.judge`."""
    return [pa.array([record[field.name] for record in records], arrow_type(field.type)) for field in contract]
