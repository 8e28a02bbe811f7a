"""A plan makes the same batches each time, in the requested style, with faults about as often as requested."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from lakeproof.contracts import Contract
from producer.batches import Batch, BatchPlan, batch_name, make_batches
from producer.encoding import JsonStyle
from producer.faults import Chances
from producer.report import Tally

START = datetime(2026, 1, 31, 23, 59, 58, tzinfo=UTC)
PLAN = BatchPlan(
    seed=7, users=20, batch_size=50, evolve_after=0, style=JsonStyle.COMPACT, chances=Chances(0.1, 0.1, 0.1, 0.1)
)
SOUND = replace(PLAN, chances=Chances(0, 0, 0, 0))


def made(plan: BatchPlan, contract: Contract, count: int = 20, start: datetime = START) -> list[Batch]:
    return list(make_batches(plan, contract, [start + timedelta(seconds=index) for index in range(count)]))


def test_the_same_plan_and_times_make_the_same_batches(contract: Contract) -> None:
    assert made(PLAN, contract) == made(PLAN, contract)
    assert made(PLAN, contract, 5) == made(PLAN, contract)[:5]
    assert made(PLAN, contract) != made(replace(PLAN, seed=8), contract)


def test_other_times_change_the_timestamps_only(contract: Contract) -> None:
    stamp = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
    some, others = made(PLAN, contract), made(PLAN, contract, start=START + timedelta(days=400, microseconds=1))
    for one, other in zip(some, others, strict=True):
        assert one.corrupt == other.corrupt
        assert len(one.data) == len(other.data)
        if not one.corrupt:
            assert stamp.sub(b"", one.data) == stamp.sub(b"", other.data)


def test_chances_do_not_change_the_events(contract: Contract) -> None:
    faulty = replace(SOUND, chances=Chances(1, 0, 0, 0))
    for one, other in zip(made(SOUND, contract), made(faulty, contract), strict=True):
        assert one.records == other.records


@pytest.mark.parametrize(
    ("style", "again"),
    [
        (JsonStyle.COMPACT, lambda events: json.dumps(events, separators=(",", ":"))),
        (JsonStyle.SPACED, json.dumps),
        (JsonStyle.NDJSON, lambda events: "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)),
    ],
)
def test_styles_are_what_python_writes(contract: Contract, style: JsonStyle, again: Any) -> None:
    for batch in made(replace(SOUND, style=style), contract, 3):
        text = batch.data.decode()
        # json.dumps would write 12.50 as 12.5: make it write a text instead, and remove the quotes.
        read = [json.loads(line, parse_float="#{}#".format, parse_int="#{}#".format) for line in text.splitlines()]
        events = read if style is JsonStyle.NDJSON else read[0]
        assert len(events) == PLAN.batch_size
        assert re.sub(r'"#([-\d.e]+)#"', r"\1", again(events)) == text


def test_names_sort_by_time_and_never_repeat(contract: Contract) -> None:
    names = [batch.name for batch in made(SOUND, contract)]
    assert names == sorted(set(names))
    assert names[0] == "dt=2026-01-31/hh=23/20260131T235958.000000Z-000000.json"
    assert names[2] == "dt=2026-02-01/hh=00/20260201T000000.000000Z-000002.json"
    times = [START + timedelta(microseconds=step) for step in (0, 0, 1, 999_999, 1_000_000, 3_600_000_000)]
    for (first, one), (second, other) in pairwise(enumerate(times)):
        assert batch_name(one, first) < batch_name(other, second)


def test_products_appear_from_a_batch_on(contract: Contract) -> None:
    batches = made(replace(SOUND, evolve_after=3), contract, 6)
    has_product = [
        {"product_id" in event for event in json.loads(batch.data) if event["event_type"] == "purchase"}
        for batch in batches
    ]
    assert has_product == [{False}] * 3 + [{True}] * 3


def test_users_come_back(contract: Contract) -> None:
    users = {event["user_id"] for batch in made(SOUND, contract) for event in json.loads(batch.data)}
    assert len(users) == SOUND.users


def test_faults_are_about_as_frequent_as_asked(contract: Contract) -> None:
    tally = Tally(PLAN.seed)
    for batch in made(replace(PLAN, chances=Chances(0.3, 0.2, 0.1, 0.15)), contract, 400):
        tally.add(batch)
    assert tally.corrupt_batches / tally.batches == pytest.approx(0.3, abs=0.06)
    assert tally.records_with("invalid") / tally.events == pytest.approx(0.2, abs=0.02)
    assert tally.records_with("extra") / tally.events == pytest.approx(0.1, abs=0.02)
    assert tally.records_with("duplicate") / tally.events == pytest.approx(0.15, abs=0.02)


def test_duplicates_are_verbatim_within_and_across_batches(contract: Contract) -> None:
    first_seen: dict[bytes, int] = {}
    within = across = 0
    for index, batch in enumerate(made(PLAN, contract, 30)):
        for record in batch.records:
            assert record.duplicate == (record.data in first_seen)
            if record.duplicate:
                within += first_seen[record.data] == index
                across += first_seen[record.data] < index
            first_seen.setdefault(record.data, index)
    assert within
    assert across
