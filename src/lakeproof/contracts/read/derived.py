"""Read the custom property ``derived`` of fields that are computed at ingestion."""

import re
from collections.abc import Callable
from typing import Any

from open_data_contract_standard.model import SchemaProperty

from lakeproof.contracts.model import Derived, DerivedFrom, Field, PrimitiveType, Type, type_name
from lakeproof.contracts.read.custom_properties import DERIVED, custom_values
from lakeproof.documents.problems import ContractError, Problems
from lakeproof.documents.source import YamlPath

_FORM = re.compile(r"([A-Za-z]+)(?:\(([A-Za-z][A-Za-z0-9_]*)\))?")
_FORMS = {
    DerivedFrom.CORRELATION: "correlationId(FIELD)",
    DerivedFrom.SCHEMA: "schemaId",
    DerivedFrom.INGESTION: "ingestionTimestamp",
}
_TYPES = {
    DerivedFrom.CORRELATION: PrimitiveType.STRING,
    DerivedFrom.SCHEMA: PrimitiveType.INT,
    DerivedFrom.INGESTION: PrimitiveType.TIMESTAMP,
}
_IDENTIFIES = (PrimitiveType.STRING, PrimitiveType.INT, PrimitiveType.LONG)


def read_derived(item: SchemaProperty, kind: Type, place: YamlPath, is_top: bool) -> Derived | None:
    """Read how the property at `place` is derived; None if it is not."""
    found = custom_values(item.customProperties, place, DERIVED)
    if not found:
        return None
    _, value, at = found[0]
    if not is_top:
        raise ContractError(at, f"{DERIVED} is only supported for fields outside of objects.", "Move the field.")
    derived = _derived(value, at)
    if kind is not _TYPES[derived.source]:
        raise ContractError(
            at,
            f"{derived} is {type_name(_TYPES[derived.source])}, but the field is {type_name(kind)}.",
            "Change the type of the field.",
        )
    if derived.source is DerivedFrom.SCHEMA and item.required:
        raise ContractError(
            (*place, "required"),
            f"{derived} cannot be required: it is null without a schema registry.",
            "Remove `required: true`.",
            about_key=True,
        )
    for key in ("enum", "logicalTypeOptions"):
        if getattr(item, key):
            raise ContractError(
                (*place, key), f"{key} is not supported for a derived field.", "Remove it.", about_key=True
            )
    return derived


def check_derived(fields: tuple[Field, ...], place_of: Callable[[str], YamlPath], problems: Problems) -> None:
    """Check that correlation ids are derived from fields that every record must have."""
    known = {field.name: field for field in fields}
    for field in fields:
        if not field.derived or not field.derived.field or field.derived.field in problems.broken:
            continue
        used = known.get(field.derived.field)
        if used is None or used.derived or used.dropped or not used.required or used.type not in _IDENTIFIES:
            hint = "Use a required string or integer field that is not inside an object."
            message = f"{field.derived}: {field.derived.field!r} does not identify a record."
            problems.report((*place_of(field.name), "customProperties"), message, hint)


def _derived(value: Any, place: YamlPath) -> Derived:
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    for source, form in _FORMS.items():
        if match and match[1] == source and bool(match[2]) is ("(" in form):
            return Derived(source, match[2] or "")
    raise ContractError(place, f"unknown {DERIVED} {value!r}.", f"Expected one of: {', '.join(_FORMS.values())}.")
