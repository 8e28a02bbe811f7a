"""The landing log: positions never change, whatever lands later."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.sources.landing_log import LandingLog
from lakeproof.errors import UnavailableError
from lakeproof.storage import StoredFile

NOW = datetime(2026, 11, 21, 6, 0, 0, 123456, tzinfo=UTC)


def stored(name: str, etag: str = "1") -> StoredFile:
    return StoredFile(f"file:///landing/{name}", 10, etag, NOW)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'log.db'}"


def test_positions_follow_the_order_of_discovery_not_of_names(database: str) -> None:
    log = LandingLog(database, "events")
    log.append([stored("b"), stored("c")])
    log.append([stored("a")])
    assert [(file.seq, file.uri[-1]) for file in log.files(0, log.head())] == [(1, "b"), (2, "c"), (3, "a")]


def test_a_file_is_known_by_its_uri(database: str) -> None:
    log = LandingLog(database, "events")
    assert log.append([stored("a"), stored("a")]) == 1
    assert log.append([stored("a", etag="2")]) == 0
    assert LandingLog(database, "events").append([stored("a", etag="3")]) == 0
    assert [file.etag for file in log.files(0, 9)] == ["1"]


def test_streams_do_not_share_positions(database: str) -> None:
    events, sensors = LandingLog(database, "events"), LandingLog(database, "sensors")
    events.append([stored("a")])
    sensors.append([stored("a"), stored("b")])
    assert (events.head(), sensors.head()) == (1, 2)
    assert events.log_id != sensors.log_id


def test_reopened_it_is_the_same_log(database: str) -> None:
    log = LandingLog(database, "events")
    log.append([stored("ü 🎉 %2F'\"")])
    again = LandingLog(database, "events")
    assert again.log_id == log.log_id
    assert again.files(0, 1) == log.files(0, 1)
    assert again.files(0, 1)[0].landed_at == NOW


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=8))
def test_a_range_of_positions_always_selects_the_same_files(appends: list[list[int]]) -> None:
    log = LandingLog("sqlite://", "events")
    ranges: dict[tuple[int, int], list[str]] = {}
    start = 0
    for names in appends:
        log.append(stored(str(name)) for name in names)
        end = log.head()
        ranges[start, end] = [file.uri for file in log.files(start, end)]
        start = end
    for (start, end), uris in ranges.items():
        assert [file.uri for file in log.files(start, end)] == uris
    taken = [uri for uris in ranges.values() for uri in uris]
    assert len(taken) == len(set(taken))
    assert set(taken) == {stored(str(name)).uri for names in appends for name in names}


def test_a_database_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="LAKE_LANDING_LOG_URI"):
        LandingLog(f"sqlite:///{tmp_path}/file/log.db", "events")
