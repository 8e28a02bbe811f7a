"""Queries in turn, as many tests run them, fill the same tables as the application does in threads."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.consumer.direct import run_in_turn
from tests.consumer.lake import SessionOf, rows
from tests.consumer.taking import layer_queries
from tests.servers import SPARK_JARS

from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings, settings_of

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
TABLES = (
    *("bronze.events", "dead_letters.events", "ledger.events"),
    *("silver.events", "silver.events_conflicts", "silver.events_late", "ledger.events_silver", "gold.user_activity"),
)
OF_THE_RUN = ("checkpoint_id", "etag", "_at", "_hash")
"""Ends of the names of columns that differ from run to run: times, and hashes of rows with times."""


def record(number: int, amount: int = 1) -> dict[str, Any]:
    time = f"2026-11-2{number % 3}T06:0{number % 10}:00Z"
    return {
        "event_id": f"e{number}", "user_id": "u", "event_timestamp": time, "event_type": "purchase", "amount": amount,
        "product_id": "p", "properties": {},
    }  # fmt: skip


def land(settings: Settings, name: str, *records: dict[str, Any]) -> None:
    folder = Path(settings.landing.uri.removeprefix("file://"), "events")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps([*records, {"bad": name}]))


def queries_of(settings: Settings) -> list[BronzeQuery | LayerQuery]:
    trigger = Trigger(available_now=True)
    product = load_product(ROOT / "gold", "user_activity", partial(load_contract, settings.contracts))
    return [BronzeQuery(settings, "events", trigger), *layer_queries(settings, "events", trigger, [product])]


def content(settings: Settings, table: str) -> list[str]:
    """Return the rows of a table without what differs from run to run."""
    found = (
        {name: value for name, value in row.items() if not name.endswith(OF_THE_RUN)} for row in rows(settings, table)
    )
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found)


def fill(settings: Settings, spark: SparkSession, *, in_turn: bool) -> None:
    """Fill a lake by two runs: duplicates, a conflict and bad records."""
    for files in ({"a": [record(1), record(2), record(2)]}, {"b": [record(1, 2), record(3)], "c": [record(4)]}):
        for name, records in files.items():
            land(settings, name, *records)
        queries = queries_of(settings)
        if in_turn:
            run_in_turn(spark, settings, queries)
        else:
            run_queries(settings, queries, lambda: spark, available_now=True)


def test_both_fill_the_same_tables(session_of: SessionOf, tmp_path: Path) -> None:
    own = {"LAKE_CONTRACTS": ROOT / "contracts", "LAKE_JARS": SPARK_JARS, "LAKE_SETTLE_SECONDS": 0}
    lakes = [settings_of({"LAKE_HOME": tmp_path / name, **own}) for name in ("in-turn", "in-threads")]
    for lake, in_turn in zip(lakes, (True, False), strict=True):
        fill(lake, session_of(lake), in_turn=in_turn)
    for table in TABLES:
        first, second = (content(lake, table) for lake in lakes)
        assert first == second, table
    assert len(content(lakes[0], "silver.events")) == 4
    assert len(content(lakes[0], "dead_letters.events")) == 3
