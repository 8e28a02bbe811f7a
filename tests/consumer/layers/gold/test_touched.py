"""A catalog that answers with an older state of a table is not taken for a table without the newest rows. No Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.consumer.layers.gold.lakes import SILVER, SPENDING, orders_lake, write_product

from consumer.iceberg.marker import Committed, Marker, property_of
from consumer.layers.gold.touched import ALL_WINDOWS, rows_of, silver_rows
from consumer.layers.silver.compared import kept_before, kept_scan
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import UnavailableError
from lakeproof.gold.model import Product
from lakeproof.settings import Settings
from lakeproof.tables.names import gold_query, silver_query
from lakeproof.tables.schemas import ensure_namespace, gold_schema

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
GOLD = "gold.spending"


@pytest.fixture
def lake(lake_settings: Settings, tmp_path: Path) -> Settings:
    return orders_lake(lake_settings, tmp_path)


@pytest.fixture
def product(lake: Settings) -> Product:
    """A product whose tables are at micro-batch 3, before which everything was decided."""
    product, catalog = write_product(lake, SPENDING.text), open_catalog(lake)
    ensure_namespace(catalog, "gold")
    catalog.create_table(GOLD, gold_schema(product))
    for name, query in ((SILVER.kept, silver_query("orders")), (GOLD, gold_query("spending"))):
        table = catalog.load_table(name)
        table.append(table.schema().as_arrow().empty_table())
        snapshot = table.current_snapshot()
        assert snapshot is not None
        marker = Committed(Marker("id", 2, "digest", "0", "3"), snapshot.snapshot_id, snapshot.sequence_number or 0)
        with table.transaction() as transaction:
            transaction.set_properties({property_of(query): marker.as_text()})
    return product


def test_gold_notices_an_older_state_of_silver(lake: Settings, product: Product) -> None:
    catalog = open_catalog(lake)
    assert silver_rows(catalog, product, "ordered_at", 0, 3).files == []
    with pytest.raises(UnavailableError, match=r"newest state of silver\.orders yet"):
        silver_rows(catalog, product, "ordered_at", 3, 4)


def test_a_sink_notices_an_older_state_of_gold(lake: Settings, product: Product) -> None:
    assert rows_of(SPARK, lake, product, ALL_WINDOWS, 3).num_rows == 0
    with pytest.raises(UnavailableError, match=r"newest state of gold\.spending yet"):
        rows_of(SPARK, lake, product, ALL_WINDOWS, 4)


def test_silver_notices_an_older_state_of_itself(lake: Settings, product: Product) -> None:
    catalog, contract = open_catalog(lake), load_contract(lake.contracts, product.stream)
    assert kept_scan(catalog, contract, SILVER.kept, 3, None).files == []
    assert kept_before(SPARK, catalog, contract, SILVER.kept, 0, 3, None).num_rows == 0
    with pytest.raises(UnavailableError, match=r"newest state of silver\.orders yet"):
        kept_scan(catalog, contract, SILVER.kept, 4, None)
    with pytest.raises(UnavailableError, match=r"newest state of silver\.orders yet"):
        kept_before(SPARK, catalog, contract, SILVER.kept, 3, 4, None)
