"""Read a contract from its Open Data Contract Standard v3 file."""

import hashlib
import re
from pathlib import Path
from typing import Any

import yaml
from open_data_contract_standard.model import OpenDataContractStandard, SchemaProperty
from pydantic import ValidationError

from lakeproof.contracts.model import (
    Contract,
    DecimalType,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Type,
)
from lakeproof.errors import UsageError

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MAX_DECIMAL_PRECISION = 38
_TAKEN_NAMES = {"raw", "reasons"}
# The column for a logical type whose physicalType is not given.
_LOGICAL_DEFAULTS = {
    "string": "string",
    "boolean": "boolean",
    "integer": "long",
    "number": "double",
    "timestamp": "timestamp",
    "date": "date",
}


def load_contract(folder: Path, stream: str) -> Contract:
    """Read ``folder/stream.yaml``.

    Raises
    ------
    UsageError
        There is no such file, or it is not a contract that this project can hold data to.
    """
    return parse_contract(contract_text(folder, stream), str(folder / f"{stream}.yaml"))


def contract_text(folder: Path, stream: str) -> bytes:
    """Return the bytes of ``folder/stream.yaml``.

    Raises
    ------
    UsageError
        There is no such file.
    """
    path = folder / f"{stream}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml"))) or "none"
        raise UsageError(
            f"There is no contract for the stream {stream!r} at {path}.",
            f"Contracts there: {known}. Run in the project's folder, or set LAKE_CONTRACTS.",
        )
    return path.read_bytes()


def parse_contract(text: bytes, origin: str) -> Contract:
    """Read a contract from the bytes of its file.

    Parameters
    ----------
    text
        The file's bytes: YAML in UTF-8.
    origin
        Where they came from, for messages.

    Raises
    ------
    UsageError
        The text is not YAML, not a data contract, or asks for what this project cannot do.
    """
    try:
        document = OpenDataContractStandard.model_validate(_yaml(text, origin))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{origin}: {place}: {first['msg']}.", "See the Open Data Contract Standard v3.") from None
    try:
        return _contract(document, hashlib.sha256(text).hexdigest())
    except _ContractError as error:
        raise UsageError(f"{origin}: {error}", "Correct the contract.") from None


def _yaml(text: bytes, origin: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{origin}:{line}: not YAML: {error.problem}.", "Correct the file.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # no text, a date like 2026-99-99, endless nesting
        problem = str(error).splitlines()[0]
        raise UsageError(f"{origin}: not YAML: {problem}.", "Correct the file.") from None


class _ContractError(Exception):
    pass


def _contract(document: OpenDataContractStandard, digest: str) -> Contract:
    if not document.version:
        raise _ContractError("it has no version.")
    if not document.schema_ or len(document.schema_) != 1:
        raise _ContractError("it must have exactly one schema object: one file per stream.")
    table = document.schema_[0]
    stream = _identifier(table.name, "the schema object")
    properties = table.properties or []
    fields = _fields(properties, "")
    if taken := {field.name.lower() for field in fields} & _TAKEN_NAMES:
        raise _ContractError(f"the name {min(taken)!r} is taken: judged units have a column of that name.")
    keys = sorted((p for p in properties if p.primaryKey), key=lambda p: p.primaryKeyPosition or 0)
    if not keys:
        raise _ContractError("no property has primaryKey: true; records could not be told apart.")
    event_time = _custom(document, "eventTime")
    if event_time not in {field.name for field in fields if field.type is PrimitiveType.TIMESTAMP}:
        raise _ContractError(f"the custom property eventTime names {event_time!r}, which is not a timestamp field.")
    return Contract(
        stream=stream,
        version=document.version,
        digest=digest,
        fields=fields,
        primary_key=tuple(str(key.name) for key in keys),
        event_time=str(event_time),
    )


def _fields(properties: list[SchemaProperty], within: str) -> tuple[Field, ...]:
    fields = tuple(_field(item, within) for item in properties)
    folded: dict[str, str] = {}
    for field in fields:
        twin = folded.setdefault(field.name.lower(), field.name)
        if twin is not field.name:
            raise _ContractError(f"the fields {twin!r} and {field.name!r} would be one column in SQL.")
    if not fields:
        raise _ContractError(f"{within or 'the schema object'} has no properties.")
    return fields


def _field(item: SchemaProperty, within: str) -> Field:
    name = _identifier(item.name, f"a property of {within or 'the schema object'}")
    path = f"{within}.{name}" if within else name
    kind = _type(item, path)
    if item.enum and isinstance(kind, ObjectType | ListType | MapType):
        raise _ContractError(f"{path} has an enum, which only a scalar can have.")
    return Field(
        name=name,
        type=kind,
        required=bool(item.required),
        allowed=tuple(str(value.value) for value in item.enum or []),
        description=item.description or "",
    )


def _type(item: SchemaProperty, path: str) -> Type:
    if item.logicalType == "object":
        return ObjectType(_fields(item.properties or [], path))
    if item.logicalType == "array":
        if item.items is None:
            raise _ContractError(f"{path} is an array without items.")
        return ListType(_type(item.items, f"{path}[]"))
    if item.logicalType == "map":
        if item.map is None or item.map.value is None:
            raise _ContractError(f"{path} is a map without map.value.")
        return MapType(_type(item.map.value, f"{path}.*"))
    name = item.physicalType or _LOGICAL_DEFAULTS.get(item.logicalType or "", "")
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        if not 0 <= scale <= precision <= _MAX_DECIMAL_PRECISION or precision == 0:
            raise _ContractError(f"{path}: {name} is not possible; at most {_MAX_DECIMAL_PRECISION} digits.")
        return DecimalType(precision, scale)
    try:
        return PrimitiveType(name)
    except ValueError:
        known = ", ".join(PrimitiveType)
        raise _ContractError(
            f"{path}: unknown type {name or item.logicalType!r}; known are {known}, decimal(p,s), object, array, map."
        ) from None


def _identifier(name: str | None, what: str) -> str:
    if not name or not _IDENTIFIER.fullmatch(name):
        raise _ContractError(f"{what} is named {name!r}; use letters, digits and _, beginning with a letter.")
    return name


def _custom(document: OpenDataContractStandard, name: str) -> Any:
    for custom in document.customProperties or []:
        if custom.property == name:
            return custom.value
    return None
