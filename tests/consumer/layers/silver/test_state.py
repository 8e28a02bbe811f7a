"""The strategy `state`: verdicts equal the model, whatever happens to the index."""

import shutil
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from rocksdict import Cache
from tests.consumer.lake import Drain, SessionOf
from tests.consumer.layers.silver.lakes import (
    NOON,
    check,
    days,
    decide_all,
    land,
    silver_layer,
    silver_of,
    with_strategy,
)
from tests.consumer.layers.silver.model import Row
from tests.consumer.layers.silver.test_verdicts import EPOCH, micros, narrow
from tests.lakes import changed
from tests.operations import tables
from tests.operations.pieces import back_up, restore

from consumer.layers import buckets
from consumer.layers.rebuild import rebuild
from consumer.layers.silver.key_index import KeyIndex
from consumer.layers.silver.progress import Range
from consumer.layers.silver.state import KeptKeys, Silver
from lakeproof.settings import Settings
from lakeproof.tables.names import SOURCE

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(lake_settings: Settings, tmp_path: Path) -> Settings:
    """Return a lake with the strategy `state`."""
    return with_strategy(lake_settings, tmp_path / "contracts", "state")


class Lake:
    """Lands files with a duplicate, a conflict and a new key, and lets silver decide them."""

    def __init__(self, settings: Settings, drain: Drain, session_of: SessionOf) -> None:
        self._settings = settings
        self._drain = drain
        self._session_of = session_of
        self._count = 0

    def step(self, settings: Settings | None = None) -> None:
        at = NOON + days(self._count)
        events = [(f"k{self._count}", at, "x"), ("k0", NOON, "x"), (f"k{self._count - 1}", at, "other")]
        land(self._settings, f"{self._count}.json", *events)
        self._count += 1
        self._drain(self._settings)
        assert decide_all(self._session_of(self._settings), settings or self._settings) == 1
        check(self._settings)


def test_a_key_that_was_kept_twice_is_found_in_its_newer_row(lake_settings: Settings) -> None:
    """The horizon passes the first row within the micro-batches that silver decides at once."""
    hour = timedelta(hours=1)
    first, between, second = (
        Row(number, f"{number}.json", 0, key, EPOCH + hours * hour, "x", EPOCH + 5 * hour)
        for number, (key, hours) in enumerate([("a", 2.25), ("b", 4.5), ("a", 2.75)])
    )
    end = 0

    def newest() -> Any:
        return SimpleNamespace(marker=SimpleNamespace(end=end), snapshot_id=end) if end else None

    unused: Any = None
    table: Any = SimpleNamespace(newest=newest, table_id=lambda: "", descends_from=bool)
    contract: Any = SimpleNamespace(digest="")
    keys, wanted = KeptKeys(lake_settings, "events"), pa.chunked_array([[b"a"]], pa.binary())
    keys.find(Silver(unused, unused, table, contract, micros(EPOCH + 2 * hour), None), wanted)
    # Rows come with the largest data file first.
    keys.decided(Range(0, 3, {}, of_topic=False), narrow([second, between, first]), {})
    end = 3
    found = keys.find(
        Silver(unused, unused, table, contract, micros(EPOCH + 2 * hour), micros(EPOCH + 2.5 * hour)), wanted
    )
    assert found[SOURCE].to_pylist() == [second.source]
    keys.close()


@pytest.mark.all
def test_the_index_may_be_lost_old_or_of_another_strategy(
    lake: Settings, drain_directly: Drain, session_of: SessionOf, tmp_path: Path
) -> None:
    steps = Lake(lake, drain_directly, session_of)
    index, copy = lake.silver.index / "events", tmp_path / "copy"
    steps.step()
    steps.step()
    shutil.copytree(index, copy)
    steps.step()
    steps.step()
    shutil.rmtree(index)
    shutil.copytree(copy, index)  # it is behind: missing keys are read from silver
    steps.step()
    shutil.rmtree(index)  # lost
    # With one row at a time, the index is filled in several steps.
    steps.step(changed(lake, LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH=1))
    shutil.rmtree(index)
    shutil.copytree(copy, index)
    tables.maintain(session_of(lake), "silver.events")  # its commit is no longer in silver's history
    steps.step()


@pytest.mark.all
def test_a_damaged_index_is_filled_again(
    lake: Settings,
    drain_directly: Drain,
    session_of: SessionOf,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Damage within a file is noticed at a look-up, in a running consumer, too."""
    monkeypatch.setattr(buckets, "_CACHE", Cache(1))  # cached blocks would hide the damage
    steps = Lake(lake, drain_directly, session_of)
    steps.step()
    steps.step()
    flip_a_bit(lake.silver.index / "events")
    steps.step()
    assert "block checksum mismatch" in capfd.readouterr().out
    assert list(lake.silver.index.iterdir()) == [lake.silver.index / "events"]  # the index was not taken to be in use
    with silver_of(lake) as process:
        process.take(session_of(lake))
        land(lake, "a.json", ("k0", NOON, "x"))
        drain_directly(lake)
        process.take(session_of(lake))
        flip_a_bit(lake.silver.index / "events")
        land(lake, "b.json", ("k0", NOON, "x"), ("k1", NOON, "other"), ("b", NOON, "x"))
        drain_directly(lake)
        process.take(session_of(lake))
    assert "block checksum mismatch" in capfd.readouterr().out
    check(lake)


def flip_a_bit(index: Path) -> None:
    """Flip a bit in a block of keys of each table of an index."""
    for table in index.glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[10] ^= 1
        table.write_bytes(content)


@pytest.mark.long
def test_an_index_of_another_silver_is_not_used(
    lake: Settings, drain_directly: Drain, session_of: SessionOf, tmp_path: Path
) -> None:
    steps = Lake(lake, drain_directly, session_of)
    steps.step()
    steps.step()
    back_up(lake, tmp_path / "copy")  # everything except the index
    steps.step()
    rebuild(lake, silver_layer(lake), lambda: session_of(lake))
    steps.step()
    restore(lake, tmp_path / "copy")  # the index is ahead, and belongs to another table
    steps.step()


@pytest.mark.long
def test_an_index_that_a_suspended_consumer_has_open_is_filled_anew_beside_it(
    lake: Settings, drain_directly: Drain, session_of: SessionOf
) -> None:
    steps = Lake(lake, drain_directly, session_of)
    steps.step()
    index = lake.silver.index / "events"
    of_the_suspended = KeyIndex(index, None)
    steps.step()
    steps.step()
    assert len(list(index.parent.glob("events.*"))) == 1  # a killed consumer would leave it, too
    of_the_suspended.close()
    steps.step()
    assert list(index.parent.iterdir()) == [index]
