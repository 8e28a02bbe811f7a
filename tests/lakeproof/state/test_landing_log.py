"""The landing log: positions never change when more files land."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.selection import first_by_default
from tests.servers import PostgresServer

from lakeproof.errors import UnavailableError
from lakeproof.state import landing_log
from lakeproof.state.landing_log import LandedFile, LandingLog, Position
from lakeproof.storage import StoredFile

NOW = datetime(2026, 11, 21, 6, 0, 0, 123456, tzinfo=UTC)


def stored(name: str, etag: str = "1", at: datetime = NOW) -> tuple[str, StoredFile]:
    return name, StoredFile(f"file:///landing/{name}", 10, etag, at)


@pytest.fixture(params=first_by_default(["sqlite", "postgres"]))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database()
    return f"sqlite:///{tmp_path / 'log.db'}"


def test_positions_follow_the_order_of_discovery_not_of_names(database: str) -> None:
    log = LandingLog(database, "events")
    log.append([stored("b"), stored("c")])
    log.append([stored("a")])
    assert [(file.seq, file.name) for file in log.files(0, log.head().seq)] == [(1, "b"), (2, "c"), (3, "a")]


def test_a_file_is_known_by_its_name(database: str) -> None:
    log = LandingLog(database, "events")
    assert log.append([stored("a"), stored("a")]) == 1
    assert log.append([stored("a", etag="2")]) == 0
    assert LandingLog(database, "events").append([stored("a", etag="3")]) == 0
    assert [file.etag for file in log.files(0, 9)] == ["1"]


def test_two_that_discover_the_same_files_add_each_once(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspended consumer and its successor may both run for a moment."""
    woken, successor = LandingLog(database, "events"), LandingLog(database, "events")
    assert successor.append([stored("a")]) == 1
    with monkeypatch.context() as patched:
        patched.setattr(woken, "known_among", lambda _: set())  # it checked before the other one appended
        assert successor.append([stored("b")]) == 1
        assert woken.append([stored("b"), stored("c")]) == 0
    assert woken.append([stored("b"), stored("c")]) == 1
    assert [(file.seq, file.name) for file in successor.files(0, 9)] == [(1, "a"), (2, "b"), (3, "c")]


def test_streams_do_not_share_positions(database: str) -> None:
    events, sensors = LandingLog(database, "events"), LandingLog(database, "sensors")
    events.append([stored("a")])
    sensors.append([stored("a"), stored("b")])
    assert (events.head().seq, sensors.head().seq) == (1, 2)
    assert events.base != sensors.base


def test_reopened_it_is_the_same_log(database: str) -> None:
    log = LandingLog(database, "events")
    log.append([stored("ü 🎉 %2F'\"")])
    again = LandingLog(database, "events")
    assert (again.base, again.head()) == (log.base, log.head())
    assert again.files(0, 1) == log.files(0, 1)
    assert again.files(0, 1)[0].landed_at == NOW


def test_old_files_are_shortened_to_hashes_and_still_known(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few at a time, only files before the earliest position to resume from, and never the newest."""
    monkeypatch.setattr(landing_log, "SHORTENED_AT_ONCE", 2)
    monkeypatch.setattr(landing_log, "_KEPT_WHOLE", 2)
    old, log, other = NOW - timedelta(days=31), LandingLog(database, "events"), LandingLog(database, "sensors")
    names = [f"{number}.json" for number in range(9)]
    for start in (0, 3, 6):
        log.append(stored(name, at=old) for name in names[start : start + 3])
    other.append([stored("0.json", at=old)])
    positions = [log.position(seq) for seq in range(10)]
    assert log.shorten(9, before=old) == 0  # no file is that old
    assert log.shorten(1, before=NOW) == 0  # fewer than the number shortened at once
    assert log.shorten(5, before=NOW) == 2
    assert [file.name for file in log.files(0, 9)] == names[2:]
    assert [log.position(seq) for seq in range(10)] == [None, None, *positions[2:]]
    assert log.shorten(5, before=NOW) == 2
    assert log.shorten(5, before=NOW) == 0
    assert (log.base, log.head()) == (positions[4], positions[9])
    assert log.shorten(9, before=NOW) == 2  # the newest remain whole
    assert log.shorten(9, before=NOW) == 0
    again = LandingLog(database, "events")
    assert again.known_among([*names, "9.json"]) == set(names)
    assert again.append([stored("0.json", etag="2"), stored("9.json")]) == 1
    assert [(file.seq, file.name) for file in again.files(6, 99)] == [
        (7, "6.json"),
        (8, "7.json"),
        (9, "8.json"),
        (10, "9.json"),
    ]
    assert (len(other.files(0, 9)), other.known_among(names)) == (1, {"0.json"})
    log.rebuild(Position(3, "chain"), [LandedFile(0, "1.json", 1, "e", NOW)])
    assert log.known_among(names) == {"1.json"}


def test_a_file_with_a_wrong_time_does_not_keep_others_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing_log, "SHORTENED_AT_ONCE", 3)
    monkeypatch.setattr(landing_log, "_KEPT_WHOLE", 0)
    log, old = LandingLog("sqlite://", "events"), NOW - timedelta(days=31)
    log.append([stored("a", at=NOW + timedelta(days=9_999)), stored("b", at=old), stored("c", at=old)])
    log.append([stored("d", at=old), stored("e", at=NOW), stored("f", at=NOW)])
    assert [log.shorten(9, before=NOW), log.shorten(9, before=NOW)] == [3, 0]


@given(st.lists(st.tuples(st.sampled_from(["append", "shorten", "rebuild"]), st.sets(st.integers(0, 30))), max_size=12))
def test_no_file_is_taken_twice_whatever_is_shortened_or_rebuilt(steps: list[tuple[str, set[int]]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(landing_log, "SHORTENED_AT_ONCE", 2)
        patched.setattr(landing_log, "_KEPT_WHOLE", 1)
        log, taken = LandingLog("sqlite://", "events"), list[str]()
        for step, numbers in steps:
            head = log.head()
            if step == "append":
                log.append(stored(str(number)) for number in sorted(numbers))
                taken += [file.name for file in log.files(head.seq, 99)]
            elif step == "shorten":
                log.shorten(head.seq, NOW + timedelta(days=1))
            else:  # lost, then rebuilt from the ledger
                log.rebuild(head, [LandedFile(0, name, 1, "e", NOW) for name in taken])
            assert log.has(log.head())
            assert log.known_among([str(number) for number in range(31)]) == set(taken)
        assert len(taken) == len(set(taken)) == log.head().seq


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=8))
def test_a_range_of_positions_always_selects_the_same_files(appends: list[list[int]]) -> None:
    log = LandingLog("sqlite://", "events")
    ranges: dict[tuple[int, int], list[str]] = {}
    start = 0
    for names in appends:
        log.append(stored(str(name)) for name in names)
        end = log.head().seq
        ranges[start, end] = [file.name for file in log.files(start, end)]
        start = end
    for (start, end), uris in ranges.items():
        assert [file.name for file in log.files(start, end)] == uris
    taken = [uri for uris in ranges.values() for uri in uris]
    assert len(taken) == len(set(taken))
    assert set(taken) == {str(name) for names in appends for name in names}


def test_a_database_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="LAKE_LANDING_LOG_URI"):
        LandingLog(f"sqlite:///{tmp_path}/file/log.db", "events")


def test_a_position_is_told_by_all_names_up_to_it(database: str, tmp_path: Path) -> None:
    log = LandingLog(database, "events")
    log.append([stored("a"), stored("b")])
    head = log.head()
    assert log.has(head)
    assert Position.parse(str(head)) == head
    assert not log.has(Position(head.seq + 1, head.chain))
    log.append([stored("c")])
    assert log.has(head)
    other = LandingLog(f"sqlite:///{tmp_path / 'other.db'}", "events")
    other.append([stored("a"), stored("b")])
    assert not other.has(head)


def test_a_copy_that_went_on_differently_does_not_have_the_later_positions(tmp_path: Path) -> None:
    log = LandingLog(f"sqlite:///{tmp_path / 'log.db'}", "events")
    log.append([stored("a")])
    first = log.head()
    with sqlite3.connect(tmp_path / "copy.db") as copy, sqlite3.connect(tmp_path / "log.db") as original:
        original.backup(copy)
    log.append([stored("b")])
    second = log.head()
    older = LandingLog(f"sqlite:///{tmp_path / 'copy.db'}", "events")
    assert older.has(first)
    assert not older.has(second)
    older.append([stored("c")])
    assert older.head().seq == second.seq
    assert not older.has(second)


def test_made_anew_it_goes_on_behind_what_was_accounted_for(database: str) -> None:
    log = LandingLog(database, "events")
    log.append([stored("x")])
    base = Position(7, "chain")
    log.rebuild(base, [LandedFile(0, name, 1, "e", NOW) for name in ("b", "a")])
    for found in (log, LandingLog(database, "events")):
        assert found.head() == base
        assert found.has(base)
        assert found.known_among(["a", "x"]) == {"a"}
    assert log.append([stored("a"), stored("x")]) == 1
    assert [(file.seq, file.name) for file in log.files(base.seq, 99)] == [(8, "x")]
    assert log.position(6) is None  # earlier positions are no longer in use


def test_what_was_given_up_is_marked(database: str) -> None:
    log = LandingLog(database, "events")
    log.append([stored("a"), stored("b")])
    log.give_up(["b"])
    log.give_up(["b"])
    assert [(file.name, file.given_up) for file in log.files(0, 2)] == [("a", False), ("b", True)]
