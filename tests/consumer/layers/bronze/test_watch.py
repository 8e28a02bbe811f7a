"""What the breaker remembers of a stream between micro-batches. No Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from consumer.layers.bronze.breaker import Watch
from consumer.layers.bronze.ledger import MicroBatch, Outcome
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MARKER: Any = None  # of a micro-batch that does not trip the breaker


def test_a_good_stream_is_remembered_for_as_long_as_the_breaker_counts(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = load_contract(lake_settings.contracts, "events")
    assert contract.breaker.over == timedelta(hours=1)
    watch = Watch(lake_settings, "events")
    monkeypatch.setattr(watch, "_read", lambda _: [])

    def take(seconds: int, outcomes: dict[Outcome, int]) -> None:
        batch = MicroBatch(seconds, "id", contract, NOON + timedelta(seconds=seconds))
        watch.check(MARKER, batch, outcomes, {}, None)
        watch.committed(batch, outcomes, None)

    take(0, {("a", "wrong_type"): 1})
    for seconds in range(10, 30_000, 10):
        take(seconds, {("a", None): 1})
        assert len(watch._recent) <= 361
    assert [each.at for each in watch._recent] == [NOON + timedelta(seconds=at) for at in range(26_400, 30_000, 10)]
