"""Discovery takes every complete file once, whatever its name, age or folder, and skips files that still grow."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from consumer.sources.files import discovery as discovery_module
from consumer.sources.files.discovery import Discovery
from lakeproof.landing.selection import Selection
from lakeproof.landing.zone import LandingZone
from lakeproof.settings import S3Settings
from lakeproof.state import landing_log
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage import StoredFile

SETTLE = timedelta(hours=1)  # longer than any pause of the machine


class Clock:
    """The monotonic clock of the discovery, which only tests and the discovery's own sleep move."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(discovery_module, "time", clock)
    return clock


@pytest.fixture
def log() -> LandingLog:
    return LandingLog("sqlite://", "events")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


@pytest.fixture
def discovery(folder: Path, log: LandingLog) -> Discovery:
    return Discovery(LandingZone(folder.as_uri(), S3Settings()), log, SETTLE)


def land(path: Path, age: float = 86400) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"[]")
    os.utime(path, (time.time() - age, time.time() - age))


def names(log: LandingLog) -> list[str]:
    return [file.name.rpartition("/")[2] for file in log.files(0, log.head().seq)]


def test_all_ages_folders_and_names_but_hidden_ones_are_taken(
    folder: Path, discovery: Discovery, log: LandingLog
) -> None:
    land(folder / "_SUCCESS")
    land(folder / ".part-0.json.crc")
    land(folder / "_temporary" / "0" / "part-0.json")
    land(folder / "copied.json._COPYING_")
    land(folder / "unfinished.json.tmp")
    land(folder / "old.json", age=10 * 365 * 86400)
    land(folder / "deep" / "deeper" / "sub.json")
    land(folder / "_day=1" / "a_b.json")
    land(folder / "sp ace ü🎉%.json")
    assert discovery.recent() == 4
    assert set(names(log)) == {"old.json", "sub.json", "a_b.json", "sp ace ü🎉%25.json"}
    assert discovery.recent() == discovery.sweep() == 0


def test_a_growing_file_is_left_until_it_is_stable(
    folder: Path, discovery: Discovery, log: LandingLog, clock: Clock
) -> None:
    path = folder / "growing.json"
    for _ in range(4):
        with path.open("ab") as file:
            file.write(b"[1]")
        assert discovery.recent() == 0
        clock.sleep(SETTLE.total_seconds() / 3)
    clock.sleep(SETTLE.total_seconds())
    assert discovery.recent() == 1
    assert log.files(0, 1)[0].size == path.stat().st_size


def test_a_file_from_the_future_is_taken_once_it_is_stable(folder: Path, discovery: Discovery, clock: Clock) -> None:
    land(folder / "tomorrow.json", age=-86400)
    assert discovery.recent() == 0
    clock.sleep(SETTLE.total_seconds())
    assert discovery.recent() == 1


def test_a_young_file_that_is_renamed_is_taken_once(
    folder: Path, discovery: Discovery, log: LandingLog, clock: Clock
) -> None:
    land(folder / "a.json", age=0)
    assert discovery.recent() == 0
    (folder / "a.json").rename(folder / "b.json")
    for _ in range(3):
        clock.sleep(SETTLE.total_seconds())
        discovery.recent()
    assert names(log) == ["b.json"]


def test_recent_sees_files_added_to_folders_it_knows(folder: Path, discovery: Discovery, log: LandingLog) -> None:
    land(folder / "hour" / "1.json")
    discovery.recent()
    for number in range(2, 30):
        land(folder / "hour" / f"{number}.json")
        assert discovery.recent() == 1, number
    land(folder / "0.json")
    land(folder / "other" / "hour" / "1.json")
    assert discovery.recent() == 2
    assert len(names(log)) == 31


def test_available_now_waits_for_young_files_and_names_those_that_still_grow(
    folder: Path, discovery: Discovery, log: LandingLog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(folder / "young.json", age=0)
    growing = folder / "growing.json"
    land(growing, age=0)
    sleep = clock.sleep

    def grow_and_sleep(seconds: float) -> None:
        sleep(seconds)
        growing.write_bytes(b"[1, 2]")

    monkeypatch.setattr(clock, "sleep", grow_and_sleep)
    assert discovery.sweep_until_settled() == ["growing.json"]
    assert names(log) == ["young.json"]


class Bucket:
    """Lists objects in the order of their names, as S3 does."""

    shows_whole_files = True

    def __init__(self, count: int) -> None:
        self.keys = [f"{number:03d}.json" for number in range(count)]
        self.listed = 0
        self.at_listing: Callable[[], None] = lambda: None

    def list(self) -> Iterator[StoredFile]:
        return self.list_recent(None)

    def list_recent(self, after: str | None) -> Iterator[StoredFile]:
        for key in self.keys:
            if after is None or f"s3://b/{key}" > after:
                self.listed += 1
                self.at_listing()
                yield StoredFile(f"s3://b/{key}", 2, "tag", datetime.now(UTC))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(discovery_module, "TAKEN_AT_ONCE", 40)
    monkeypatch.setattr(discovery_module, "_RECENT_FILES", 10)
    monkeypatch.setattr(landing_log, "_ROWS_AT_ONCE", 20)
    return Bucket(100)


def of_bucket(bucket: Bucket, log: LandingLog, monkeypatch: pytest.MonkeyPatch) -> Discovery:
    zone = LandingZone("s3://b", S3Settings())
    monkeypatch.setattr(LandingZone, "storage", bucket)
    return Discovery(zone, log, SETTLE)


def test_files_of_a_bucket_are_taken_while_it_is_listed(
    bucket: Bucket, log: LandingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    discovery = of_bucket(bucket, log, monkeypatch)
    seen = []

    def look() -> None:
        bucket.at_listing = lambda: None  # but not within this look
        seen.append((log.head().seq, discovery.recent()))
        bucket.at_listing = look

    bucket.at_listing = look
    assert discovery.sweep() == 100
    assert seen == [(number // 40 * 40, 0) for number in range(100)]
    assert bucket.listed == 100
    assert names(log) == bucket.keys


def test_a_look_at_a_bucket_takes_only_so_many_files(
    bucket: Bucket, log: LandingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one goes on behind them, as after a crash in the first sweep."""
    discovery = of_bucket(bucket, log, monkeypatch)
    found = [discovery.recent() for _ in range(5)]
    assert found == [40, 31, 29, 0, 0]
    assert names(log) == bucket.keys
    assert bucket.listed < 5 * 42


def test_named_files_that_are_not_read_are_not_looked_at(
    folder: Path, log: LandingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket may deny it, and then the consumer would end."""
    zone = LandingZone(folder.as_uri(), S3Settings(), Selection(exclude=("private/**",), of_others=True))
    keys = ("a.json", "private/b.json", "c.parquet", "_SUCCESS")
    for key in keys:
        land(folder / key)
    asked: list[str] = []
    stat = LandingZone.stat

    def look(self: LandingZone, name: str) -> StoredFile | None:
        asked.append(name)
        return stat(self, name)

    monkeypatch.setattr(LandingZone, "stat", look)
    assert Discovery(zone, log, SETTLE).named([f"{folder.as_uri()}/{key}" for key in keys]) == 1
    assert (asked, names(log)) == (["a.json"], ["a.json"])
