"""Tables that are filled again beside those that are there, and then replace them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_NEW = "__rebuild_"


def new_suffix() -> str:
    """What the names of new tables end with. It differs each time: a table's folder keeps the name of its creation."""
    return f"{_NEW}{datetime.now(UTC):%Y%m%d%H%M%S}"


def begun_suffixes(catalog: "Catalog", table: str) -> list[str]:
    """Those of earlier rebuilds of a table that were interrupted, the newest last."""
    namespace, name = table.split(".")
    names = [found for _, found in catalog.list_tables(namespace)] if catalog.namespace_exists(namespace) else []
    return sorted(found.removeprefix(name) for found in names if found.startswith(name + _NEW))


def put_in_place(catalog: "Catalog", new: str, name: str) -> None:
    """Let a table replace another one, if there is one. The files of that one stay."""
    if catalog.table_exists(name):
        catalog.drop_table(name)
    catalog.rename_table(new, name)
