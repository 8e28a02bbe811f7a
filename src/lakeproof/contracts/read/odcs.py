"""Read a contract from its Open Data Contract Standard v3 file."""

import hashlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from open_data_contract_standard.model import CustomProperty, OpenDataContractStandard, SchemaObject, SchemaProperty

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.model import DecimalType, DriftPolicy, Field, ObjectType, PrimitiveType, live
from lakeproof.contracts.read.breaker import read_breaker
from lakeproof.contracts.read.custom_properties import DRIFT_POLICY, EVENT_TIME, check_names, custom_values, one_of
from lakeproof.contracts.read.derived import check_derived
from lakeproof.contracts.read.fields import ONLY_OF_FIELDS, read_fields
from lakeproof.contracts.read.landing import read_landing
from lakeproof.contracts.read.maintenance import read_maintenance
from lakeproof.contracts.read.retention import read_retention
from lakeproof.contracts.read.silver import read_silver
from lakeproof.contracts.rules.quality import read_rules
from lakeproof.documents.names import OTHER_TABLES, RESERVED, identifier
from lakeproof.documents.problems import (
    ContractError,
    Problems,
    located_at,
    near,
    read_document,
    validated,
)
from lakeproof.documents.source import YamlPath, read_source
from lakeproof.errors import UsageError, expected

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_ROOT: YamlPath = ()
_TABLE: YamlPath = ("schema", 0)
_FIELDS: YamlPath = (*_TABLE, "properties")
_START = "Start it with `apiVersion: v3.2.0` and `kind: DataContract`."
_PAGE = "See docs/contracts/schema.md, or the Open Data Contract Standard v3."
_OPAQUE = ("customProperties", "logicalTypeOptions")  # keys with values of other tools, or options
_KEYS = sorted({*OpenDataContractStandard.model_fields, *SchemaObject.model_fields, *SchemaProperty.model_fields})


def load_contract(folder: Path, stream: str) -> Contract:
    """Read the contract in ``folder/stream.yaml``."""
    return parse_contract(contract_text(folder, stream), str(folder / f"{stream}.yaml"), stream)


def contract_text(folder: Path, stream: str) -> bytes:
    """Return the bytes of ``folder/stream.yaml``."""
    path = folder / f"{stream}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml"))) or "none"
        raise UsageError(
            f"No contract found for the stream {stream!r} at {path}.",
            f"Contracts in this folder: {known}. Run in the project's folder, or set LAKE_CONTRACTS.",
        )
    for file in folder.glob("*.yaml"):
        if file.stem != stream and file.stem.lower() == stream.lower():
            raise UsageError(
                f"A stream cannot be named {stream} beside a stream {file.stem}: SQL ignores case.",
                f"Rename one of the two files in {folder}, and the stream in it.",
            )
    for ending in OTHER_TABLES:
        other = stream.removesuffix(ending)
        if other != stream and (folder / f"{other}.yaml").is_file():
            raise UsageError(
                f"A stream cannot be named {stream} beside a stream {other}, which has tables of that name.",
                f"Rename {path}, and the stream in it.",
            )
    return path.read_bytes()


def parse_contract(text: bytes, origin: str, stream: str | None = None, *, is_recorded: bool = False) -> Contract:
    """Read a contract from the bytes of its file, or of one that was applied and recorded."""
    if text.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):  # YAML may be UTF-16, but the lake records contracts as text
        raise UsageError(f"{origin}: expected UTF-8, got UTF-16.", "Save the file as UTF-8.")

    def read(document: Any, problems: Problems) -> Contract | None:
        return _contract(_plain_enums(document), hashlib.sha256(text).hexdigest(), stream, problems, is_recorded)

    return read_document(text, origin, read, _field_at)


def unjudged(text: bytes, origin: str) -> list[str]:
    """List what is not checked, or probably read otherwise than meant, with the lines in a contract."""
    source = read_source(text, origin)
    found = []
    for place, span in source.keys.items():
        if place[:1] != _TABLE[:1] or "customProperties" in place:
            continue
        parts = [source.document]
        try:
            for step in place:
                parts.append(parts[-1][step])
        except (KeyError, TypeError, IndexError):  # a key that is not text, or a merged one
            continue
        what = (
            _unjudged(place, parts[-1])
            or _unused_position(place, parts)
            or _read_otherwise(place, parts[-1], source.written(place))
        )
        if what:
            field = _field_at(source.document, place)
            found.append(f"{origin}:{span.line}: {f'{field}: ' if field else ''}{what}.")
    return found


def _unjudged(place: YamlPath, part: Any) -> str:
    # Refusing any of these would make recorded contracts unreadable.
    if place[-1] in ("unique", "relationships") and part:
        return f"{place[-1]} is not checked"
    if place[-1] == "enum" and part == []:
        return "the enum is empty, so every value is allowed"
    if place[-3:-1] == ("map", "key") and place[-1] in ONLY_OF_FIELDS and part:
        return f"{place[-1]} is not checked for the keys of a map"
    if place[-2:-1] == ("quality",) and part.get("type") not in ("sql", "text"):
        return f"quality of the type {part.get('type') or 'library'} is not checked"
    return ""


def _unused_position(place: YamlPath, parts: Sequence[Any]) -> str:
    position = parts[-1]
    if place[-1] != "primaryKeyPosition" or not isinstance(position, int) or position < 1:  # -1 means no position
        return ""
    if parts[-2].get("primaryKey") is not True:
        return "primaryKeyPosition is ignored without primaryKey: true"
    others = parts[-3][: place[-2]]
    if any(other.get("primaryKey") is True and other.get("primaryKeyPosition") == position for other in others):
        return f"primaryKeyPosition {position} is duplicate; the order in the file decides"
    return ""


def _read_otherwise(place: YamlPath, part: Any, written: str) -> str:
    if isinstance(part, bool) and "enum" in place and written.lower() not in ("", "true", "false"):
        return f"{written} is read as {str(part).lower()}; as text, it needs quotes"
    if isinstance(part, bool) or not isinstance(part, int) or written in ("", str(part)):
        return ""
    return f"{written} is read as the integer {part}; as text, it needs quotes"


def _plain_enums(part: Any) -> Any:
    """The document with each ``enum: [a]`` in the standard's form ``enum: [{value: a}]``."""
    if isinstance(part, list):
        return [_plain_enums(item) for item in part]
    if not isinstance(part, dict):
        return part
    found = {key: value if key in _OPAQUE else _plain_enums(value) for key, value in part.items()}
    if isinstance(found.get("enum"), list):
        found["enum"] = [item if isinstance(item, dict | list) else {"value": item} for item in found["enum"]]
    return found


def _key_error(error: "ErrorDetails") -> ContractError:
    place = located_at(error)
    name = next((str(step) for step in reversed(place) if isinstance(step, str)), "the file")
    if error["type"] != "extra_forbidden":
        return ContractError(place, f"{name}: {expected(error)}", _PAGE)
    known = near(name, _KEYS)
    hint = f"Did you mean {known}?" if known else "The standard has no such key here. Correct or remove it."
    return ContractError(place, f"unknown key {name!r}.", hint, about_key=True)


def _field_at(document: Any, place: YamlPath) -> str:
    """The dotted path of the field that contains `place`."""
    names = []
    for before, step in zip((None, *place), place, strict=False):
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            break
        if before == "properties" and isinstance(document, dict) and "name" in document:
            names.append(str(document["name"]))
    return ".".join(names)


def _contract(
    raw: Any, digest: str, expected_name: str | None, problems: Problems, is_recorded: bool
) -> Contract | None:
    if not isinstance(raw, dict):
        problems.report(_ROOT, "not a contract: the file has no keys.", _START)
        return None
    document = validated(OpenDataContractStandard, raw, problems, _key_error)
    if document is None:
        return None
    check_names(raw, problems)
    if document.kind != "DataContract" or not (document.apiVersion or "").startswith("v3."):
        key = "apiVersion" if document.kind == "DataContract" else "kind"
        message = "not a data contract of the Open Data Contract Standard v3."
        problems.report((key,), message, _START, lacks=key)
    if not document.version:
        hint = "Add one, like `version: 1.0.0`. Each row records it."
        problems.report(_ROOT, "missing version.", hint, lacks="version")
    if not document.schema_ or len(document.schema_) != 1:
        message = "expected exactly one schema object."
        problems.report(("schema",), message, "Write one file for each stream.")
        return None
    table = document.schema_[0]
    stream = problems.read(_stream, table.name, expected_name) or ""
    properties = table.properties or []
    fields = read_fields(properties, _FIELDS, problems)
    places = {item.name: (*_FIELDS, index) for index, item in enumerate(properties) if item.name}
    check_derived(fields, lambda name: places[name], problems)
    primary_key = _primary_key(properties, fields, places, problems)
    customs = document.customProperties or []
    event_time = problems.read(_event_time, customs, fields, problems) or ""
    _check_partition(event_time, properties, problems)
    return Contract(
        stream=stream,
        version=document.version or "",
        digest=digest,
        fields=fields,
        primary_key=primary_key,
        event_time=event_time,
        drift=problems.read(_drift, customs) or DriftPolicy.FREEZE,
        rules=read_rules(table.quality or [], properties, live(fields), _TABLE, problems),
        silver=read_silver(customs, primary_key, fields, lambda name: places[name], problems),
        breaker=read_breaker(customs, problems),
        retention=read_retention(customs, problems),
        maintenance=read_maintenance(customs, problems),
        landing=read_landing(document.servers or [], customs, problems, is_recorded=is_recorded),
    )


def _stream(name: str | None, expected_name: str | None) -> str:
    stream = identifier(name, (*_TABLE, "name"), "the schema object")
    if stream in RESERVED:
        raise ContractError(
            (*_TABLE, "name"),
            f"a stream cannot be named {stream}: `consumer run {stream}` is a mode of its own.",
            "Use another name, for the stream and for its file.",
        )
    if expected_name not in (None, stream):
        raise ContractError(
            (*_TABLE, "name"),
            f"the schema object is named {stream!r}, but the file is the contract of {expected_name!r}.",
            "Use the same name for both. It is also the name of the tables.",
        )
    return stream


def _primary_key(
    properties: list[SchemaProperty], fields: tuple[Field, ...], places: dict[str, YamlPath], problems: Problems
) -> tuple[str, ...]:
    keys = []
    by_name = {field.name: field for field in fields}
    for item in properties:
        field = by_name.get(item.name or "")
        if not item.primaryKey or field is None:
            continue
        place = places[field.name]
        if not isinstance(field.type, PrimitiveType | DecimalType):
            message = "only a scalar can be in the primary key."
            problems.report((*place, "primaryKey"), message, "Use another field.", about_key=True)
        keys.append((item.primaryKeyPosition or 0, field.name))
    return tuple(name for _, name in sorted(keys, key=lambda key: key[0]))


def _event_time(customs: Sequence[CustomProperty], fields: tuple[Field, ...], problems: Problems) -> str:
    known = list(_timestamps(live(fields)))
    names = ", ".join(known) or "none"
    for _, value, place in custom_values(customs, _ROOT, EVENT_TIME):
        if value not in known and not problems.concern(value):
            raise ContractError(
                place,
                f"the custom property eventTime is {value!r}, which is not a timestamp field.",
                f"Timestamp fields of the contract: {names}. "
                "Numbers and dates can be timestamps, with a format (docs/contracts/schema.md#times).",
            )
        return str(value)
    raise ContractError(
        ("customProperties",),
        "missing custom property eventTime.",
        f"Set it to the timestamp field that says when a record happened. Timestamp fields of the contract: {names}.",
        lacks=EVENT_TIME,
    )


def _check_partition(event_time: str, properties: Sequence[SchemaProperty], problems: Problems) -> None:
    """Report a field with the path of the tables' partition, which Iceberg refuses."""
    *within, name = event_time.split(".")
    place = _FIELDS
    for step in within:
        found = next(((index, item) for index, item in enumerate(properties) if item.name == step), None)
        if found is None:  # could not be read
            return
        place, properties = (*place, found[0], "properties"), found[1].properties or []
    for index, item in enumerate(properties):
        if item.name == f"{name}_day":
            message = f"the name {item.name!r} is reserved: the tables are partitioned by the day of {event_time}."
            problems.report((*place, index, "name"), message, "Use another name.")


def _drift(customs: Sequence[CustomProperty]) -> DriftPolicy:
    for _, value, place in custom_values(customs, _ROOT, DRIFT_POLICY):
        return one_of(DriftPolicy, DRIFT_POLICY, value, place)
    return DriftPolicy.FREEZE


def _timestamps(fields: tuple[Field, ...], within: str = "") -> list[str]:
    found = []
    for field in fields:
        if field.type is PrimitiveType.TIMESTAMP:
            found.append(within + field.name)
        elif isinstance(field.type, ObjectType):
            found += _timestamps(field.type.fields, f"{within}{field.name}.")
    return found
