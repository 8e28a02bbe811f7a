"""A stream whose contract is wrong at first, and put right: what the tests of replays share."""

import json
import os
from typing import Any

from tests.consumer.lake import SessionOf, rows
from tests.lakes import changed

from consumer.app.application import Query, run_queries
from consumer.app.landing import BronzeQuery
from consumer.app.query import LayerQuery
from consumer.app.replay import ReplayQuery
from consumer.app.trigger import Trigger
from consumer.asked import asked_to_run
from consumer.layers.bronze.replay import Replay
from consumer.layers.bronze.replay_tasks import Replayed
from consumer.layers.registry import layers_of
from lakeproof.catalog import open_catalog
from lakeproof.history.apply import carry_out, plan
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog

STREAM = "orders"
_CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
id: orders
version: {version}
status: active
customProperties:
  - {{property: eventTime, value: at}}
schema:
  - name: orders
    properties:
      - {{name: id, logicalType: string, required: true, primaryKey: true}}
      - {{name: at, logicalType: timestamp, required: true}}
      - {{name: amount, logicalType: integer{int}}}
      - {{name: kind, logicalType: string, enum: [{kinds}]}}
{note}"""
_NOTE = "      - {name: note, logicalType: string}\n"
_PRODUCT = """\
name: totals
silver: orders
description: What was sold.
keys: [kind]
window:
  size: 1 hour
measures:
  orders: count(*)
  amount: sum(amount)
"""
_LANDED = 1_795_000_000
AT = "2026-11-21T06:00:00Z"
CHANGED = {"_micro_batch_id", "_ingested_at", "_contract_version", "_decided_at", "_updated_at"}
"""Columns in which a replayed row differs from one that landed under the right contract."""


def write_contract(settings: Settings, *, right: bool) -> None:
    """Write the contract: the wrong one has a type that is too narrow, lacks a kind, and lacks a field."""
    settings.contracts.mkdir(exist_ok=True, parents=True)
    wanted = {"version": "2.0.0", "int": "", "kinds": "{value: new}, {value: used}", "note": _NOTE}
    wrong = {"version": "1.0.0", "int": ", physicalType: int", "kinds": "{value: new}", "note": ""}
    (settings.contracts / f"{STREAM}.yaml").write_text(_CONTRACT.format(**wanted if right else wrong))
    settings.gold.mkdir(exist_ok=True, parents=True)
    (settings.gold / "totals.yaml").write_text(_PRODUCT)


def apply(settings: Settings) -> None:
    """What ``lakeproof contract apply`` does."""
    catalog = open_catalog(settings)
    carry_out(catalog, plan(catalog, settings, STREAM), ContractLog(settings.state.database))


def order(number: int, **fields: Any) -> bytes:
    """An order that both contracts accept, unless fields make it one that only the right one does."""
    return json.dumps({"id": f"o{number}", "at": AT, "amount": number, "kind": "new"} | fields).encode()


WRONG: list[dict[str, Any]] = [{"amount": 2**40}, {"kind": "used"}, {"note": "hello"}]
"""Fields that only the right contract accepts."""


def batch(*records: bytes) -> bytes:
    """A batch."""
    return b"[" + b", ".join(records) + b"]"


def land(settings: Settings, name: str, value: bytes) -> None:
    """Land a file."""
    path = settings.home / "landing" / STREAM / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".tmp").write_bytes(value)
    os.utime(path.with_suffix(".tmp"), (_LANDED, _LANDED))
    path.with_suffix(".tmp").rename(path)


def drain(settings: Settings, session_of: SessionOf, source: str = "files") -> None:
    """Run the stream, with silver and gold, over everything that has landed."""
    _run(settings, session_of, BronzeQuery(_settled(settings), STREAM, Trigger(available_now=True), source))


def replay(settings: Settings, session_of: SessionOf, wanted: Replay | None = None) -> Replayed:
    """Replay the stream, with silver and gold."""
    query = ReplayQuery(_settled(settings), STREAM, wanted or Replay())
    _run(settings, session_of, query)
    return query.done


def _settled(settings: Settings) -> Settings:
    return changed(settings, LAKE_SETTLE_SECONDS=0)


def _run(settings: Settings, session_of: SessionOf, query: Query) -> None:
    settings = _settled(settings)
    layers = layers_of(asked_to_run(settings, [STREAM], None))
    queries = [query, *(LayerQuery(settings, layer, Trigger(available_now=True)) for layer in layers)]
    run_queries(settings, queries, lambda: session_of(settings), available_now=True)


def content(settings: Settings, table: str, *, but: frozenset[str] = frozenset()) -> list[str]:
    """The rows of a table, without the columns that differ."""
    found = rows(settings, table)
    return sorted(
        repr(sorted((name, value) for name, value in row.items() if name not in CHANGED | but)) for row in found
    )
