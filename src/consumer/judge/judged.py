"""What judging gives: good records and dead letters, as Arrow columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from consumer.judge.paths import DriftedValue
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
from lakeproof.reasons import Reason

ArrowColumn: TypeAlias = "pa.Array[Any]"  # a string, since pyarrow's own class cannot be subscripted
ArrowField: TypeAlias = "pa.Field[Any]"


class Fault(NamedTuple):
    """A reason against a unit.

    Parameters
    ----------
    code
        Which of the reasons it is.
    path
        JSONPath of the place in the record; ``$`` for the whole unit.
    detail
        What was expected and what was found, for a person to read.
    """

    code: Reason
    path: str
    detail: str


_FAULT = pa.struct([pa.field("code", pa.string()), pa.field("path", pa.string()), pa.field("detail", pa.string())])
_REASONS = pa.list_(_FAULT)
_DRIFT = pa.list_(pa.string())
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
    """Records that meet the contract.

    Parameters
    ----------
    values
        The contract's fields, and no other column.
    positions
        int64: index of each in its batch.
    drift
        list<string>: for each value of a record that did not fit, the codes of its reasons, joined by ``+``; null for
        a record without any. None where the policy is to freeze.
    rescued
        map<string, string>: the JSONPaths of these values, and their text. None unless the policy is to rescue.
    """

    values: pa.RecordBatch
    positions: ArrowColumn
    drift: "ArrowColumn | None"
    rescued: "ArrowColumn | None"

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Bad:
    """Units that do not meet the contract.

    Parameters
    ----------
    positions
        int64: index of each in its batch.
    reasons
        list<struct<code, path, detail>>: all reasons against each.
    raw
        binary: the bytes of each; null where they are too many to be kept.
    """

    positions: ArrowColumn
    reasons: ArrowColumn
    raw: ArrowColumn

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Judged:
    """Units of a batch, each in one of the two."""

    good: Good
    bad: Bad

    def __len__(self) -> int:
        return len(self.good) + len(self.bad)


@dataclass(frozen=True)
class Together:
    """Units of several batches that were judged together; their positions are those in their own batches.

    Parameters
    ----------
    judged
        The units.
    good_of, bad_of
        Which batch each good record, and each bad unit, is from.
    """

    judged: Judged
    good_of: Sequence[int]
    bad_of: Sequence[int]


def value_schema(contract: Contract) -> pa.Schema:
    """Columns of good records: the contract's fields."""
    return pa.schema([arrow_field(field) for field in contract])


def good_records(
    contract: Contract, positions: Sequence[int], columns: list[ArrowColumn], drift: Sequence[Sequence[DriftedValue]]
) -> Good:
    """Put good records together.

    Parameters
    ----------
    contract
        The contract that they meet.
    positions
        Index of each in its batch.
    columns
        The contract's fields.
    drift
        The values of each that did not fit.
    """
    codes = rescued = None
    if contract.drift is not DriftPolicy.FREEZE:
        codes = pa.array([[value.codes for value in values] or None for values in drift], _DRIFT)
    if contract.drift is DriftPolicy.RESCUE:
        rescued = pa.array([[(value.path, value.text) for value in values] or None for values in drift], _RESCUED)
    values = pa.RecordBatch.from_arrays(columns, schema=value_schema(contract))
    return Good(values, pa.array(positions, pa.int64()), codes, rescued)


def bad_units(positions: Sequence[int], faults: Iterable[Sequence[Fault]], raws: Sequence[bytes | None]) -> Bad:
    """Put bad units together."""
    return Bad(pa.array(positions, pa.int64()), _fault_column(faults), pa.array(raws, pa.binary()))


def arrow_field(field: Field) -> ArrowField:
    """The column of a field. All are nullable: a dead letter has none of them."""
    return pa.field(field.name, arrow_type(field.type))


def arrow_type(kind: Type) -> pa.DataType:
    """The Arrow type that holds every value of a contract's type exactly."""
    match kind:
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case MapType():
            return pa.map_(pa.string(), arrow_type(kind.value))
        case ListType():
            return pa.list_(arrow_type(kind.item))
        case ObjectType():
            return pa.struct([arrow_field(field) for field in kind.fields])
        case PrimitiveType():
            return _PRIMITIVES[kind]


def value_columns(records: Sequence[dict[str, Any]], contract: Contract) -> list[ArrowColumn]:
    """The contract's columns of records as :func:`consumer.judge.exact.ExactJudge.judge` returns them."""
    return [pa.array([record[field.name] for record in records], arrow_type(field.type)) for field in contract]


def _fault_column(units: Iterable[Sequence[Fault]]) -> ArrowColumn:
    """The ``reasons`` column."""
    codes: list[str] = []
    paths: list[str] = []
    details: list[str] = []
    offsets = [0]
    for faults in units:
        for fault in faults:
            codes.append(fault.code.value)
            paths.append(fault.path)
            details.append(fault.detail)
        offsets.append(len(codes))
    parts = [pa.array(texts, pa.string()) for texts in (codes, paths, details)]
    structs = pa.StructArray.from_arrays(parts, fields=list(_FAULT))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, type=_REASONS)
