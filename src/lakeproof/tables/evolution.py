"""Schema evolution of tables with stable field ids."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.tables.names import RENAMED

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_COMMIT_ATTEMPTS = 10


def lacking(table: "Schema", target: "Schema") -> list[str]:
    """Return paths of columns of `target` that a table lacks or has with another type."""
    kinds = {path: _kind(table, path) for path in table.column_names}
    return [path for path in target.column_names if kinds.get(path) != _kind(target, path)]


def wider(table: "Schema", target: "Schema") -> list[str]:
    """Return paths of columns that a table has with a wider type than `target`."""
    has = table.column_names
    return [path for path in lacking(table, target) if path in has and _can_widen(target, table, path)]


def unsuitable(table: "Schema", target: "Schema") -> list[str]:
    """Return paths of columns whose type in a table is not that of `target`, nor wider, nor can be widened to it."""
    has, wide = table.column_names, wider(table, target)
    differ = [path for path in lacking(table, target) if path in has and path not in wide]
    return [path for path in differ if not _can_widen(table, target, path)]


def evolve(
    table: "Table",
    target: "Schema",
    renamed: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Rename, add and widen columns in one commit, so that a table follows a schema, and set missing properties.

    New columns are placed before the first of lakeproof's own columns, whose names begin with ``_``.
    """
    from pyiceberg.exceptions import CommitFailedException, ResolveError, ValidationError

    for _ in range(_COMMIT_ATTEMPTS):
        has = table.schema()
        names = [field.name for field in has.fields]
        pending = {old: new for old, new in (renamed or {}).items() if old in names and new not in names}
        own = next((name for name in names if name.startswith("_")), None)
        before = _with_names(target, {new: old for old, new in pending.items()})
        new = [field.name for field in before.fields if field.name not in names and not field.name.startswith("_")]
        described = {path for path in has.column_names if has.find_field(path).doc and path in before.column_names}
        try:
            with table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(before)
                    for name in new:
                        if own:
                            update.move_before(name, own)
                    for path in described:
                        if not before.find_field(path).doc:
                            update.update_column(path, doc="")
                    for old, name in pending.items():
                        update.rename_column(old, name)
                lacks = {name: value for name, value in (properties or {}).items() if name not in table.properties}
                expected = renaming(renamed) | lacks
                if not expected.items() <= table.properties.items():
                    transaction.set_properties(expected)
        except CommitFailedException:  # a concurrent append: retry
            table.refresh()
        except (ResolveError, ValidationError, ValueError) as error:
            raise UsageError(
                f"Cannot change the table {'.'.join(table.name())}: {str(error).splitlines()[0]}.",
                "Rename the field, or restore its old type.",
            ) from error
        else:
            return
    raise UnavailableError(
        f"Cannot commit to the table {'.'.join(table.name())}: other writers keep changing it.", "Try again."
    )


def renaming(renamed: Mapping[str, str] | None) -> dict[str, str]:
    """Return the table property that records renamed columns; empty without any."""
    return {RENAMED: json.dumps(renamed, sort_keys=True)} if renamed else {}


def renamed_columns(properties: Mapping[str, str]) -> dict[str, str]:
    """Return current names of renamed columns by former name, from the table's properties."""
    found: dict[str, str] = json.loads(properties.get(RENAMED) or "{}")
    return found


def _with_names(schema: "Schema", names: Mapping[str, str]) -> "Schema":
    """Return a copy of a schema with some columns renamed."""
    from pyiceberg.schema import Schema

    return Schema(
        *(field.model_copy(update={"name": names.get(field.name, field.name)}) for field in schema.fields),
        schema_id=schema.schema_id,
    )


def _kind(schema: "Schema", path: str) -> str:
    """Return the type of a column; for nested types, only the kind."""
    kind = schema.find_field(path).field_type
    return str(kind) if kind.is_primitive else type(kind).__name__


def _can_widen(before: "Schema", after: "Schema", path: str) -> bool:
    """Return whether Iceberg can change the type of a column from one schema to the other."""
    from pyiceberg.exceptions import ResolveError
    from pyiceberg.schema import promote

    old, new = before.find_type(path), after.find_type(path)
    try:
        promote(old, new)
    except ResolveError:
        return False
    return getattr(old, "scale", None) == getattr(new, "scale", None)  # PyIceberg does not compare scales
