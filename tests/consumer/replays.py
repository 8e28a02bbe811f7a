"""A stream whose contract is wrong at first and then corrected, for the tests of replays."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.consumer.direct import run_in_turn
from tests.consumer.lake import SessionOf, rows
from tests.lakes import changed
from tests.messages import send
from tests.servers import KafkaServer

from consumer.layers.bronze.replay import Replay
from consumer.layers.bronze.replayed import Replayed
from consumer.layers.registry import layers_of
from consumer.queries.alerts import AlertsQuery
from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.layer import LayerQuery
from consumer.queries.replay import ReplayQuery
from consumer.queries.trigger import Trigger
from consumer.scope import scope_of_run
from lakeproof.catalog import open_catalog
from lakeproof.history.apply import carry_out, plan
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.storage import open_storage
from reader.verify.check import Verification
from reader.verify.driver import verify as verify_streams
from reader.verify.tables import accounts

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
ONCE = Trigger(available_now=True)
_LANDED = 1_795_000_000
AT = "2026-11-21T06:00:00Z"
CHANGED = {"_micro_batch_id", "_ingested_at", "_contract_version", "_decided_at", "_updated_at"}
"""Columns in which a replayed row differs from one that landed under the right contract."""


def write_contract(settings: Settings, *, right: bool) -> None:
    """Write the contract; the wrong one has a type that is too narrow, and lacks a kind and a field."""
    settings.contracts.mkdir(exist_ok=True, parents=True)
    wanted = {"version": "2.0.0", "int": "", "kinds": "{value: new}, {value: used}", "note": _NOTE}
    wrong = {"version": "1.0.0", "int": ", physicalType: int", "kinds": "{value: new}", "note": ""}
    (settings.contracts / f"{STREAM}.yaml").write_text(_CONTRACT.format(**wanted if right else wrong))
    settings.gold.mkdir(exist_ok=True, parents=True)
    (settings.gold / "totals.yaml").write_text(_PRODUCT)


def apply(settings: Settings, stream: str = STREAM) -> None:
    """Apply the contract as ``lakeproof contract apply`` does."""
    catalog = open_catalog(settings)
    carry_out(catalog, plan(catalog, settings, stream), ContractLog(settings.state.database))


def order(number: int, **fields: Any) -> bytes:
    """Return an order that both contracts accept, unless `fields` make it valid under the right contract only."""
    return json.dumps({"id": f"o{number}", "at": AT, "amount": number, "kind": "new"} | fields).encode()


WRONG: list[dict[str, Any]] = [{"amount": 2**40}, {"kind": "used"}, {"note": "hello"}]
"""Fields that only the right contract accepts."""


def batch(*records: bytes) -> bytes:
    """Return a batch of records."""
    return b"[" + b", ".join(records) + b"]"


def land(settings: Settings, name: str, value: bytes, stream: str = STREAM) -> None:
    """Land a file."""
    if settings.landing.uri.startswith("s3:"):
        uri = f"{settings.landing.uri}/{stream}/{name}"
        open_storage(settings.landing.uri, settings.s3).write_new(uri, value)
        return
    path = settings.home / "landing" / stream / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".tmp").write_bytes(value)
    os.utime(path.with_suffix(".tmp"), (_LANDED, _LANDED))
    path.with_suffix(".tmp").rename(path)


@dataclass
class Landing:
    """Landing zone of some lakes: files in each of them, or a topic that they share."""

    kafka: KafkaServer | None = None
    topic: str = ""
    stream: str = STREAM
    landed: int = 0

    @property
    def source(self) -> str:
        """The kind of source, as a query names it."""
        return "kafka" if self.kafka else "files"

    def of(self, settings: Settings) -> Settings:
        """Return settings of a lake that reads from here."""
        if not self.kafka:
            return settings
        servers = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": self.topic}
        return changed(settings, **servers, LAKE_KAFKA_STARTING_OFFSETS="earliest")

    def land(self, lakes: Sequence[Settings], *batches: bytes) -> None:
        """Land batches, each in a file or a message of its own."""
        if self.kafka:
            send(self.kafka, self.topic, batches)
        else:
            for number, value in enumerate(batches, self.landed):
                for settings in lakes:
                    land(settings, f"{number:04}.json", value, self.stream)
        self.landed += len(batches)

    def name(self, number: int) -> str:
        """Return the ``_source`` of a batch."""
        return source_name(self.topic, 0, number) if self.kafka else f"{number:04}.json"


def drain(settings: Settings, session_of: SessionOf, source: str = "files", stream: str = STREAM) -> None:
    """Run the stream, with all layers that follow it, over everything that has landed."""
    settings, scope = _settled(settings), scope_of_run(settings, [stream], None)
    queries = [BronzeQuery(settings, stream, ONCE, source), *_layers(settings, stream)]
    alerts = [
        AlertsQuery(settings, each, scope.contracts[stream], ONCE)
        for each in scope.samples
        if each.alerts and source == "kafka"
    ]
    if alerts:  # these are queries of Spark
        run_queries(settings, [*queries, *alerts], lambda: session_of(settings), available_now=True)
    else:
        run_in_turn(session_of(settings), settings, queries)


def replay(settings: Settings, session_of: SessionOf, wanted: Replay | None = None, stream: str = STREAM) -> Replayed:
    """Replay the stream, with all layers that follow it."""
    settings = _settled(settings)
    query = ReplayQuery(settings, stream, wanted or Replay())
    run_in_turn(session_of(settings), settings, [query, *_layers(settings, stream)])
    return query.done


def _settled(settings: Settings) -> Settings:
    return changed(settings, LAKE_SETTLE_SECONDS=0)


def _layers(settings: Settings, stream: str) -> list[LayerQuery]:
    return [LayerQuery(settings, layer, ONCE) for layer in layers_of(scope_of_run(settings, [stream], None))]


def content(settings: Settings, table: str, *, but: frozenset[str] = frozenset()) -> list[str]:
    """Return the rows of a table, without columns that differ."""
    found = rows(settings, table)
    return sorted(
        repr(sorted((name, value) for name, value in row.items() if name not in CHANGED | but)) for row in found
    )


def verify(settings: Settings, stream: str = STREAM, **options: Any) -> Verification:
    """Return the findings of ``reader verify``, which waits for no rows in the ledger: the stream does not run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "_WAIT_SECONDS", 0)
        (found,) = verify_streams(settings, stream, values=True, **options)
    return found


def check_clean(found: Verification) -> None:
    """Check that verify was complete, and found nothing wrong."""
    results = [result for each in found.results.values() for result in each]
    wrong = [(result.name, result.faults, result.problems) for result in results if not result.clean]
    assert wrong == [], wrong
    assert found.complete
    facts = found.landed.facts
    assert facts["landed_units"] == facts["bronze_rows"] + facts["dead_letters"]
