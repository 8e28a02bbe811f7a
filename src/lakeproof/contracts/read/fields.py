"""Read the properties of a contract: names and types."""

import re
from collections.abc import Sequence

from open_data_contract_standard.model import SchemaProperty

from lakeproof.contracts.constraints import ContractError, read_allowed, read_constraints
from lakeproof.contracts.model import DecimalType, Field, ListType, MapType, ObjectType, PrimitiveType, Type
from lakeproof.contracts.read.source import Place

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*", re.IGNORECASE | re.ASCII)
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)", re.ASCII)
_MAX_DECIMAL_PRECISION = 38
# What a logical type may be kept as; the first where physicalType is not given.
_PHYSICAL = {
    "string": ("string", "scalar"),
    "boolean": ("boolean",),
    "integer": ("long", "int"),
    "number": ("double", "float", "decimal(p,s)"),
    "timestamp": ("timestamp",),
    "date": ("date",),
}
_LOGICAL = f"{', '.join(_PHYSICAL)}, object, array, map"


def read_fields(properties: Sequence[SchemaProperty], place: Place) -> tuple[Field, ...]:
    """Read the properties at `place`.

    Raises
    ------
    ContractError
        One of them is not possible.
    """
    if not properties:
        raise ContractError(place, "missing properties.", "List the fields of a record.")
    fields = tuple(_field(item, (*place, index)) for index, item in enumerate(properties))
    folded: dict[str, str] = {}
    for index, field in enumerate(fields):
        twin = folded.setdefault(field.name.lower(), field.name)
        if twin is not field.name:
            raise ContractError(
                (*place, index, "name"),
                f"the fields {twin!r} and {field.name!r} would be one column in SQL.",
                "Remove or rename one of them.",
            )
    return fields


def identifier(name: str | None, place: Place, what: str) -> str:
    """Check a name that becomes a table's or a column's.

    Raises
    ------
    ContractError
        It cannot.
    """
    if not name or not _IDENTIFIER.fullmatch(name):
        raise ContractError(
            place,
            f"{name!r} is not a valid name for {what}.",
            "Use letters, digits and _, starting with a letter. Names that start with _ are lakeproof's own columns.",
        )
    return name


def _field(item: SchemaProperty, place: Place) -> Field:
    name = identifier(item.name, (*place, "name"), "a property")
    kind = _type(item, place)
    if item.primaryKey and len(place) > len(("schema", 0, "properties", 0)):
        raise ContractError(
            (*place, "primaryKey"), "a field inside an object cannot be in the primary key.", "Use a top-level field."
        )
    return Field(
        name=name,
        type=kind,
        required=bool(item.required),
        allowed=read_allowed([value.value for value in item.enum or []], kind, (*place, "enum")) if item.enum else (),
        description=item.description or "",
        constraints=read_constraints(item.logicalTypeOptions or {}, kind, (*place, "logicalTypeOptions")),
    )


def _type(item: SchemaProperty, place: Place) -> Type:
    match item.logicalType:
        case "object":
            return ObjectType(read_fields(item.properties or [], (*place, "properties")))
        case "array":
            return ListType(_inner(item.items, "an array needs items.", (*place, "items")))
        case "map":
            return _map(item, place)
    return _scalar(item, place)


def _map(item: SchemaProperty, place: Place) -> MapType:
    inner = (*place, "map")
    key = item.map.key if item.map else None
    if key and key.logicalType not in (None, "string"):
        raise ContractError(
            (*inner, "key", "logicalType"), "the keys of a JSON object are strings.", "Write `logicalType: string`."
        )
    return MapType(_inner(item.map.value if item.map else None, "a map needs map.value.", (*inner, "value")))


def _inner(item: SchemaProperty | None, missing: str, place: Place) -> Type:
    """The type of a list's items or of a map's values, of which nothing else can be asked."""
    if item is None:
        raise ContractError(place, missing, "Add it, with the type of the items or values.")
    for name in ("required", "enum", "primaryKey", "logicalTypeOptions"):
        if getattr(item, name):
            raise ContractError(
                (*place, name),
                f"{name} is only supported for fields, not for the items of an array or the values of a map.",
                "Remove it, or make the items objects with a field.",
            )
    return _type(item, place)


def _scalar(item: SchemaProperty, place: Place) -> PrimitiveType | DecimalType:
    logical = item.logicalType
    if logical is not None and logical not in _PHYSICAL:
        raise ContractError((*place, "logicalType"), f"unknown type {logical!r}.", f"Expected one of: {_LOGICAL}.")
    name = item.physicalType or (_PHYSICAL[logical][0] if logical else "")
    if not name:
        raise ContractError(place, "missing logicalType.", f"Add one of: {_LOGICAL}.")
    match = _DECIMAL.fullmatch(name)
    form = "decimal(p,s)" if match else name
    known = _PHYSICAL[logical] if logical else tuple(kept for forms in _PHYSICAL.values() for kept in forms)
    if form not in known:
        raise ContractError(
            (*place, "physicalType"),
            f"unknown type {name!r}{f' for a {logical}' if logical else ''}.",
            f"Expected one of: {', '.join(known)}.",
        )
    if not match:
        return PrimitiveType(name)
    precision, scale = int(match[1]), int(match[2])
    if not 0 <= scale <= precision <= _MAX_DECIMAL_PRECISION or precision == 0:
        raise ContractError(
            (*place, "physicalType"),
            f"invalid type {name!r}.",
            f"Use a precision from 1 to {_MAX_DECIMAL_PRECISION}, and a scale that is not greater than the precision.",
        )
    return DecimalType(precision, scale)
