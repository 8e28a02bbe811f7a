"""Rebuild the tables of a layer: fill new tables beside those that readers use, then swap them in."""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any

import structlog
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.iceberg.marker import MarkerLostError
from consumer.layers.base import Layer, OldRulesError, take
from lakeproof.catalog import catalog_errors, open_catalog, replace_tables
from lakeproof.errors import UsageError
from lakeproof.references import GoneError, is_sql, newest_metadata, swap_metadata
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease, lease
from lakeproof.tables.names import MARKER, REBUILDING, REPLACED

log = structlog.get_logger()


def rebuild(
    settings: Settings,
    layer: Layer[Any],
    session: Callable[[], SparkSession],
    prepare: Callable[[Catalog], object] | None = None,
) -> str:
    """Fill the tables of a layer again; return a line that describes the result.

    `prepare` is called once no other program can fill them. The source may grow meanwhile: the next run of the consumer
    resumes from the end of the rebuild.
    """
    with lease(settings.state.database, layer.lease_name) as held:
        with catalog_errors():
            catalog = open_catalog(settings)
            if not catalog.table_exists(layer.source):
                raise UsageError(f"{layer.source} does not exist yet.", f"Run `consumer run {layer.stream}` first.")
            if prepare:
                prepare(catalog)
            if not layer.resumes:
                drop_begun(catalog, layer)
            begun = _begun_suffixes(catalog, layer.tables[-1])
            beside = layer.beside(begun[-1] if begun else new_suffix())
            is_filled = _is_replacing(catalog, beside.tables)
        if not is_filled:
            spark = session()
            try:
                _fill(catalog, beside, spark, held)
            except (MarkerLostError, OldRulesError) as error:
                if not begun:
                    raise
                log.warning("an interrupted rebuild cannot be continued and starts again", why=error.message)
                with catalog_errors():
                    drop_begun(catalog, layer)
                beside = layer.beside(new_suffix())
                _fill(catalog, beside, spark, held)
        with catalog_errors():
            pairs = zip(beside.tables, layer.tables, strict=True)
            replacing = {new: name for new, name in pairs if catalog.table_exists(new)}
            for new, name in replacing.items():
                _mark_replaced(catalog, name, new)
            replace_tables(catalog, replacing)
    *others, first = layer.tables
    tables = " and ".join(filter(None, [", ".join([first, *others[:0:-1]]), *others[:1]]))
    return f"Rebuilt {tables} from {layer.source}. `consumer maintain` removes the files of the old tables later."


def new_suffix() -> str:
    """Return a new suffix for names of tables. Each is different: a table's folder keeps the name of its creation."""
    return f"{REBUILDING}{datetime.now(UTC):%Y%m%d%H%M%S}"


def exists(catalog: Catalog, layer: Layer[Any]) -> bool:
    """Return whether a layer was ever filled; a REST catalog briefly lacks a table while another one replaces it."""
    return any(catalog.table_exists(name) or _begun_suffixes(catalog, name) for name in layer.tables)


def drop_begun(catalog: Catalog, layer: Layer[Any]) -> None:
    """Drop the tables of interrupted rebuilds of a layer."""
    for name in layer.tables:
        for suffix in _begun_suffixes(catalog, name):
            _mark_replaced(catalog, name + suffix, name)
            catalog.drop_table(name + suffix)


def _fill(catalog: Catalog, beside: Layer[Any], spark: SparkSession, held: Lease) -> None:
    with catalog_errors():
        beside.prepare(catalog)
    beside.open(spark)
    with closing(beside):
        while take(beside, spark, held):
            pass


def _mark_replaced(catalog: Catalog, name: str, by: str) -> None:
    """Note in a table's metadata that its folder can be removed later. Without the note, the folder stays.

    Folders of a REST catalog are never removed: only the catalog knows where they are.
    """
    with suppress(GoneError):
        at, metadata = newest_metadata(catalog, name)
        if is_sql(catalog):
            swap_metadata(catalog, name, at, metadata | {"properties": {**metadata["properties"], REPLACED: by}})


def _begun_suffixes(catalog: Catalog, table: str) -> list[str]:
    """Return the suffixes of tables of interrupted rebuilds, the newest last."""
    namespace, name = table.split(".")
    names = [found for _, found in catalog.list_tables(namespace)] if catalog.namespace_exists(namespace) else []
    return sorted(found.removeprefix(name) for found in names if found.startswith(name + REBUILDING))


def _is_replacing(catalog: Catalog, names: Sequence[str]) -> bool:
    """Return whether a rebuild was interrupted while it replaced tables, so that the last new table is left."""
    last = names[-1]
    if not catalog.table_exists(last) or all(catalog.table_exists(name) for name in names):
        return False
    return any(name.startswith(MARKER) for name in catalog.load_table(last).properties)
