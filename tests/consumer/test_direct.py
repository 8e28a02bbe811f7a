"""Micro-batches of `direct` match Spark's: same checkpoint, same tables, and each resumes from the other's state."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.app.accounts import check, land, landed_names
from tests.consumer.crashes import crash_before
from tests.consumer.lake import Drain, rows
from tests.lakes import changed
from tests.selection import covering, grid

from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark


def checkpoint_of(settings: Settings) -> dict[str, Any]:
    """Return offsets and commits by number, without Spark's own notes."""
    folder = settings.home / "checkpoints" / "bronze-events"
    offsets = {path.name: path.read_text().splitlines() for path in (folder / "offsets").glob("[0-9]*")}
    commits = {path.name: path.read_text() for path in (folder / "commits").glob("[0-9]*")}
    return {
        "offsets": {number: (lines[0], json.loads(lines[2])) for number, lines in offsets.items()},
        "commits": commits,
        "metadata": sorted(json.loads((folder / "metadata").read_text())),
    }


def tables_of(settings: Settings) -> dict[str, Any]:
    """Return all rows, without times, positions of the landing log and the number of the checkpoint."""
    return {
        table: sorted(
            json.dumps({name: value for name, value in row.items() if not name.endswith("_at")}, default=str)
            for row in rows(settings, table)
        )
        for table in ("bronze.events", "dead_letters.events")
    }


def test_they_leave_what_spark_leaves(
    lake_settings: Settings, drain: Drain, drain_directly: Drain, tmp_path: Path
) -> None:
    found = []
    for number, run in enumerate((drain, drain_directly)):
        settings = changed(lake_settings, LAKE_HOME=str(tmp_path / f"lake-{number}"))
        landing = settings.home / "landing" / "events"
        run(settings)  # nothing has landed
        for names in (("1.json", "2.json", "all-bad.json"), ("none.json",)):
            land(landing, *names)
            run(settings)
        check(settings, landed_names(landing))
        found.append((checkpoint_of(settings)["commits"], tables_of(settings), checkpoint_of(settings)["metadata"]))
        offsets = checkpoint_of(settings)["offsets"]
        found[-1] = (*found[-1], {number: (version, sorted(offset)) for number, (version, offset) in offsets.items()})
    assert found[0] == found[1]


AXES = {
    "files": ["1", "2", "100"],
    "crashed": ["no", "before 0", "before 1", "before 2"],
    "lost": ["nothing", "checkpoint"],
}
BY_DEFAULT = covering(list(AXES.values()), 1)
CASES = sorted(BY_DEFAULT | covering(list(AXES.values()), 2))


@pytest.mark.all
@pytest.mark.parametrize(
    ("files", "crashed", "lost"),
    [pytest.param(*case, marks=[pytest.mark.long] * (case not in BY_DEFAULT), id=", ".join(case)) for case in CASES],
)
def test_they_leave_the_same_over_crashes_and_losses(
    lake_settings: Settings,
    drain: Drain,
    drain_directly: Drain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: str,
    crashed: str,
    lost: str,
) -> None:
    """Try each pair of a file limit, a crash before an append, and a loss, with two starts of Spark for each lake."""
    found = []
    for number, run in enumerate((drain, drain_directly)):
        own = {"LAKE_HOME": str(tmp_path / f"lake-{number}"), "LAKE_MAX_FILES_PER_MICRO_BATCH": files}
        settings = changed(lake_settings, **own)
        landing = settings.home / "landing" / "events"
        land(landing, "1.json", "2.json", "all-bad.json")
        if crashed == "no":
            run(settings)
        else:
            crash_before(monkeypatch)(int(crashed.removeprefix("before ")))
            with pytest.raises(LakeproofError, match="as asked"):
                run(settings)
        if lost == "checkpoint":
            shutil.rmtree(settings.home / "checkpoints")
        land(landing, "3.json")
        run(settings)
        check(settings, landed_names(landing))
        checkpoint = checkpoint_of(settings)
        offsets = {name: (version, offset.get("seq")) for name, (version, offset) in checkpoint["offsets"].items()}
        found.append((tables_of(settings), checkpoint["commits"], offsets))
    assert found[0] == found[1]


@pytest.mark.all
@grid(first=["Spark", "directly"], crashed={"committed": False, "planned only": True})
def test_each_goes_on_from_the_others_checkpoint(
    lake_settings: Settings, drain: Drain, drain_directly: Drain, first: str, crashed: bool
) -> None:
    landing = lake_settings.home / "landing" / "events"
    one, other = (drain, drain_directly) if first == "Spark" else (drain_directly, drain)
    land(landing, "1.json")
    one(lake_settings)
    land(landing, "2.json", "3.json")
    one(lake_settings)
    before = checkpoint_of(lake_settings)
    if crashed:
        newest = max(before["commits"], key=int)
        (lake_settings.home / "checkpoints" / "bronze-events" / "commits" / newest).unlink()
        for crc in (lake_settings.home / "checkpoints").rglob("*.crc"):
            crc.unlink()
    land(landing, "4.json")
    other(lake_settings)
    after = checkpoint_of(lake_settings)
    assert after["offsets"].items() >= before["offsets"].items()
    assert len(after["offsets"]) == len(before["offsets"]) + 1
    check(lake_settings, landed_names(landing))


def test_they_fail_alike(lake_settings: Settings, drain: Drain, drain_directly: Drain) -> None:
    landing = lake_settings.home / "landing" / "events"
    land(landing, "1.json")
    drain(lake_settings)
    for file in lake_settings.home.glob("landing-log.db*"):
        file.unlink()
    said = []
    for run in (drain, drain_directly):
        with pytest.raises(LakeproofError) as refused:
            run(lake_settings)
        said.append((type(refused.value), refused.value.message, refused.value.hint))
    assert said[0] == said[1]
