"""Random streams match the plain models from landed files to gold, with crashes and losses in between.

`make fuzz ARGS=layers` runs 200 streams with each strategy, `make test` one.
"""

import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.consumer.lake import Drain, SessionOf, rows
from tests.consumer.layers.gold.lakes import fill, found
from tests.consumer.layers.gold.model import Order, Spec, best, windows
from tests.consumer.layers.silver.lakes import Event, check, decide_all, land, with_strategy
from tests.lakes import changed
from tests.operations import tables
from tests.operations.pieces import Piece, lose

from consumer.iceberg import append
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark

SEEDS = 200
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
MAINTAINED = ("bronze.events", "ledger.events", "silver.events", "silver.events_conflicts", "gold.tumbling")

_MEASURES = """\
measures:
  events: count(*)
  contents: count(DISTINCT user_id)
  first: min(event_timestamp)
"""
_MODEL: dict[str, Callable[[list[Order]], Any]] = {
    "events": len,
    "contents": lambda orders: len({order["user_id"] for order in orders}),
    "first": best("ordered_at", min),
}
SPECS = (
    Spec(
        f"name: tumbling\nsilver: events\nkeys: [user_id]\nwindow: {{size: 1 hour}}\n{_MEASURES}",
        ("user_id",),
        _MODEL,
        HOUR,
        HOUR,
    ),
    Spec(
        f"name: sliding\nsilver: events\nkeys: []\nwindow: {{size: 2 days, every: 6 hours}}\n{_MEASURES}",
        (),
        _MODEL,
        2 * DAY,
        6 * HOUR,
    ),
    Spec(
        f"name: final\nsilver: events\nkeys: [user_id]\nwindow: {{size: 1 day}}\npublish: final\n{_MEASURES}",
        ("user_id",),
        _MODEL,
        DAY,
        DAY,
        final=True,
    ),
)


class Crashes:
    """Crashes a process around a commit to any table, when armed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left: int | None = None
        self._committed = False
        self.count = 0
        real = append._commit

        def commit_or_crash(transaction: Any) -> None:
            if self._left is None:
                real(transaction)
                return
            self._left -= 1
            if self._left >= 0:
                real(transaction)
                return
            self._left = None
            self.count += 1
            if self._committed:
                real(transaction)
            raise LakeproofError("crashed, as asked")

        monkeypatch.setattr(append, "_commit", commit_or_crash)

    def through(self, run: Callable[[], object], before: int | None, committed: bool) -> None:
        """Run something that crashes after commit number `before`, or just before it; at no commit if None."""
        self._left, self._committed = before, committed
        crashed = self.count
        try:
            run()
        except LakeproofError as error:
            if "as asked" not in error.message or self.count == crashed:
                raise
        self._left = None


class Stream:
    """Random events with few keys, most of them recent."""

    def __init__(self, settings: Settings, chance: random.Random) -> None:
        self._settings = settings
        self._chance = chance
        self._files = 0
        self._now = BEGINNING
        self.landed: set[tuple[str, int]] = set()

    def land(self) -> None:
        """Land a file, some time after the previous one."""
        chance = self._chance
        self._now += chance.choice((HOUR / 7, 5 * HOUR, DAY, 4 * DAY))
        events = [self._event() for _ in range(chance.randint(0, 12))]
        events += chance.sample(events, min(len(events), chance.choice((0, 0, 2))))
        name = f"{self._files:03}.json"
        land(self._settings, name, *events)
        self.landed |= {(name, position) for position in range(len(events))}
        self._files += 1

    def _event(self) -> Event:
        chance = self._chance
        back = chance.choice((timedelta(0), HOUR, HOUR, DAY, 5 * DAY, 9 * DAY, 20 * DAY))
        # Use whole hours, so that copies of an event and the edges of windows occur.
        at = self._now - (back if chance.random() < 0.5 else back * chance.random())
        return f"e{chance.randint(0, 15)}", at.replace(minute=0, second=0, microsecond=0), chance.choice("ab")


def check_all(settings: Settings, stream: Stream) -> None:
    """Check that bronze is what landed, and that each layer is what the model makes of the previous one."""
    bronze = {(row["_source"], row["_position"]): row for row in rows(settings, "bronze.events")}
    assert len(rows(settings, "bronze.events")) == len(bronze)
    assert bronze.keys() == stream.landed
    kept = [bronze[place] for place, (verdict, _) in check(settings).items() if verdict == "kept"]
    orders = [{"ordered_at": row["event_timestamp"], "user_id": row["user_id"]} for row in kept]
    silver = load_contract(settings.contracts, "events").silver
    assert silver
    assert silver.horizon
    newest = max((min(row["event_timestamp"], row["_ingested_at"]) for row in bronze.values()), default=None)
    for spec in SPECS:
        assert found(settings, spec) == windows(orders, spec, newest and newest - silver.horizon)


@pytest.mark.all
@pytest.mark.parametrize("strategy", ["merge", "state"])
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] if seed else []) for seed in range(SEEDS)]
)
def test_every_layer_is_as_the_models_say(
    lake_settings: Settings,
    drain_directly: Drain,
    session_of: SessionOf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    strategy: str,
) -> None:
    chance = random.Random(seed)
    (tmp_path / "gold").mkdir()
    lake = with_strategy(changed(lake_settings, LAKE_GOLD=tmp_path / "gold"), tmp_path / "contracts", strategy)
    spark, stream, crashes = session_of(lake), Stream(lake, chance), Crashes(monkeypatch)
    copy = tmp_path / "index"
    for _ in range(chance.randint(2, 3)):
        for _ in range(chance.randint(1, 4)):
            stream.land()
        settings = changed(
            lake,
            LAKE_MAX_FILES_PER_MICRO_BATCH=chance.choice((1, 2, 100)),
            LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH=chance.choice((1, 15, 1000)),
        )
        disturb(spark, settings, chance, copy)
        run_all(spark, settings, drain_directly, crashes, chance)
    run_all(spark, lake, drain_directly, crashes, None)
    check_all(lake, stream)


def run_all(
    spark: SparkSession, settings: Settings, drain: Drain, crashes: Crashes, chance: random.Random | None
) -> None:
    """Let each layer take the rows of the previous one, with random crashes at its commits."""
    layers: list[Callable[[], object]] = [
        lambda: drain(settings),
        lambda: decide_all(spark, settings),
        *((lambda spec=spec: fill(spark, settings, spec)) for spec in SPECS),  # type: ignore[misc]
    ]
    for run in layers:
        crash = chance.randint(0, 6) if chance and chance.random() < 0.6 else None
        crashes.through(run, crash, bool(chance and chance.random() < 0.5))


def disturb(spark: SparkSession, settings: Settings, chance: random.Random, copy: Path) -> None:
    """Lose, restore or maintain (with another tool) a random part of the lake while no consumer runs."""
    index = settings.silver.index
    kind = chance.choice(("nothing", "checkpoints", "checkpoints and log", "index", "old index", "maintained"))
    if kind.startswith("checkpoints"):
        lose(settings, Piece.CHECKPOINTS, *([Piece.LANDING_LOG] if kind.endswith("log") else []))
    if kind.endswith("index"):
        old = copy.exists()
        shutil.copytree(index, copy.with_name("now")) if index.exists() and not old else None
        shutil.rmtree(index, ignore_errors=True)
        if kind == "old index" and old:
            shutil.copytree(copy, index)
        if copy.with_name("now").exists():
            copy.with_name("now").rename(copy)
    if kind == "maintained":
        name = chance.choice(MAINTAINED)
        if open_catalog(settings).table_exists(name):
            tables.maintain(spark, name)
