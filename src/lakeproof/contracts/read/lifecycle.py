"""Read ``deprecated``, ``dropped`` and ``renamedFrom`` of a property."""

from dataclasses import dataclass
from typing import Any

from open_data_contract_standard.model import SchemaProperty

from lakeproof.contracts.read.custom_properties import DROPPED, RENAMED_FROM, custom_values
from lakeproof.documents.names import identifier
from lakeproof.documents.problems import ContractError, Problems
from lakeproof.documents.source import YamlPath


@dataclass(frozen=True)
class Lifecycle:
    """Former names and end of a field, see :class:`lakeproof.contracts.model.Field`."""

    deprecated: bool = False
    dropped: bool = False
    former_names: tuple[str, ...] = ()


def read_lifecycle(item: SchemaProperty, place: YamlPath, is_top: bool, problems: Problems) -> Lifecycle:
    """Read the lifecycle of the property at `place`."""
    dropped = False
    former: tuple[str, ...] = ()
    for _, value, at in custom_values(item.customProperties, place, DROPPED):
        if isinstance(value, bool):
            dropped = value
        else:
            problems.report(at, f"{DROPPED}: expected true or false, got {value!r}.", "Correct it.")
    for _, value, at in custom_values(item.customProperties, place, RENAMED_FROM):
        former = problems.read(_former_names, value, at, is_top) or former
    deprecated = bool(item.deprecated)
    if (deprecated or dropped) and (item.required or item.primaryKey):
        key = "required" if item.required else "primaryKey"
        what = "dropped" if dropped else "deprecated"
        hint = "Remove `required: true` first." if item.required else "The primary key cannot change."
        problems.report((*place, key), f"a {what} field cannot have {key}: true.", hint, about_key=True)
    return Lifecycle(deprecated, dropped, former)


def _former_names(value: Any, place: YamlPath, is_top: bool) -> tuple[str, ...]:
    if not is_top:
        raise ContractError(
            place,
            f"{RENAMED_FROM} is only supported for fields outside of objects, arrays and maps.",
            "Add a field with the new name, and deprecate this one.",
        )
    names = value if isinstance(value, list) and value else [value]
    if not all(isinstance(name, str) for name in names):
        raise ContractError(
            place, f"{RENAMED_FROM}: expected a name, or a list of names, got {value!r}.", "List the oldest name first."
        )
    return tuple(identifier(name, place, "a property") for name in names)
