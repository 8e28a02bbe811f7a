"""Read the properties of a contract: names and types."""

import re
from collections.abc import Sequence

from open_data_contract_standard.model import SchemaProperty

from lakeproof.contracts.constraints import read_allowed, read_constraints
from lakeproof.contracts.model import ISO_8601, DecimalType, Field, ListType, MapType, ObjectType, PrimitiveType, Type
from lakeproof.contracts.read.derived import read_derived
from lakeproof.contracts.read.expected import read_expected
from lakeproof.contracts.read.lifecycle import read_lifecycle
from lakeproof.contracts.times import read_time
from lakeproof.documents.names import identifier
from lakeproof.documents.problems import ContractError, Problems
from lakeproof.documents.source import YamlPath

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)", re.ASCII)
_MAX_DECIMAL_PRECISION = 38
# Physical types by logical type; the first one is the default.
_PHYSICAL = {
    "string": ("string", "scalar"),
    "boolean": ("boolean",),
    "integer": ("long", "int"),
    "number": ("double", "float", "decimal(p,s)"),
    "timestamp": ("timestamp",),
    "date": ("date",),
}
_LOGICAL = f"{', '.join(_PHYSICAL)}, object, array, map"
ONLY_OF_FIELDS = ("required", "enum", "primaryKey", "logicalTypeOptions", "deprecated")
"""Keys that are supported for fields, but not for the items of an array, and the keys and values of a map."""
_TOP = ("schema", 0, "properties", 0)


def read_fields(properties: Sequence[SchemaProperty], place: YamlPath, problems: Problems) -> tuple[Field, ...]:
    """Read the properties at `place`; invalid ones are reported and left out."""
    if not properties:
        problems.report(place, "missing properties.", "List the fields of a record.", lacks="properties")
    fields = []
    folded: dict[str, str] = {}
    for index, item in enumerate(properties):
        field = _field(item, (*place, index), problems)
        if field is None:
            problems.broken |= {item.name} if item.name else set()
            continue
        fields.append(field)
        for at, name in (("name", field.name), *(("customProperties", name) for name in field.former_names)):
            key = name.lower()
            if key not in folded:
                folded[key] = name
            else:
                problems.report(
                    (*place, index, at),
                    f"the fields {folded[key]!r} and {name!r} would be one column in SQL.",
                    "Remove or rename one of them.",
                )
    return tuple(fields)


def _field(item: SchemaProperty, place: YamlPath, problems: Problems) -> Field | None:
    name = problems.read(identifier, item.name, (*place, "name"), "a property")
    kind = problems.read(_type, item, place, problems)
    is_top = len(place) == len(_TOP)
    if item.primaryKey and not is_top:
        problems.report(
            (*place, "primaryKey"),
            "a field inside an object cannot be in the primary key.",
            "Use a top-level field.",
            about_key=True,
        )
    lifecycle = read_lifecycle(item, place, is_top, problems)
    if name is None or kind is None:
        return None
    values = [value.value for value in item.enum or []]
    options, at = item.logicalTypeOptions or {}, (*place, "logicalTypeOptions")
    constraints = read_constraints(options, kind, at, problems)
    time = read_time(options, kind, at, problems)
    if values and time != ISO_8601:
        message = "enum is not supported for a timestamp with a format."
        problems.report((*place, "enum"), message, "Use minimum and maximum.", about_key=True)
    return Field(
        name=name,
        type=kind,
        required=bool(item.required),
        allowed=read_allowed(values, kind, (*place, "enum"), problems) if values else (),
        description=item.description or "",
        constraints=constraints,
        deprecated=lifecycle.deprecated,
        dropped=lifecycle.dropped,
        former_names=lifecycle.former_names,
        derived=problems.read(read_derived, item, kind, place, is_top),
        expected=read_expected(item, kind, constraints, place, problems),
        time=time,
    )


def _type(item: SchemaProperty, place: YamlPath, problems: Problems) -> Type:
    match item.logicalType:
        case "object":
            return ObjectType(read_fields(item.properties or [], (*place, "properties"), problems))
        case "array":
            return ListType(_inner(item.items, "items", "an array needs items.", place, problems))
        case "map":
            return _map(item, place, problems)
    return _scalar(item, place)


def _map(item: SchemaProperty, place: YamlPath, problems: Problems) -> MapType:
    inner = (*place, "map")
    key = item.map.key if item.map else None
    if key and key.logicalType not in (None, "string"):
        problems.report(
            (*inner, "key", "logicalType"), "the keys of a JSON object are strings.", "Write `logicalType: string`."
        )
    return MapType(_inner(item.map.value if item.map else None, "value", "a map needs map.value.", inner, problems))


def _inner(item: SchemaProperty | None, key: str, missing: str, within: YamlPath, problems: Problems) -> Type:
    """The type of array items or map values, which support no other options."""
    place = (*within, key)
    if item is None:
        raise ContractError(place, missing, "Add it, with the type of the items or values.")
    for name in ONLY_OF_FIELDS:
        if getattr(item, name):
            problems.report(
                (*place, name),
                f"{name} is only supported for fields, not for the items of an array or the values of a map.",
                "Remove it, or make the items objects with a field.",
                about_key=True,
            )
    return _type(item, place, problems)


def _scalar(item: SchemaProperty, place: YamlPath) -> PrimitiveType | DecimalType:
    logical = item.logicalType
    if logical is not None and logical not in _PHYSICAL:
        raise ContractError((*place, "logicalType"), f"unknown type {logical!r}.", f"Expected one of: {_LOGICAL}.")
    name = item.physicalType or (_PHYSICAL[logical][0] if logical else "")
    if not name:
        raise ContractError(place, "missing logicalType.", f"Add one of: {_LOGICAL}.", lacks="logicalType")
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
