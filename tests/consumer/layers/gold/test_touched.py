"""A catalog that answers with an older state of a table is not taken for a table without the newest rows. No Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.layers.gold.lakes import SILVER, SPENDING, orders_lake, write_product

from consumer.iceberg.marker import Committed, Marker, property_of
from consumer.layers.gold import touched
from consumer.layers.gold.touched import ALL_WINDOWS, Windows, rows_of, silver_rows, window_texts
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


WINDOWS = st.tuples(st.integers(0, 2), st.none() | st.text("ab", max_size=2), st.none() | st.integers(0, 1))


def table_of(windows: list[tuple[int, str | None, int | None]]) -> pa.Table:
    starts, texts, numbers = zip(*windows, strict=True) if windows else ((), (), ())
    keys = {"_key0": pa.array(texts, pa.string()), "_key1": pa.array(numbers, pa.int64())}
    return pa.table({"_start": pa.array(starts, pa.int64()), **keys, "row": pa.array(range(len(windows)), pa.int64())})


@given(rows=st.lists(WINDOWS, max_size=12), wanted=st.lists(WINDOWS, min_size=1, max_size=6))
def test_rows_of_touched_windows_are_found_in_their_order(
    rows: list[tuple[int, str | None, int | None]], wanted: list[tuple[int, str | None, int | None]]
) -> None:
    windows = Windows([(0, 3)], window_texts(table_of(wanted)))
    found = windows.of(table_of(rows))
    assert found["row"].to_pylist() == [number for number, window in enumerate(rows) if window in wanted]
    assert found.schema == table_of(rows).schema


def test_no_text_is_made_for_windows_that_start_at_other_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most windows in a data file of a day, with many keys, are not touched by new rows."""
    windows = Windows([(2, 3)], window_texts(table_of([(2, "a", 1)])))
    made: list[int] = []

    def texts(rows: pa.Table) -> Any:
        made.append(rows.num_rows)
        return window_texts(rows)

    monkeypatch.setattr(touched, "window_texts", texts)
    assert windows.of(table_of([(0, "a", 1), (2, "a", 1), (2, "b", 1), (2, "a", 1)]))["row"].to_pylist() == [1, 3]
    assert made == [2]
