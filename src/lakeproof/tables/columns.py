"""Columns of a table: which of the expected ones are missing, and adding them, with stable field ids."""

from typing import TYPE_CHECKING

from lakeproof.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_COMMIT_ATTEMPTS = 10


def lacking(table: "Schema", due: "Schema") -> list[str]:
    """Paths of the columns of `due` that a table does not have, or has with another type."""
    kinds = {path: _kind(table, path) for path in table.column_names}
    return [path for path in due.column_names if kinds.get(path) != _kind(due, path)]


def evolve(table: "Table", due: "Schema") -> None:
    """Add the columns of `due` that a table lacks, and widen those that are narrower, in one commit; none is dropped.

    New ones are placed before the table's first column of our own, whose names begin with ``_``.

    Raises
    ------
    UsageError
        A column has a type that cannot be widened to the expected one.
    UnavailableError
        Others commit to the table all the time.
    """
    from pyiceberg.exceptions import CommitFailedException, ResolveError, ValidationError

    for _ in range(_COMMIT_ATTEMPTS):
        has = table.schema()
        names = [field.name for field in has.fields]
        own = next((name for name in names if name.startswith("_")), None)
        new = [field.name for field in due.fields if field.name not in names and not field.name.startswith("_")]
        described = {path for path in has.column_names if has.find_field(path).doc and path in due.column_names}
        try:
            with table.update_schema() as update:
                update.union_by_name(due)
                for name in new:
                    if own:
                        update.move_before(name, own)
                for path in described:
                    if not due.find_field(path).doc:
                        update.update_column(path, doc="")
        except CommitFailedException:  # an append came between: look again
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


def _kind(schema: "Schema", path: str) -> str:
    """The type of a column; of one with columns within, which kind of it."""
    kind = schema.find_field(path).field_type
    return str(kind) if kind.is_primitive else type(kind).__name__
