"""Gold tables that Spark filled, with deletion vectors: verify accepts them, and finds each fault."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf
from tests.consumer.layers.gold.lakes import FINAL, NOON, SLIDING, SPENDING, VISITS, Silver, fill, order, orders_lake
from tests.consumer.layers.gold.model import Order, windows
from tests.consumer.layers.gold.test_aggregate import some
from tests.operations import tables

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_tables
from reader.connect import connect
from reader.verify.check import Result, Scope
from reader.verify.checks import gold
from reader.verify.checks.products import result_of

pytestmark = pytest.mark.spark

NAMES = {"spending": SPENDING, "sliding": SLIDING, "closed": FINAL, "visits": VISITS}


class Bronze(Silver):
    """Silver that keeps all rows of bronze."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__(spark, settings)
        catalog = open_catalog(settings)
        ensure_tables(catalog, load_contract(settings.contracts, "orders"))
        self._table = catalog.load_table(stream_tables("orders").bronze)

    def keep(self, *micro_batches: list[Order]) -> None:
        before = len(self.orders)
        super().keep(*micro_batches)
        ingested = {"_ingested_at": NOON.replace(year=2100)}  # later than all events
        self._table.append(pa.Table.from_pylist([row | ingested for row in self.orders[before:]], self._schema))

    @property
    def _schema(self) -> pa.Schema:
        schema = self._table.schema().as_arrow()
        return pa.schema([field.with_nullable(True) for field in schema])


def verified(lake: Settings) -> dict[str, Result]:
    with connect(lake) as session:
        return {found.name: found for found in gold.check(Scope(lake, session, "orders"))}


@pytest.mark.all
def test_what_spark_fills_is_what_verify_expects(
    lake_settings: Settings, tmp_path: Path, session_of: SessionOf
) -> None:
    lake = orders_lake(lake_settings, tmp_path)
    spark = session_of(lake)
    silver = Bronze(spark, lake)
    chance, now = random.Random(0), NOON
    for _ in range(2):
        now += chance.choice((NOON - NOON.replace(hour=9), NOON - NOON.replace(day=15)))
        silver.keep(*(some(chance, now) for _ in range(3)))
        for spec in NAMES.values():
            fill(spark, lake, spec)
        assert verified(lake) == {
            name: result_of(name, len(windows(silver.orders, spec, silver.horizon))) for name, spec in NAMES.items()
        }
    silver.keep([order(now), order(now)], [order(None)])
    found = verified(lake)
    assert [(found[name].waiting, found[name].clean) for name in NAMES] == [(2, True), (2, True), (0, True), (2, True)]
    for spec in NAMES.values():
        fill(spark, lake, spec)
    for name in NAMES:
        tables.maintain(spark, f"gold.{name}")
    assert all(each.clean and not each.waiting for each in verified(lake).values())
    spark.sql("UPDATE lake.gold.spending SET spent = spent + 0.01 WHERE customer IS NULL AND spent IS NOT NULL")
    spark.sql("DELETE FROM lake.gold.sliding WHERE window_start < (SELECT max(window_start) FROM lake.gold.sliding)")
    spark.sql("INSERT INTO lake.gold.closed SELECT * FROM lake.gold.closed")
    spark.sql("UPDATE lake.gold.visits SET window_end = window_end + INTERVAL 1 MINUTE WHERE customer IS NULL")
    found = verified(lake)
    assert [[each.what for each in found[name].findings] for name in NAMES] == [
        ["wrong spent"],
        ["missing"],
        ["several rows of one window"],
        ["wrong window_end"],
    ]
