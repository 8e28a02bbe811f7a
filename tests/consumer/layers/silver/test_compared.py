"""A catalog that answers with an older state of bronze is not taken for one that has lost rows. No Spark."""

import pytest
from pyiceberg.catalog import Catalog
from tests.consumer.lake import mark

from consumer.layers.silver.compared import bronze_scan
from consumer.layers.silver.progress import Range
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.tables.schemas import ensure_tables


@pytest.fixture
def contract(lake_settings: Settings) -> Contract:
    return load_contract(lake_settings.contracts, "events")


@pytest.fixture
def catalog(lake_settings: Settings, contract: Contract) -> Catalog:
    """A catalog whose bronze has the micro-batches 0 to 2."""
    catalog = open_catalog(lake_settings)
    ensure_tables(catalog, contract)
    mark(lake_settings, "bronze.events", bronze_query("events"), 2)
    return catalog


def taken(end: int) -> Range:
    return Range(0, end, {("1.json", end - 1): 1}, of_topic=False)


def test_silver_notices_an_older_state_of_bronze(catalog: Catalog, contract: Contract) -> None:
    assert bronze_scan(catalog, contract, taken(3)).files == []
    with pytest.raises(UnavailableError, match=r"newest state of bronze\.events yet"):
        bronze_scan(catalog, contract, taken(5))


def test_bronze_that_was_rolled_back_is_not_repaired_by_a_rebuild_of_silver(
    lake_settings: Settings, catalog: Catalog, contract: Contract
) -> None:
    first = catalog.load_table("bronze.events").history()[0].snapshot_id
    mark(lake_settings, "bronze.events", bronze_query("events"), 3)
    catalog.load_table("bronze.events").manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(LakeproofError, match=r"bronze\.events was rolled back") as refused:
        bronze_scan(catalog, contract, taken(4))
    assert "set_current_snapshot" in refused.value.hint
    assert type(refused.value) is LakeproofError  # of a lost marker, the engine names the layer's own remedy
