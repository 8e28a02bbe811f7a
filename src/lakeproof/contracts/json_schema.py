"""A contract as JSON Schema (draft-07), for schema registries and producers.

Every record that goes to bronze is valid. The reverse does not hold: JSON Schema cannot express how a number is
written, which times are valid, or duplicate keys. With the policies rescue and discard, the schema checks only what
makes a dead letter: unknown fields are allowed, and so is any value where null is allowed.
"""

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.model import (
    ISO_8601,
    Bound,
    Constraints,
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
    type_name,
)
from lakeproof.contracts.pattern import portable

_DAY, _TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_OFFSET = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_TIMESTAMP = f"^{_DAY}T{_TIME}{_OFFSET}$"
_DATE = f"^{_DAY}$"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = (-62_135_596_800, 253_402_300_800)  # the years 1 to 9999 in seconds since 1970
_TYPES: dict[PrimitiveType, dict[str, Any]] = {
    PrimitiveType.STRING: {"type": "string"},
    PrimitiveType.BOOLEAN: {"type": "boolean"},
    PrimitiveType.INT: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    PrimitiveType.LONG: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    PrimitiveType.FLOAT: {"type": "number"},
    PrimitiveType.DOUBLE: {"type": "number"},
    PrimitiveType.TIMESTAMP: {"type": "string", "pattern": _TIMESTAMP},
    PrimitiveType.DATE: {"type": "string", "pattern": _DATE},
    PrimitiveType.SCALAR: {"type": ["string", "number", "boolean"]},
}

_GOES = {DriftPolicy.RESCUE: "rescued", DriftPolicy.DISCARD: "discarded"}


def json_schema(contract: Contract) -> dict[str, Any]:
    """Make the JSON Schema of a contract's records."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": contract.stream,
        "description": f"Contract {contract.stream}, version {contract.version}",
        **_of_object(contract.live, contract.drift),
    }


def _of_object(fields: tuple[Field, ...], drift: DriftPolicy) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _of_field(field, drift) for field in fields},
        "additionalProperties": drift is not DriftPolicy.FREEZE,
    }
    if required := [field.name for field in fields if field.required]:
        schema["required"] = required
    return schema


def _of_field(field: Field, drift: DriftPolicy) -> dict[str, Any]:
    description: dict[str, Any] = {"description": field.description} if field.description else {}
    if field.deprecated:
        description["deprecated"] = True  # since 2019-09; validators of draft-07 ignore it
    if not field.required and drift is not DriftPolicy.FREEZE:
        return _optional(field.type, drift) | description
    kind = _of_type(field.type, drift) if field.time == ISO_8601 else _of_time(field.time, field.constraints)
    schema = kind | _of_constraints(field.constraints)
    allowed = [value for text in field.allowed for value in _values(text, field.type)]
    # Validators read 1e400 as infinity, which JSON cannot express: then the schema allows all values.
    if allowed and not any(isinstance(value, float) and math.isinf(value) for value in allowed):
        schema["enum"] = allowed
    schema |= description
    return schema if field.required else _or_null(schema)


def _optional(kind: Type, drift: DriftPolicy) -> dict[str, Any]:
    """Schema of a value that may be null."""
    schema = _of_type(kind, drift)
    if drift is DriftPolicy.FREEZE:
        return _or_null(schema)
    # Only nested values of objects and arrays are checked.
    asked = {"properties", "required", "additionalProperties", "items"}
    return {name: schema[name] for name in schema if name in asked} | {
        "$comment": f"expected: {type_name(kind)}; other values are {_GOES[drift]}"
    }


def _of_type(kind: Type, drift: DriftPolicy) -> dict[str, Any]:
    match kind:
        case ObjectType():
            return _of_object(kind.fields, drift)
        case ListType():
            return {"type": "array", "items": _optional(kind.item, drift)}
        case MapType():
            return {"type": "object", "additionalProperties": _optional(kind.value, drift)}
        case DecimalType():
            # One more than the largest value: validators read doubles, which may be rounded up.
            largest = 10 ** (kind.precision - kind.scale)
            return {"type": "number", "minimum": -largest, "maximum": largest}
        case PrimitiveType():
            return dict(_TYPES[kind])


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    allowed = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return schema | {"type": [*kinds, "null"]} | allowed


def _of_constraints(constraints: Constraints) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for bound, inclusive, exclusive in (
        (constraints.minimum, "minimum", "exclusiveMinimum"),
        (constraints.maximum, "maximum", "exclusiveMaximum"),
    ):
        # JSON Schema has no ranges of times.
        if bound and (number := _number(bound)) is not None:
            found[exclusive if bound.exclusive else inclusive] = number
    pattern = None if constraints.pattern is None else portable(constraints.pattern)
    text = {"minLength": constraints.min_length, "maxLength": constraints.max_length, "pattern": pattern}
    return found | {name: value for name, value in text.items() if value is not None}


def _of_time(form: TimeForm, constraints: Constraints) -> dict[str, Any]:
    per_second = form.format.per_second
    if per_second is None:
        if form.format is TimeFormat.DATE:
            return dict(_TYPES[PrimitiveType.DATE])
        offset = _OFFSET if form.format.has_offset else f"{_OFFSET}?" if form.format.endswith("[XXX]") else ""
        return {"type": "string", "pattern": f"^{_DAY}{' ' if ' ' in form.format else 'T'}{_TIME}{offset}$"}
    least, most = (end * per_second for end in _SECONDS)
    unit = timedelta(seconds=1) / per_second
    if constraints.minimum and isinstance(constraints.minimum.value, datetime):
        least = (constraints.minimum.value - _EPOCH) // unit
    if constraints.maximum and isinstance(constraints.maximum.value, datetime):
        most = -((_EPOCH - constraints.maximum.value) // unit)
    # Whole numbers around the range: validators read numbers as doubles.
    return {"type": "number" if per_second == 1 else "integer", "minimum": least, "maximum": most}


def _number(bound: Bound) -> int | float | None:
    value = bound.value
    if isinstance(value, date):
        return None
    return (int(value) if value == int(value) else float(value)) if isinstance(value, Decimal) else value


def _values(text: str, kind: Type) -> list[Any]:
    """Return the JSON values of an allowed text: for a scalar, both ``"1"`` and 1; infinity for a number like 1e400."""
    values: list[Any] = []
    if kind in (PrimitiveType.STRING, PrimitiveType.SCALAR, PrimitiveType.TIMESTAMP, PrimitiveType.DATE):
        values.append(text)
    if kind not in (PrimitiveType.STRING, PrimitiveType.TIMESTAMP, PrimitiveType.DATE):
        try:
            value = json.loads(text, parse_constant=lambda _: None)  # NaN is text, and no number of JSON
        except ValueError:
            return values
        if value is not None and not isinstance(value, str | list | dict):
            values.append(value)
    return values
