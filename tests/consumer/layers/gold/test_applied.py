"""Gold that runs while a contract is applied continues, with wider types, and under its current names."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.consumer.lake import Drain, SessionOf, rows
from tests.consumer.layers.gold.lakes import gold_layer
from tests.consumer.layers.silver.lakes import silver_of
from tests.consumer.taking import Taking, taking
from tests.evolving import LONG, NEW, OLD, V1, V2, land, write_contract
from tests.lakes import changed

from consumer.iceberg.append import open_table
from consumer.layers.sinks.changes import gold_followed
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import UsageError
from lakeproof.gold.product_file import load_product
from lakeproof.history import apply
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.names import gold_query

pytestmark = pytest.mark.spark

BUSY = """\
name: busy
silver: orders
keys: [nick, place.a]
window: WINDOW
measures:
  orders: count(*)
  units: sum(count)
  most: max(count)
  large: count(CASE WHEN count > 100 THEN 1 END)
  spent: sum(total)
  rated: count(ratio)
  codes: count(code)
  gone: count(place.gone)
"""


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "gold").mkdir()
    return changed(lake_settings, LAKE_CONTRACTS=tmp_path / "contracts", LAKE_GOLD=tmp_path / "gold")


def write(settings: Settings, version: str, fields: list[str], strategy: str) -> None:
    write_contract(settings, version, fields)
    file = settings.contracts / "orders.yaml"
    custom = f"customProperties:\n  - {{property: silverStrategy, value: {strategy}}}\n"
    file.write_text(file.read_text().replace("customProperties:\n", custom, 1))


@contextmanager
def gold_of(spark: SparkSession, settings: Settings) -> Iterator[Taking]:
    product = load_product(settings.gold, "busy", lambda stream: load_contract(settings.contracts, stream))
    layer = gold_layer(settings, product)
    layer.prepare(open_catalog(settings))
    layer.open(spark)
    with taking(settings, layer) as process:
        yield process


@pytest.mark.all
@pytest.mark.parametrize(
    ("strategy", "window"),
    [
        ("merge", "{size: 1 hour}"),
        ("state", "{size: 1 hour, every: 1 hour}"),
        pytest.param("merge", "{gap: 30 minutes}", marks=pytest.mark.long),
    ],
)
def test_a_contract_is_applied_while_silver_and_gold_run(
    settings: Settings,
    drain_directly: Drain,
    session_of: SessionOf,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    window: str,
) -> None:
    write(settings, "1.0.0", V1, strategy)
    (settings.gold / "busy.yaml").write_text(BUSY.replace("WINDOW", window))
    spark = session_of(settings)
    land(settings, "1.json", OLD)
    drain_directly(settings, "orders")
    contract = load_contract(settings.contracts, "orders")
    followed = gold_followed(load_product(settings.gold, "busy", lambda _: contract), contract)
    with silver_of(settings, "orders") as silver, gold_of(spark, settings) as gold:

        def step(*records: dict[str, Any]) -> list[tuple[Any, ...]]:
            if records:
                land(settings, f"{silver.count + 1}.json", *records)
                drain_directly(settings, "orders")
            assert silver.take(spark)
            assert gold.take(spark)
            return sorted(tuple(row.values())[2:-1] for row in rows(settings, "gold.busy"))

        assert step() == [("n", 1, 1, 7, 7, 0, Decimal("1234567.89"), 1, 1, 1)]
        land(settings, "2.json", OLD | {"id": "before"})
        drain_directly(settings, "orders")
        write(settings, "1.1.0", V2, strategy)
        catalog, log = open_catalog(settings), ContractLog(settings.state.database)
        planned = apply.plan(catalog, settings, "orders")
        with monkeypatch.context() as patch:  # the tables have the new columns, but no consumer knows it yet
            patch.setattr(ContractLog, "make_current", lambda *_: None)
            apply.carry_out(catalog, planned, log)
        assert step() == [("n", 1, 2, 14, 7, 0, Decimal("2469135.78"), 2, 2, 2)]
        before = open_table(spark, "gold.busy", gold_query("busy"))
        apply.carry_out(catalog, apply.plan(catalog, settings, "orders"), log)
        same = NEW | {"id": "same", "alias": "n", "place": {"a": 1, "b": "x"}, "total": 0.22}
        assert step(NEW, same) == [
            ("m", LONG, 1, LONG, LONG, 1, Decimal("123456789012345678.25"), 1, 0, 0),
            ("n", 1, 3, 14 + LONG, LONG, 1, Decimal("2469136.00"), 3, 2, 2),
        ]
    now = open_table(spark, "gold.busy", gold_query("busy"))
    newest = now.newest()
    assert newest
    change = followed.changes(spark, settings, before.newest(), newest)  # as for a running sink, too
    assert change.messages.count() == 2
    with pytest.raises(UsageError, match=r"drops code"):  # the product has to be changed before the next start
        load_product(settings.gold, "busy", lambda stream: load_contract(settings.contracts, stream))
