"""Silver against the plain model, from landed files to tables."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.lake import Drain, SessionOf, rows
from tests.consumer.silver.model import Row, decide

from consumer.queries.silver import SilverQuery
from consumer.queries.bronze import Trigger
from consumer.silver.micro_batches import SilverMicroBatches
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import lease

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def land(landing: Path, name: str, events: list[tuple[str, datetime, str]]) -> None:
    landing.mkdir(parents=True, exist_ok=True)
    records = [
        {"user_id": content, "event_id": key, "event_timestamp": at.isoformat(), "event_type": "page_view"}
        for key, at, content in events
    ]
    (landing / name).write_text(json.dumps(records))


def decide_all(session_of: SessionOf, settings: Settings) -> None:
    query = SilverQuery(settings, "events", Trigger(available_now=True))
    query.prepare()
    with lease(settings.state.database, query.lease_name) as held:
        process = SilverMicroBatches(settings, "events", query.name, ContractLog(settings.state.database), held)
        spark = session_of(settings)
        while process.take(spark):
            pass


def found_in(settings: Settings) -> dict[tuple[str, int], tuple[str, tuple[str, int] | None]]:
    found: dict[Any, Any] = {}
    for row in rows(settings, "silver.events"):
        found[row["_source"], row["_position"]] = ("kept", None)
    for row in rows(settings, "silver.events_conflicts"):
        found[row["_source"], row["_position"]] = ("conflicts", (row["_winner_source"], row["_winner_position"]))
    for row in rows(settings, "silver.events_late"):
        found[row["_source"], row["_position"]] = ("late", None)
    return found


def model_of(settings: Settings) -> dict[tuple[str, int], tuple[str, tuple[str, int] | None]]:
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
    return decide(bronze, timedelta(days=7))


def check(settings: Settings) -> None:
    model = model_of(settings)
    duplicates = {place for place, (verdict, _) in model.items() if verdict == "duplicates"}
    assert found_in(settings) == {place: verdict for place, verdict in model.items() if place not in duplicates}
    ledger: dict[str, dict[str, int]] = {}
    for (source, _), (verdict, _) in model.items():
        ledger.setdefault(source, dict.fromkeys(("kept", "duplicates", "conflicts", "late"), 0))[verdict] += 1
    assert {
        row["source"]: {name: row[name] for name in ("kept", "duplicates", "conflicts", "late")}
        for row in rows(settings, "ledger.events_silver")
    } == ledger


@pytest.mark.parametrize("seed", range(4))
def test_it_is_as_the_model_says(
    lake_settings: Settings, drain_directly: Drain, session_of: SessionOf, seed: int
) -> None:
    chance = random.Random(seed)
    landing = lake_settings.home / "landing" / "events"
    number = 0
    for step in range(4):
        for _ in range(chance.randint(1, 3)):
            for _ in range(chance.randint(1, 2)):
                day = NOW + timedelta(days=4 * number)
                events = [
                    (
                        f"e{chance.randint(0, 9)}",
                        day - timedelta(days=chance.choice((0, 0, 1, 5, 9, 20))),
                        chance.choice("ab"),
                    )
                    for _ in range(chance.randint(0, 12))
                ]
                land(landing, f"{number}.json", events)
                number += 1
            drain_directly(lake_settings)
        if step != 1:
            decide_all(session_of, lake_settings)
            check(lake_settings)
