"""Read a contract from its Open Data Contract Standard v3 file."""

import hashlib
from pathlib import Path
from typing import Any

from open_data_contract_standard.model import OpenDataContractStandard, SchemaProperty
from pydantic import ValidationError

from lakeproof.contracts.constraints import ContractError
from lakeproof.contracts.contract import Contract
from lakeproof.contracts.model import DecimalType, DriftPolicy, Field, ObjectType, PrimitiveType
from lakeproof.contracts.read.custom_properties import DRIFT_POLICY, EVENT_TIME, check_names
from lakeproof.contracts.read.fields import identifier, read_fields
from lakeproof.contracts.read.silver import read_silver
from lakeproof.contracts.read.source import Place, read_source
from lakeproof.contracts.rules.read import read_rules
from lakeproof.errors import UsageError

_ROOT: Place = ()
_TABLE: Place = ("schema", 0)
_FIELDS: Place = (*_TABLE, "properties")


def load_contract(folder: Path, stream: str) -> Contract:
    """Read ``folder/stream.yaml``.

    Raises
    ------
    UsageError
        There is no such file, or it is not a contract that this project can hold data to.
    """
    return parse_contract(contract_text(folder, stream), str(folder / f"{stream}.yaml"), stream)


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
            f"No contract found for the stream {stream!r} at {path}.",
            f"Contracts in this folder: {known}. Run in the project's folder, or set LAKE_CONTRACTS.",
        )
    return path.read_bytes()


def parse_contract(text: bytes, origin: str, stream: str | None = None) -> Contract:
    """Read a contract from the bytes of its file.

    Parameters
    ----------
    text
        The file's bytes: YAML in UTF-8.
    origin
        Where they came from, for messages.
    stream
        The stream that it must be the contract of; None for any.

    Raises
    ------
    UsageError
        The text is not YAML, not a data contract, or asks for what this project cannot do. It names the line and the
        field.
    """
    source = read_source(text, origin)
    try:
        document = _validated(source.document)
        check_names(source.document)
        return _contract(document, hashlib.sha256(text).hexdigest(), stream)
    except ContractError as error:
        field = _field_at(source.document, error.place)
        raise UsageError(
            f"{origin}:{source.line(error.place)}: {f'{field}: ' if field else ''}{error.message}", error.hint
        ) from None


def unjudged(text: bytes, origin: str) -> list[str]:
    """Tell, with their lines, the parts of a contract that ask something of the data and are not judged here."""
    source = read_source(text, origin)
    found = []
    for place, line in source.lines.items():
        part = source.document
        for step in place:
            part = part[step]
        what = _unjudged(place, part)
        if what:
            field = _field_at(source.document, place)
            found.append(f"{origin}:{line}: {f'{field}: ' if field else ''}{what} is not checked.")
    return found


def _unjudged(place: Place, part: Any) -> str:
    if place[:1] != _TABLE[:1] or "customProperties" in place:
        return ""
    if place[-1] in ("unique", "relationships") and part:
        return str(place[-1])
    if place[-2:-1] == ("quality",) and part.get("type") not in ("sql", "text"):
        return f"quality of the type {part.get('type') or 'library'}"
    return ""


def _validated(document: Any) -> OpenDataContractStandard:
    if not isinstance(document, dict):
        raise ContractError(
            _ROOT,
            "not a contract: the file has no keys.",
            "Start it with `apiVersion: v3.2.0` and `kind: DataContract`.",
        )
    try:
        return OpenDataContractStandard.model_validate(document, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = first["loc"]
        name = place[-1] if place else "the file"
        if first["type"] == "extra_forbidden":
            raise ContractError(
                place, f"unknown key {name!r}.", "The standard has no such key here. Correct or remove it."
            ) from None
        raise ContractError(
            place, f"{name}: {first['msg']}.", "See docs/contracts.md, or the Open Data Contract Standard v3."
        ) from None


def _field_at(document: Any, place: Place) -> str:
    """The path of the field that `place` is in: its name, and those of the objects around it."""
    names = []
    for before, step in zip((None, *place), place, strict=False):
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            break
        if before == "properties" and isinstance(document, dict) and "name" in document:
            names.append(str(document["name"]))
    return ".".join(names)


def _contract(document: OpenDataContractStandard, digest: str, due: str | None) -> Contract:
    if document.kind != "DataContract" or not (document.apiVersion or "").startswith("v3."):
        raise ContractError(
            ("apiVersion",) if document.kind == "DataContract" else ("kind",),
            "not a data contract of the Open Data Contract Standard v3.",
            "Start it with `apiVersion: v3.2.0` and `kind: DataContract`.",
        )
    if not document.version:
        raise ContractError(_ROOT, "missing version.", "Add one, like `version: 1.0.0`. Each row records it.")
    if not document.schema_ or len(document.schema_) != 1:
        raise ContractError(("schema",), "expected exactly one schema object.", "Write one file for each stream.")
    table = document.schema_[0]
    stream = identifier(table.name, (*_TABLE, "name"), "the schema object")
    if due not in (None, stream):
        raise ContractError(
            (*_TABLE, "name"),
            f"the schema object is named {stream!r}, but the file is the contract of {due!r}.",
            "Use the same name for both. It is also the name of the tables.",
        )
    properties = table.properties or []
    fields = read_fields(properties, _FIELDS)
    primary_key = _primary_key(properties, fields)
    return Contract(
        stream=stream,
        version=document.version,
        digest=digest,
        fields=fields,
        primary_key=primary_key,
        event_time=_event_time(document, fields),
        rules=read_rules(table.quality or [], properties, fields, _TABLE),
        drift=_drift(document),
        silver=read_silver(document.customProperties or [], primary_key, fields, _FIELDS),
    )


def _primary_key(properties: list[SchemaProperty], fields: tuple[Field, ...]) -> tuple[str, ...]:
    keys = []
    for index, (item, field) in enumerate(zip(properties, fields, strict=True)):
        if not item.primaryKey:
            continue
        if not isinstance(field.type, PrimitiveType | DecimalType):
            raise ContractError(
                (*_FIELDS, index, "primaryKey"), "only a scalar can be in the primary key.", "Use another field."
            )
        keys.append((item.primaryKeyPosition or 0, field.name))
    return tuple(name for _, name in sorted(keys, key=lambda key: key[0]))


def _event_time(document: OpenDataContractStandard, fields: tuple[Field, ...]) -> str:
    known = list(_timestamps(fields))
    names = ", ".join(known) or "none"
    for index, custom in enumerate(document.customProperties or []):
        if custom.property == EVENT_TIME:
            if custom.value not in known:
                raise ContractError(
                    ("customProperties", index, "value"),
                    f"the custom property eventTime is {custom.value!r}, which is not a timestamp field.",
                    f"Timestamp fields of the contract: {names}.",
                )
            return str(custom.value)
    raise ContractError(
        ("customProperties",),
        "missing custom property eventTime.",
        f"Set it to the timestamp field that says when a record happened. Timestamp fields of the contract: {names}.",
    )


def _drift(document: OpenDataContractStandard) -> DriftPolicy:
    for index, custom in enumerate(document.customProperties or []):
        if custom.property == DRIFT_POLICY:
            if custom.value not in list(DriftPolicy):
                raise ContractError(
                    ("customProperties", index, "value"),
                    f"unknown driftPolicy {custom.value!r}.",
                    f"Expected one of: {', '.join(DriftPolicy)}.",
                )
            return DriftPolicy(custom.value)
    return DriftPolicy.FREEZE


def _timestamps(fields: tuple[Field, ...], within: str = "") -> list[str]:
    found = []
    for field in fields:
        if field.type is PrimitiveType.TIMESTAMP:
            found.append(within + field.name)
        elif isinstance(field.type, ObjectType):
            found += _timestamps(field.type.fields, f"{within}{field.name}.")
    return found
