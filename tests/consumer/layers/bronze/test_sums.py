"""Hashes of rows in the ledger, and the proofs of them."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from tests.consumer.lake import Drain, mark
from tests.consumer.replays import verify
from tests.lakes import changed

from consumer.layers.base import Append
from consumer.layers.bronze.ledger import MicroBatch, Sums
from consumer.layers.bronze.sums import sums_in_tables
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.proofs import ProofKind
from lakeproof.tables.schemas import ensure_tables

pytestmark = pytest.mark.spark

CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
id: trades
version: 1.0.0
status: active
customProperties:
  - {property: eventTime, value: at}
schema:
  - name: trades
    properties:
      - {name: id, logicalType: string, required: true, primaryKey: true}
      - {name: at, logicalType: timestamp, required: true}
      - {name: raw, logicalType: string, customProperties: [{property: renamedFrom, value: payload}]}
      - {name: reasons, logicalType: string, customProperties: [{property: renamedFrom, value: why}]}
      - {name: pair, logicalType: object, properties: [{name: key, logicalType: string}]}
      - {name: entry_0, logicalType: string}
      - {name: item_0, logicalType: string}
      - {name: named, logicalType: map, map: {value: {logicalType: string}}}
      - {name: listed, logicalType: array, items: {logicalType: string}}
"""


@pytest.mark.all
@pytest.mark.parametrize("kind", [ProofKind.NEW, ProofKind.ALL])
def test_fields_may_have_names_of_other_columns_and_of_the_sql(
    lake_settings: Settings, drain_directly: Drain, kind: ProofKind
) -> None:
    contracts, landing = lake_settings.home / "contracts", lake_settings.home / "landing" / "trades"
    for folder in (contracts, landing):
        folder.mkdir(parents=True)
    (contracts / "trades.yaml").write_text(CONTRACT)
    settings = changed(lake_settings, LAKE_CONTRACTS=contracts)
    for number in range(2):
        record = {"id": str(number), "at": "2026-11-21T06:00:00Z", "raw": "r", "reasons": "why", "pair": {"key": "k"}}
        more = {"entry_0": "e", "item_0": "i", "named": {"b": "1", "a": "2"}, "listed": ["x", "y"]}
        (landing / f"{number}.json").write_text(json.dumps([record | more, {"id": 7}]))
        drain_directly(settings, "trades")
        found = verify(settings, "trades", kind=kind)
        assert found.clean, found.off


def test_an_older_state_of_bronze_is_not_taken_for_one_without_rows(lake_settings: Settings) -> None:
    contract, query = load_contract(lake_settings.contracts, "events"), bronze_query("events")
    ensure_tables(open_catalog(lake_settings), contract)
    tables: list[Any] = []
    for name in ("bronze.events", "dead_letters.events"):
        mark(lake_settings, name, query, 2)
        tables.append(Append(SimpleNamespace(name=name, query=query), None, ()))  # type: ignore[arg-type]

    def sums(number: int) -> Sums:
        batch = MicroBatch(number, "id", contract, datetime.now(UTC))
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        return sums_in_tables(spark, lake_settings, batch, Sums(), *tables, str)

    assert sums(2) == Sums()
    with pytest.raises(UnavailableError, match=r"newest state of bronze\.events yet"):
        sums(3)
