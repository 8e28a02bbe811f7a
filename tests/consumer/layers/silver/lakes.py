"""Lakes with silver, and its comparison with the plain model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.consumer.lake import rows
from tests.consumer.layers.silver.model import Decided, Row, decide
from tests.consumer.taking import Taking, taking
from tests.hashes import check_hashes
from tests.lakes import changed

from consumer.layers.silver.decide import SilverLayer
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings
from lakeproof.tables.names import silver_tables

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
Event = tuple[str, datetime, str]
"""Key, event time, other content."""


def with_strategy(settings: Settings, folder: Path, strategy: str) -> Settings:
    """Return a lake whose contract has a strategy; `folder` is for the contract."""
    folder.mkdir()
    text = (settings.contracts / "events.yaml").read_text()
    custom = f"customProperties:\n  - property: silverStrategy\n    value: {strategy}\n"
    (folder / "events.yaml").write_text(text.replace("customProperties:\n", custom, 1))
    return changed(settings, LAKE_CONTRACTS=str(folder))


def land(settings: Settings, name: str, *events: Event) -> None:
    """Land a file of events."""
    folder = settings.home / "landing" / "events"
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        {"user_id": content, "event_id": key, "event_timestamp": at.isoformat(), "event_type": "page_view"}
        for key, at, content in events
    ]
    (folder / name).write_text(json.dumps(records))


@contextmanager
def silver_of(settings: Settings, stream: str = "events") -> Iterator[Taking]:
    """Yield silver of a stream, ready to take micro-batches."""
    layer = silver_layer(settings, stream)
    layer.prepare(open_catalog(settings))
    with taking(settings, layer) as process:
        yield process


def silver_layer(settings: Settings, stream: str = "events") -> SilverLayer:
    """Return the silver layer of a stream."""
    return SilverLayer(settings, load_contract(settings.contracts, stream), silver_tables(stream))


def decide_all(spark: SparkSession, settings: Settings, stream: str = "events", most: int = 1000) -> int:
    """Let silver take all of bronze, in at most `most` micro-batches; return the number of micro-batches."""
    with silver_of(settings, stream) as process:
        while process.count < most and process.take(spark):
            pass
        return process.count


def found_in(settings: Settings) -> Decided:
    """Return the rows of the silver tables by place; no table has duplicates."""
    found: Decided = {}
    for table, verdict in (("events", "kept"), ("events_conflicts", "conflicts"), ("events_late", "late")):
        for row in rows(settings, f"silver.{table}"):
            place = (row["_source"], row["_position"])
            assert place not in found
            found[place] = (
                verdict,
                (row["_winner_source"], row["_winner_position"]) if verdict == "conflicts" else None,
            )
    return found


def model_of(settings: Settings) -> Decided:
    """Return the plain model's verdicts on the rows of bronze."""
    contract = load_contract(settings.contracts, "events")
    assert contract.silver
    bronze = [
        Row(
            row["_micro_batch_id"],
            row["_source"],
            row["_position"],
            row["event_id"],
            row["event_timestamp"],
            row["user_id"],
            row["_ingested_at"],
        )
        for row in rows(settings, "bronze.events")
    ]
    return decide(bronze, contract.silver.horizon)


def check(settings: Settings) -> Decided:
    """Check that tables and ledger have the model's verdict on each row of bronze; return the verdicts."""
    model = model_of(settings)
    in_tables = {place: verdict for place, verdict in model.items() if verdict[0] != "duplicates"}
    assert found_in(settings) == in_tables
    names = ("kept", "duplicates", "conflicts", "late")
    expected: dict[str, dict[str, int]] = {}
    for (source, _), (verdict, _) in model.items():
        expected.setdefault(source, dict.fromkeys(names, 0))[verdict] += 1
    ledger: dict[str, Any] = {}
    for row in rows(settings, "ledger.events_silver"):
        assert row["source"] not in ledger
        ledger[row["source"]] = {name: row[name] for name in names}
        assert row["bronze"] == sum(ledger[row["source"]].values())
    assert ledger == expected
    check_hashes(settings)
    return model


def days(count: float) -> timedelta:
    """Return a period of some days."""
    return timedelta(days=count)
