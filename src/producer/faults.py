"""Typical faults of producers. Each function breaks a valid input and returns the reason."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from lakeproof.contracts import Contract, DecimalType, Field, ListType, MapType, ObjectType, PrimitiveType, Type
from lakeproof.reasons import Reason

_UNKNOWN_NAMES = ("session_id", "referrer", "experiment", "debug", "app_version", "ip_address")
_UNKNOWN_VALUES = (None, True, 7, 0.25, "x", "", [1, "two"], {"nested": {"deeper": None}})

# Examples of each kind of JSON token, without null, which is valid in optional fields.
_SAMPLES: dict[str, tuple[Any, ...]] = {
    "string": ("oops", "1"),
    "number": (17, -3.5),
    "boolean": (True, False),
    "object": ({}, {"value": 1}),
    "array": ([], ["value"]),
}
_KINDS_OF_PRIMITIVE: dict[PrimitiveType, tuple[str, ...]] = {
    PrimitiveType.STRING: ("string",),
    PrimitiveType.TIMESTAMP: ("string",),
    PrimitiveType.DATE: ("string",),
    PrimitiveType.BOOLEAN: ("boolean",),
    PrimitiveType.INT: ("number",),
    PrimitiveType.LONG: ("number",),
    PrimitiveType.FLOAT: ("number",),
    PrimitiveType.DOUBLE: ("number",),
    PrimitiveType.SCALAR: ("string", "number", "boolean"),
}
# A time without a date, a date without a time, no zone, an invalid month, …
_NO_TIMESTAMPS = ("12:30", "2024", "2026-01-31", "2026-01-31T12:30:00", "2026-13-01T00:00:00Z", "31/01/2026", "now", "")

_FAULTS_OF_VALUES = (Reason.WRONG_TYPE, Reason.WRONG_FORMAT)
_SCHEMA_FAULTS = (Reason.MISSING_FIELD, Reason.NULL_FIELD, *_FAULTS_OF_VALUES)


@dataclass(frozen=True)
class Chances:
    """Probabilities of faults: corruption per batch, the others per record."""

    corruption: float
    invalid_schema: float
    extra_field: float
    duplicate: float


def part_of(contract: Contract, inside: str) -> Contract:
    """Return the contract of a nested object; the whole contract if `inside` is empty."""
    if not inside:
        return contract
    kind = next(field.type for field in contract if field.name == inside)
    if not isinstance(kind, ObjectType):
        raise TypeError(f"{inside} is no object.")
    return replace(contract, fields=kind.fields, event_time=contract.event_time.removeprefix(f"{inside}."))


def break_schema(record: Mapping[str, Any], contract: Contract, rng: Random) -> tuple[dict[str, Any], Reason]:
    """Break one field of a valid record; return the record and the reason."""
    present = [field for field in contract if field.name in record]
    required = [field for field in present if field.required]
    reason = rng.choice(_SCHEMA_FAULTS if required else _FAULTS_OF_VALUES)
    match reason:
        case Reason.MISSING_FIELD:
            dropped = rng.choice(required).name
            return {name: value for name, value in record.items() if name != dropped}, reason
        case Reason.NULL_FIELD:
            return {**record, rng.choice(required).name: None}, reason
        case Reason.WRONG_TYPE:
            field: Field = rng.choice(present)
            return {**record, field.name: _wrong_type(field.type, record[field.name], rng)}, reason
        case _:
            return {**record, contract.event_time: rng.choice(_NO_TIMESTAMPS)}, reason


def add_unknown_field(record: Mapping[str, Any], contract: Contract, rng: Random) -> tuple[dict[str, Any], Reason]:
    """Add an unknown field, as the first or last field; return the record and the reason."""
    known = {field.name.lower() for field in contract}
    extra = {rng.choice([name for name in _UNKNOWN_NAMES if name not in known]): rng.choice(_UNKNOWN_VALUES)}
    return ({**extra, **record} if rng.random() < 0.5 else {**record, **extra}), Reason.UNKNOWN_FIELD


def cut_short(batch: bytes, rng: Random) -> tuple[bytes, Reason]:
    """Truncate a batch to at least 1 byte, so that it cannot be valid.

    A batch of lines is cut within the first line: otherwise, the complete lines would still be records.
    """
    first_line = batch.partition(b"\n")[0]
    return batch[: rng.randrange(1, len(first_line))], Reason.CORRUPT_BATCH


def _wrong_type(kind: Type, value: Any, rng: Random) -> Any:
    # In a map, the fault may be in one of its values.
    if isinstance(kind, MapType) and value and rng.random() < 0.5:
        name = rng.choice(list(value))
        return {**value, name: _wrong_type(kind.value, value[name], rng)}
    wrong = [name for name in _SAMPLES if name not in _kinds(kind)]
    return rng.choice(_SAMPLES[rng.choice(wrong)])


def _kinds(kind: Type) -> tuple[str, ...]:
    match kind:
        case PrimitiveType():
            return _KINDS_OF_PRIMITIVE[kind]
        case DecimalType():
            return ("number",)
        case MapType() | ObjectType():
            return ("object",)
        case ListType():
            return ("array",)
