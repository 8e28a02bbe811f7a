"""Crashes between the appends, lost checkpoints, lost landing logs: every unit stays in its place, once."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.lake import Drain, rows
from tests.consumer.removal.accounts import check, land, landed_names
from tests.selection import grid

from consumer.layers import base
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark

CRASHES = ["before bronze", "before dead letters", "before ledger", "after ledger"]


class CrashError(LakeproofError):
    pass


@pytest.fixture
def drain(drain_directly: Drain) -> Drain:
    """Drain directly: these tests run a stream many times, and are about its tables."""
    return drain_directly


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that lets the next run fail at one of the steps in `CRASHES`."""
    real = base.append_once

    def arm(step: str) -> None:
        left = CRASHES.index(step)

        def append_or_crash(*arguments: Any) -> bool:
            nonlocal left
            if left == 0:
                raise CrashError("crashed, as asked")
            left -= 1
            done = real(*arguments)
            if left == 0 and step == "after ledger":
                raise CrashError("crashed, as asked")
            return done

        monkeypatch.setattr(base, "append_once", append_or_crash)

    def disarm() -> None:
        monkeypatch.setattr(base, "append_once", real)

    arm.disarm = disarm  # type: ignore[attr-defined]
    return arm


@grid(step=CRASHES, checkpoint=["kept", "lost"])
def test_the_next_run_loses_and_doubles_nothing(
    lake_settings: Settings, landing: Path, drain: Drain, crash: Any, step: str, checkpoint: str
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    for name in ("2.json", "all-bad.json", "none.json"):
        land(landing, name)
    crash(step)
    with pytest.raises(CrashError):
        drain(lake_settings)
    crash.disarm()
    if checkpoint == "lost":
        shutil.rmtree(lake_settings.home / "checkpoints")
    land(landing, "3.json")
    drain(lake_settings)
    check(lake_settings, landed_names(landing))


@pytest.mark.all
@grid(step=CRASHES[1:3], checkpoint=["kept", "lost"])
def test_a_file_overwritten_between_crash_and_replay_keeps_the_rows_it_had(
    lake_settings: Settings, landing: Path, drain: Drain, crash: Any, step: str, checkpoint: str
) -> None:
    drain(lake_settings)
    land(landing, "1.json")
    land(landing, "2.json")
    crash(step)
    with pytest.raises(CrashError):
        drain(lake_settings)
    crash.disarm()
    if checkpoint == "lost":
        shutil.rmtree(lake_settings.home / "checkpoints")
    (landing / "1.json").write_bytes(b"[1,2,3]")
    drain(lake_settings)
    drain(lake_settings)
    first, second = (f"{number}.json" for number in (1, 2))
    bronze = [(row["_source"], row["_position"]) for row in rows(lake_settings, "bronze.events")]
    assert sorted(bronze) == [(first, 0), (second, 0)]
    dead = [(row["_source"], row["_position"]) for row in rows(lake_settings, "dead_letters.events")]
    # Except for its bronze row, the content of the overwritten file is lost, unless it was committed before.
    assert sorted(dead) == ([(second, 1)] if step == "before dead letters" else [(first, 1), (second, 1)])
    ledger = {row["source"]: (row["units"], row["bronze"]) for row in rows(lake_settings, "ledger.events")}
    assert ledger == {first: (1, 1), second: (2, 1)}


@pytest.mark.all
def test_checkpoint_and_landing_log_lost_together_lose_and_double_nothing(
    lake_settings: Settings, landing: Path, drain: Drain, crash: Any
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    land(landing, "2.json")
    crash("before dead letters")
    with pytest.raises(CrashError):
        drain(lake_settings)
    crash.disarm()
    shutil.rmtree(lake_settings.home / "checkpoints")
    for file in lake_settings.home.glob("landing-log.db*"):
        file.unlink()
    drain(lake_settings)
    check(lake_settings, landed_names(landing))


def test_a_landing_log_that_is_not_the_checkpoints_is_refused(
    lake_settings: Settings, landing: Path, drain: Drain
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    for file in lake_settings.home.glob("landing-log.db*"):
        file.unlink()
    land(landing, "2.json")
    with pytest.raises(LakeproofError):
        drain(lake_settings)
    assert len(rows(lake_settings, "bronze.events")) == 1
