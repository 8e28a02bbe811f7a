"""The clickstream: visitors browse in sessions, and the report matches the judged events."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.judging import units_of
from tests.producer.conftest import CONTRACTS

from lakeproof.contracts import load_contract
from lakeproof.judge.batch import Judge
from producer.batches import Batch, BatchPlan, make_batches
from producer.browsing import Browsing, make_shop
from producer.encoding import JsonStyle
from producer.faults import Chances
from producer.report import Tally

CONTRACT = load_contract(CONTRACTS, "clickstream")
START = datetime(2026, 11, 1, tzinfo=UTC)
FAULTY = BatchPlan(
    seed=7, users=20, batch_size=40, evolve_after=0, style=JsonStyle.COMPACT, chances=Chances(0.4, 0.2, 0.2, 0.2)
)
SOUND = replace(FAULTY, chances=Chances(0, 0, 0, 0))


def made(plan: BatchPlan, count: int = 10) -> list[Batch]:
    times = [START + timedelta(minutes=index) for index in range(count)]
    return list(make_batches(plan, CONTRACT, times, Browsing(make_shop(plan.seed, plan.users))))


def events(plan: BatchPlan, count: int = 10) -> list[dict[str, Any]]:
    return [json.loads(record.data) for batch in made(plan, count) for record in batch.records]


@pytest.mark.parametrize("seed", range(20))
def test_the_report_is_what_judging_makes_of_it(seed: int) -> None:
    plan = replace(FAULTY, seed=seed)
    tally = Tally(seed)
    judge = Judge(CONTRACT)
    bronze, dead = 0, Counter[str]()
    for batch in made(plan):
        tally.add(batch)
        for unit in units_of(judge.judge(batch.data)):
            if unit["reasons"] is None:
                bronze += 1
            else:
                dead["+".join(sorted({reason["code"] for reason in unit["reasons"]}))] += 1
    assert {"bronze": bronze, "dead_letters": dict(sorted(dead.items()))} == tally.as_dict()["expected"]
    assert tally.corrupt_batches
    assert tally.records_with("duplicate")
    assert {"missing_field", "null_field", "wrong_type", "wrong_format", "unknown_field"} <= dead.keys()


def test_the_collector_accepts_what_is_not_truncated() -> None:
    """Faults are inside events: the collector rejects a post with an event that has no ID or type."""
    for event in events(FAULTY):
        assert event.keys() == {"id", "type", "event"}
        assert (type(event["id"]), type(event["type"]), type(event["event"])) == (int, str, dict)
        assert 0 <= event["id"] < 2**53


def test_the_same_seed_makes_the_same_batches() -> None:
    assert made(FAULTY) == made(FAULTY)
    assert made(FAULTY) != made(replace(FAULTY, seed=8))


def test_messages_are_keyed_by_id_as_the_collector_does() -> None:
    for batch in made(SOUND, 2):
        assert [record.key for record in batch.records] == [
            str(json.loads(record.data)["id"]) for record in batch.records
        ]


def test_visitors_browse_in_sessions() -> None:
    found = events(SOUND, 30)
    kinds = Counter(event["type"] for event in found)
    assert kinds.keys() == {"page_view", "search", "click", "add_to_cart"}
    assert len({event["id"] for event in found}) == len(found)
    by_visitor: dict[str, list[dict[str, Any]]] = {}
    for event in found:
        by_visitor.setdefault(event["event"]["visitor"], []).append(event)
    assert len(by_visitor) == SOUND.users
    external = 0
    for own in by_visitor.values():
        assert len({event["event"]["ip"] for event in own}) == len({event["event"]["user_agent"] for event in own}) == 1
        page = None
        for event in own:
            action = event["event"]
            referrer = action.get("referrer", "")
            if referrer.startswith("http"):
                external += 1
                assert event["type"] == "page_view"
            elif referrer:
                assert referrer == page
            if event["type"] == "search":
                assert action["query"]
            if event["type"] == "click":
                assert (action["page"], page) == ("/search", "/search")
                assert action["position"] >= 0
            page = action["page"]
    assert external


def test_an_event_happened_shortly_before_its_batch() -> None:
    for index, batch in enumerate(made(SOUND, 3)):
        for record in batch.records:
            at = datetime.fromisoformat(json.loads(record.data)["event"]["timestamp"])
            assert timedelta(0) <= START + timedelta(minutes=index) - at < timedelta(seconds=10)
