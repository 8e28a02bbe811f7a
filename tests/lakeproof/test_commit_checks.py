"""PyIceberg commits nothing with a clock that is so far behind that Spark could not read the table afterwards."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from tests.clocks import clock_off
from tests.lakes import changed
from tests.servers import RestCatalogServer

from lakeproof.catalog import open_catalog
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings
from lakeproof.tables.evolution import evolve

NAME = "ops.t"
HOUR = timedelta(hours=1)


def made(catalog: Catalog) -> Catalog:
    """Create a table with a row."""
    catalog.create_namespace("ops")
    append(catalog.create_table(NAME, Schema(NestedField(1, "n", LongType()))))
    return catalog


def append(table: Table) -> None:
    table.append(pa.table({"n": [1]}))


def set_property(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"some": "property"})


def add_column(table: Table) -> None:
    evolve(table, Schema(NestedField(1, "n", LongType()), NestedField(2, "other", LongType())))


CHANGES = pytest.mark.parametrize("change", [append, set_property, add_column])


@CHANGES
def test_with_a_clock_that_is_behind_nothing_is_committed(
    lake_settings: Settings, change: Callable[[Table], None]
) -> None:
    catalog = made(open_catalog(lake_settings))
    before = catalog.load_table(NAME).metadata_location
    with clock_off(-HOUR), pytest.raises(UnavailableError) as caught:
        change(catalog.load_table(NAME))
    assert caught.value.message.startswith(f"Cannot commit to {NAME}: its last commit, at 2")
    assert " ahead of the clock of this machine, 2" in caught.value.message
    assert "NTP" in caught.value.hint
    assert catalog.load_table(NAME).metadata_location == before
    change(catalog.load_table(NAME))
    assert catalog.load_table(NAME).metadata_location != before


@CHANGES
def test_after_a_commit_with_a_clock_that_was_ahead_nothing_is_committed_until_then(
    lake_settings: Settings, change: Callable[[Table], None]
) -> None:
    catalog = made(open_catalog(lake_settings))
    with clock_off(HOUR):
        change(catalog.load_table(NAME))
    with pytest.raises(UnavailableError, match="Cannot commit"):
        append(catalog.load_table(NAME))
    with clock_off(HOUR - timedelta(seconds=50)):  # Iceberg allows a minute
        append(catalog.load_table(NAME))


def test_the_newest_state_counts_not_what_was_loaded(lake_settings: Settings) -> None:
    catalog = made(open_catalog(lake_settings))
    loaded = catalog.load_table(NAME)
    with clock_off(HOUR):
        append(catalog.load_table(NAME))
    with pytest.raises(UnavailableError, match="Cannot commit"):
        set_property(loaded)


@pytest.mark.all
def test_of_a_rest_catalog_only_snapshots_have_times_of_this_machine(lake_settings: Settings, tmp_path: Path) -> None:
    with RestCatalogServer(tmp_path / "rest", lake_settings.catalog.warehouse_uri) as server:
        settings = changed(lake_settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=server.uri, LAKE_WAREHOUSE=None)
        catalog = made(open_catalog(settings))
        with clock_off(-HOUR):
            set_property(catalog.load_table(NAME))
            with pytest.raises(UnavailableError, match=f"Cannot commit to {NAME}: its last commit"):
                append(catalog.load_table(NAME))
        assert catalog.load_table(NAME).properties["some"] == "property"
        append(catalog.load_table(NAME))
