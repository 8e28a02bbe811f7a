"""Lakes whose silver is filled by a test, and products over it."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.consumer.lake import rows
from tests.consumer.layers.gold.model import Order, Spec, Window, best, by, by_key, total, windows
from tests.consumer.taking import take_all
from tests.lakeproof.gold.products import CONTRACT
from tests.lakes import changed

from consumer.iceberg.append import append_once, open_table
from consumer.iceberg.data_files import DataFileWriter
from consumer.iceberg.marker import Marker
from consumer.layers.gold.aggregate import GoldLayer
from consumer.layers.gold.columns import EPOCH, micros
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.gold.model import Product
from lakeproof.gold.product_file import load_product
from lakeproof.settings import S3Settings, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.storage import open_storage
from lakeproof.tables.names import gold_table, silver_query, silver_tables
from lakeproof.tables.schemas import ensure_silver_tables
from reader.connect import connect

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SILVER = silver_tables("orders")

SPENDING = Spec(
    """\
name: spending
silver: orders
keys: [customer, count]
window:
  size: 1 hour
measures:
  orders: count(*)
  spent: sum(total)
  channels: count(DISTINCT channel)
  large: count(CASE WHEN total > 1.50 THEN 1 END)
  cheapest: min(total)
  steepest: max(ratio)
  last: max(ordered_at)
""",
    ("customer", "count"),
    {
        "orders": len,
        "spent": total("total"),
        "channels": lambda orders: len({order["channel"] for order in orders} - {None}),
        "large": lambda orders: sum(1 for order in orders if (order["total"] or 0) > Decimal("1.50")),
        "cheapest": best("total", min),
        "steepest": best("ratio", max),
        "last": best("ordered_at", max),
    },
    timedelta(hours=1),
    timedelta(hours=1),
)
SLIDING = Spec(
    """\
name: sliding
silver: orders
keys: []
window: {size: 2 days, every: 6 hours}
measures:
  orders: count(*)
  units: sum(count)
""",
    (),
    {"orders": len, "units": total("count")},
    timedelta(days=2),
    timedelta(hours=6),
)
FINAL = Spec(
    SPENDING.text.replace("name: spending", "name: closed").replace("count]", "count, place.city]")
    + "publish: final\n",
    (*SPENDING.keys, "city"),
    SPENDING.measures,
    timedelta(hours=1),
    timedelta(hours=1),
    final=True,
)
VISITS = Spec(
    """\
name: visits
silver: orders
keys: [customer]
window:
  gap: 30 minutes
measures:
  orders: count(*)
  spent: sum(total)
  arrived: min_by(channel, ordered_at)
  steepness: min_by(ratio, ordered_at)
  left_with: max_by(total, ordered_at)
""",
    ("customer",),
    {
        "orders": len,
        "spent": total("total"),
        "arrived": by("channel", min),
        "steepness": by("ratio", min),
        "left_with": by("total", max),
    },
    timedelta(minutes=30),
    timedelta(minutes=30),
    session=True,
)
HORIZON = timedelta(days=7)
"""Horizon of the contract."""


def orders_lake(settings: Settings, folder: Path) -> Settings:
    """Return a lake of the stream orders, whose event time may be null, with folders for contracts and products."""
    (folder / "contracts").mkdir()
    (folder / "gold").mkdir()
    optional = CONTRACT.replace("{name: ordered_at, logicalType: timestamp, required: true}", _OPTIONAL)
    assert optional != CONTRACT
    (folder / "contracts" / "orders.yaml").write_text(optional)
    settings = changed(settings, LAKE_CONTRACTS=str(folder / "contracts"), LAKE_GOLD=str(folder / "gold"))
    contract = load_contract(settings.contracts, "orders")
    ensure_silver_tables(open_catalog(settings), contract, SILVER)
    log = ContractLog(settings.state.database)
    log.make_current("orders", contract.digest, optional.encode())
    return settings


_OPTIONAL = "{name: ordered_at, logicalType: timestamp}"


def order(at: datetime | None, customer: str | None = "a", total: str | None = "1.00", **others: Any) -> Order:
    """Return an order; its city is also in its place."""
    made = {"customer": customer, "channel": "web", "count": 1, "ratio": 0.5, "city": None} | others
    made["place"] = others.get("place", {"city": made["city"]})
    return made | {"ordered_at": at, "total": None if total is None else Decimal(total)}


class Silver:
    """The rows that silver has kept.

    Parameters
    ----------
    spark, settings
        The session of a lake, and its settings.
    """

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._contract = load_contract(settings.contracts, "orders")
        self.end = 0
        self.watermark: datetime | None = None
        self.orders: list[Order] = []

    @property
    def horizon(self) -> datetime | None:
        """The time before which no rows are kept any more."""
        return self.watermark - HORIZON if self.watermark else None

    def keep(self, *micro_batches: list[Order]) -> None:
        """Append rows as silver does: several micro-batches of bronze in one commit."""
        start, self.end = self.end, self.end + len(micro_batches)
        new = [
            made | {"order_id": str(len(self.orders) + place), "_micro_batch_id": start + number}
            for place, (number, made) in enumerate(
                (number, made) for number, orders in enumerate(micro_batches) for made in orders
            )
        ]
        self.orders += new
        times = [made["ordered_at"] for made in new if made["ordered_at"]]
        self.watermark = max(filter(None, (self.watermark, *times)), default=None)
        contents = str(micros(self.watermark - EPOCH)) if self.watermark else ""
        marker = Marker("", self.end - 1, self._contract.digest, str(start), str(self.end), contents=contents)
        table = open_table(self._spark, SILVER.kept, silver_query("orders"))
        target = table.target(marker)
        assert target
        writer = DataFileWriter(target, open_storage(target.folder, S3Settings()))
        schema = pa.schema([field for field in target.schema if field.name in (new[0] if new else {})])
        if new:
            writer.write(pa.RecordBatch.from_pylist(new, schema=schema))
        assert append_once(table, marker, writer.close())


def write_product(settings: Settings, text: str) -> Product:
    """Write the file of a product; return the product."""
    name = text.partition("name: ")[2].splitlines()[0]
    (settings.gold / f"{name}.yaml").write_text(text)
    return load_product(settings.gold, name, lambda stream: load_contract(settings.contracts, stream))


def fill(spark: SparkSession, settings: Settings, spec: Spec) -> int:
    """Let a product take all pending silver; return the number of micro-batches that it took."""
    layer = gold_layer(settings, write_product(settings, spec.text))
    layer.prepare(open_catalog(settings))
    layer.open(spark)
    return take_all(spark, settings, layer)


def gold_layer(settings: Settings, product: Product) -> GoldLayer:
    """Return the gold layer of a product."""
    return GoldLayer(settings, product, gold_table(product.name))


def columns(spec: Spec) -> list[str]:
    """Return the columns of a product's table that the model has, too."""
    return ["window_start", "window_end", *spec.keys, *spec.measures]


def found(settings: Settings, spec: Spec) -> list[Window]:
    """Return the rows of a product's table, read by PyIceberg."""
    name = gold_table(spec.text.partition("name: ")[2].splitlines()[0])
    return by_key(tuple(row[column] for column in columns(spec)) for row in rows(settings, name))


def found_by_duckdb(settings: Settings, spec: Spec) -> list[Window]:
    """Return the rows of a product's table, read by DuckDB."""
    name = gold_table(spec.text.partition("name: ")[2].splitlines()[0])
    with connect(settings) as session:
        result = session.sql(f"SELECT {', '.join(columns(spec))} FROM {name}")
        assert result is not None
        return by_key(result.fetchall())


def check(settings: Settings, silver: Silver, spec: Spec) -> list[Window]:
    """Check that the table equals the model; return the rows."""
    model = windows(silver.orders, spec, silver.horizon)
    assert found(settings, spec) == model
    return model
