"""The Arrow columns of judged units."""

from collections.abc import Iterable, Sequence
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
from lakeproof.tables.names import POSITION, RAW, REASONS, RESCUED

ArrowColumn: TypeAlias = "pa.Array[Any]"  # a string, since pyarrow's own class cannot be subscripted
ArrowField: TypeAlias = "pa.Field[Any]"


DRIFT = "_drift"
"""Column of judged units: the codes of each value that was rescued or discarded."""


class Fault(NamedTuple):
    """A reason against a unit.

    Parameters
    ----------
    code
        Which of the reasons it is.
    path
        JSONPath of the place in the record; ``$`` for the whole unit.
    detail
        What was due and what was found, for a person.
    """

    code: Reason
    path: str
    detail: str


_RESCUED = pa.field(RESCUED, pa.map_(pa.string(), pa.string()))
_DRIFT = pa.field(DRIFT, pa.list_(pa.string()))
_FAULT = pa.struct([pa.field("code", pa.string()), pa.field("path", pa.string()), pa.field("detail", pa.string())])
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


def judged_schema(contract: Contract) -> pa.Schema:
    """Columns of judged units.

    Returns
    -------
    pa.Schema
        The contract's fields; ``_position`` int64, the unit's index in its batch; ``reasons``
        list<struct<code, path, detail>> and ``raw`` binary, the unit's bytes. Of a record that meets the contract
        `reasons` and `raw` are null; of any other unit, the contract's fields are.

        Unless the contract's policy is to freeze, with them: ``_drift`` list<string>, for each value that does not fit
        the codes of its reasons, joined by ``+``; and if it is to rescue, ``_rescued`` map<string, string>, from the
        JSONPaths of these values to their text. Both are null where there are none.
    """
    return pa.schema(
        [
            *(arrow_field(field) for field in contract),
            *drift_fields(contract),
            pa.field(POSITION, pa.int64()),
            pa.field(REASONS, pa.list_(_FAULT)),
            pa.field(RAW, pa.binary()),
        ]
    )


def drift_fields(contract: Contract) -> list[ArrowField]:
    """The columns that tell of values that do not fit: as many as the policy needs."""
    match contract.drift:
        case DriftPolicy.FREEZE:
            return []
        case DriftPolicy.RESCUE:
            return [_RESCUED, _DRIFT]
        case DriftPolicy.DISCARD:
            return [_DRIFT]


def drift_columns(rows: Sequence[Sequence[DriftedValue]], contract: Contract) -> list[ArrowColumn]:
    """The columns of :func:`drift_fields`."""
    told: dict[str, list[Any]] = {
        RESCUED: [[(value.path, value.text) for value in values] or None for values in rows],
        DRIFT: [[value.codes for value in values] or None for values in rows],
    }
    return [pa.array(told[field.name], field.type) for field in drift_fields(contract)]


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


def fault_column(units: Iterable[Sequence[Fault]]) -> ArrowColumn:
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
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, type=pa.list_(_FAULT))
