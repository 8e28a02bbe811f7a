"""Events of every seed meet their contract."""

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.selection import examples

from lakeproof.contracts import Contract
from producer.events import Pools, make_event, make_pools
from producer.seeds import seeded

NOW = datetime(2026, 1, 31, 0, 0, 3, tzinfo=UTC)
POOLS = make_pools(1, 10)


def made(seed: int, pools: Pools = POOLS, now: datetime = NOW, with_product: bool = True) -> bytes:
    return msgspec.json.encode(make_event(seeded(seed, "events"), pools, now, with_product=with_product))


@given(seed=st.integers(), with_product=st.booleans())
def test_an_event_meets_its_contract(contract: Contract, reasons: Any, seed: int, with_product: bool) -> None:
    data = made(seed, with_product=with_product)
    event = json.loads(data, parse_float=Decimal)
    assert reasons(event) == []
    assert set(event) <= {field.name for field in contract}
    assert {field.name for field in contract if field.required} <= set(event)
    assert event["event_type"] in next(field for field in contract if field.name == "event_type").allowed
    assert event["user_id"] in POOLS.users
    assert timedelta() <= NOW - datetime.fromisoformat(event["event_timestamp"]) <= timedelta(seconds=10)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["event_timestamp"])
    if event["event_type"] == "purchase":
        assert set(event["properties"]) == {"amount", "currency"}
        assert re.search(rb'"amount":(\d+(\.\d\d)?|-0(\.0)?|1e2),', data)
        assert event["amount"] == event["properties"]["amount"] >= 0
        assert ("product_id" in event) == with_product
    else:
        assert set(event["properties"]) == {"url", "user_agent"}
        assert not {"amount", "product_id"} & set(event)


@given(seed=st.integers())
def test_time_and_evolution_change_nothing_else(seed: int) -> None:
    one = json.loads(made(seed))
    other = json.loads(made(seed, now=NOW + timedelta(days=1), with_product=False))
    for event in (one, other):
        event.pop("event_timestamp")
        event.pop("product_id", None)
    assert one == other


def test_the_last_zero_of_an_amount_stays() -> None:
    amounts = [product.price for product in POOLS.products]
    assert any(bytes(amount).endswith(b"0") for amount in amounts)
    usual = [amount for amount in amounts if re.fullmatch(rb"\d+\.\d\d", bytes(amount))]
    assert len(amounts) * 0.8 < len(usual) < len(amounts)


def test_some_amounts_are_zeros_of_every_form_and_some_whole_numbers() -> None:
    amounts = {bytes(product.price) for seed in range(4) for product in make_pools(seed, 1).products}
    assert {b"0", b"0.00", b"-0", b"-0.0", b"1e2"} < amounts
    assert any(re.fullmatch(rb"[1-9]\d*", amount) for amount in amounts)


@settings(max_examples=examples(5), deadline=None)
@given(seed=st.integers(), users=st.integers(1, 50))
def test_a_seed_fixes_the_pools(seed: int, users: int) -> None:
    pools = make_pools(seed, users)
    assert pools == make_pools(seed, users)
    assert len(set(pools.users)) == users
    assert all(pools.__dict__.values())


def test_another_seed_is_another_world() -> None:
    assert not set(make_pools(1, 50).users) & set(make_pools(2, 50).users)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_time_zone_of_the_machine_changes_nothing(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert make_pools(1, 10) == POOLS
        assert made(3) == made(3)
    finally:
        monkeypatch.undo()
        time.tzset()
