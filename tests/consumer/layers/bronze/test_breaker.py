"""The breaker: too many bad units warn or pause, and a pause holds until an operator has decided."""

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.consumer.breakers import apply_contract, write_contract
from tests.consumer.crashes import crash_before
from tests.consumer.lake import Drain, SessionOf, rows
from tests.consumer.removal.accounts import EVENT
from tests.lakes import changed
from tests.selection import grid

from consumer.app import repair
from consumer.layers.bronze import breaker, land
from consumer.layers.bronze.replay import Replay
from consumer.monitoring.query_status import Doing, exit_code
from consumer.monitoring.status import status
from consumer.monitoring.status_table import as_json
from consumer.queries.application import run_queries
from consumer.queries.replay import ReplayQuery
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError, PausedError
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

CONTRACTS = Path(__file__).parents[4] / "contracts"
PAUSE = "{share: 0.5, units: 4, over: micro-batch, action: pause}"


class Stream:
    """The stream events with a breaker."""

    def __init__(self, settings: Settings, folder: Path, drain: Drain) -> None:
        self.settings = changed(settings, LAKE_CONTRACTS=folder)
        self.landing = settings.home / "landing" / "events"
        self.landing.mkdir(parents=True)
        self._contracts = folder
        self._drain = drain

    def write(self, breaker: str, *types: str, version: str = "2.0.0") -> None:
        """Write a contract with the breaker that allows more types of events."""
        write_contract(self._contracts, breaker, *types, version=version)

    def apply(self) -> None:
        """Apply the contract."""
        apply_contract(self.settings)

    def land(self, name: str, good: int, bad: int) -> None:
        """Land a file; the event type of a bad record is not in the contract."""
        records = [EVENT | {"event_id": f"{name}-{index}"} for index in range(good + bad)]
        for record in records[good:]:
            record["event_type"] = "teleport"
        (self.landing / name).write_text(json.dumps(records))

    def drain(self, **variables: Any) -> None:
        """Take everything that has landed."""
        self._drain(changed(self.settings, **variables))

    def counts(self) -> tuple[int, int]:
        """Count the rows of bronze and the dead letters, and check that they are unique."""
        found = []
        for table in ("bronze.events", "dead_letters.events"):
            units = [(row["_source"], row["_position"]) for row in rows(self.settings, table)]
            assert len(units) == len(set(units))
            found.append(len(units))
        return found[0], found[1]

    def data_files(self) -> int:
        """Return the number of data files on disk."""
        return len(list(self.settings.home.glob("**/data/**/*.parquet")))

    def clean(self) -> bool:
        """Return whether `reader verify` finds nothing wrong."""
        (verified,) = verify(self.settings, "events")
        return bool(verified.clean)


@pytest.fixture
def stream(lake_settings: Settings, tmp_path: Path, drain_directly: Drain) -> Stream:
    return Stream(lake_settings, tmp_path / "contracts", drain_directly)


def paused(stream: Stream, **variables: Any) -> PausedError:
    with pytest.raises(PausedError) as caught:
        stream.drain(**variables)
    return caught.value


def fix(stream: Stream) -> None:
    """Correct the contract."""
    stream.write(PAUSE, "teleport", version="2.1.0")
    stream.apply()


def test_a_pause_commits_nothing_and_says_what_to_do(stream: Stream) -> None:
    stream.write(PAUSE)
    stream.land("1.json", 4, 0)
    stream.drain()
    files = stream.data_files()
    assert files
    stream.land("2.json", 2, 3)
    with capture_logs() as logs:
        error = paused(stream)
    assert error.exit_code == 5
    assert "3 of 5 units of a micro-batch are bad (60.0%" in error.message
    assert "not_allowed 3" in error.message
    assert "consumer accept events" in error.hint
    assert "lakeproof contract apply events" in error.hint
    (example,) = error.examples
    assert example.startswith("2.json, position 2: not_allowed at $.event_type")
    assert "teleport" in example
    (logged,) = [line for line in logs if line["event"] == breaker.EVENT]
    assert (logged["log_level"], logged["action"], logged["bad"], logged["units"]) == ("warning", "pause", 3, 5)
    assert logged["examples"][0]["source"] == "2.json"
    assert stream.counts() == (4, 0)
    assert stream.data_files() == files, "what was written for nothing is removed"


@pytest.mark.all
@pytest.mark.parametrize("lost", ["checkpoint", pytest.param("nothing", marks=pytest.mark.long)])
def test_a_restart_does_not_slip_past(stream: Stream, lost: str) -> None:
    stream.write(PAUSE)
    stream.drain()
    for number in range(4):
        stream.land(f"{number}.json", 0, 1)
    paused(stream)
    if lost == "checkpoint":
        repair.reset(stream.settings, "events")
    for number in range(4, 60):
        stream.land(f"{number}.json", 1, 0)
    # No breaker would trip on micro-batches of one unit, or on all units in one micro-batch.
    for files in (1, 1000):
        assert "4 of 4 units" in paused(stream, LAKE_MAX_FILES_PER_MICRO_BATCH=files).message
    assert stream.counts() == (0, 0)
    repair.accept(stream.settings, "events")
    stream.drain()
    assert stream.counts() == (56, 4)
    assert stream.clean()


@pytest.mark.parametrize("lost", ["checkpoint", pytest.param("nothing", marks=pytest.mark.long)])
def test_a_contract_that_was_put_right_lands_all_of_it(stream: Stream, lost: str) -> None:
    stream.write(PAUSE)
    stream.land("1.json", 5, 0)
    stream.drain()
    stream.land("2.json", 1, 9)
    paused(stream)
    fix(stream)
    if lost == "checkpoint":
        shutil.rmtree(stream.settings.home / "checkpoints")
    stream.land("3.json", 3, 0)
    stream.drain()
    assert stream.counts() == (18, 0)
    versions = {row["_source"]: row["_contract_version"] for row in rows(stream.settings, "bronze.events")}
    assert versions == {"1.json": "2.0.0", "2.json": "2.1.0", "3.json": "2.1.0"}
    stream.drain()
    assert stream.counts() == (18, 0)
    assert stream.clean()


def test_what_is_accepted_is_let_through_once(stream: Stream) -> None:
    stream.write(PAUSE)
    stream.land("1.json", 1, 9)
    paused(stream)
    assert repair.accept(stream.settings, "events") == [
        "events: 9 of 10 units of a micro-batch are bad (90.0%; the breaker of contract 2.0.0 trips at 0.5 of 4 units "
        "or more). Reasons: not_allowed 9."
    ]
    with capture_logs() as logs:
        stream.drain()
    assert [line["action"] for line in logs if line["event"] == breaker.EVENT] == ["accepted"]
    assert stream.counts() == (1, 9)
    assert repair.accept(stream.settings, "events") == []
    stream.land("2.json", 1, 9)
    paused(stream)
    assert stream.counts() == (1, 9)
    assert stream.clean()


@pytest.mark.all
@grid(crash=[0, 1, 2], way=["accepted", "fixed"])
def test_a_crash_after_the_decision_is_finished(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, way: str, crash: int
) -> None:
    stream.write(PAUSE)
    stream.land("0.json", 4, 0)
    stream.drain()
    stream.land("1.json", 2, 8)
    paused(stream)
    if way == "accepted":
        repair.accept(stream.settings, "events")
    else:
        fix(stream)
    crash_before(monkeypatch)(crash)
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        stream.drain()
    stream.land("2.json", 4, 0)
    stream.drain()
    assert stream.counts() == ((10, 8) if way == "accepted" else (18, 0))
    assert BreakerLog(stream.settings.state.database, "events").paused() == []
    assert stream.clean()


@pytest.mark.all
def test_a_micro_batch_that_bronze_has_is_finished_not_paused(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.write("{share: 0.5, units: 100}")
    stream.land("1.json", 1, 9)
    crash_before(monkeypatch)(1)
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        stream.drain()
    stream.write(PAUSE, version="2.0.1")
    stream.apply()
    stream.drain()
    assert stream.counts() == (1, 9)
    assert stream.clean()


@pytest.mark.all
def test_bad_units_of_a_time_are_counted_together(stream: Stream) -> None:
    stream.write("{share: 0.5, units: 10, over: 1 hour, action: pause}")
    for number in range(3):
        stream.land(f"{number}.json", 1, 2)
        stream.drain()
    stream.land("3.json", 1, 2)
    error = paused(stream)
    assert "8 of 12 units of the last 1 hour are bad" in error.message
    assert "8 of 12 units" in paused(stream).message
    assert stream.counts() == (3, 6)
    repair.accept(stream.settings, "events")
    stream.drain()
    # Accepted units do not count any more.
    stream.land("4.json", 1, 2)
    stream.drain()
    assert stream.counts() == (5, 10)
    stream.land("5.json", 1, 7)
    assert "9 of 11 units of the last 1 hour" in paused(stream).message


@pytest.mark.all
def test_a_pause_of_a_time_does_not_end_with_the_time(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.write("{share: 0.5, units: 5, over: 1 hour, action: pause}")
    stream.land("1.json", 0, 4)
    stream.drain()
    stream.land("2.json", 0, 4)
    assert "8 of 8 units of the last 1 hour" in paused(stream).message
    later = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(hours=2))
    monkeypatch.setattr(land, "datetime", later)
    assert "8 of 8 units of the last 1 hour" in paused(stream).message


def test_a_warning_is_in_the_log_and_in_status(stream: Stream) -> None:
    stream.write("{share: 0.5, units: 10}")
    stream.land("1.json", 3, 7)
    with capture_logs() as logs:
        stream.drain()
    (logged,) = [line for line in logs if line["event"] == breaker.EVENT]
    assert (logged["log_level"], logged["action"], logged["share"], logged["reasons"]) == (
        "warning",
        "warn",
        0.7,
        {"not_allowed": 7},
    )
    assert stream.counts() == (3, 7)
    (bronze,) = status(stream.settings, ["events"])
    assert (bronze.state, bronze.problem) == (Doing.STOPPED, "")
    (shown,) = json.loads(as_json([bronze]))
    assert shown["breaker"]["state"] == "warned"
    assert shown["breaker"]["bad"] == 7


def test_without_a_breaker_in_the_contract_much_garbage_warns(stream: Stream) -> None:
    stream.settings = changed(stream.settings, LAKE_CONTRACTS=CONTRACTS)
    for number in range(300):
        (stream.landing / f"{number}.json").write_bytes(b'[{"user_id": "u", ')
    with capture_logs() as logs:
        stream.drain()
    (logged,) = [line for line in logs if line["event"] == breaker.EVENT]
    assert (logged["action"], logged["bad"], logged["units"]) == ("warn", 300, 300)


def test_status_of_a_pause(stream: Stream) -> None:
    stream.write(PAUSE)
    stream.land("1.json", 1, 9)
    paused(stream)
    found = status(stream.settings, ["events"])
    assert found[0].state is Doing.PAUSED
    assert exit_code(found) == 5
    assert "consumer accept events" in found[0].problem
    (shown,) = json.loads(as_json(found))
    assert (shown["state"], shown["breaker"]["state"], shown["breaker"]["bad"]) == ("paused", "paused", 9)
    repair.accept(stream.settings, "events")
    found = status(stream.settings, ["events"])
    assert found[0].breaker is not None
    assert (found[0].state, found[0].breaker["state"], found[0].problem) == (Doing.PAUSED, "accepted", "")
    stream.drain()
    found = status(stream.settings, ["events"])
    assert (found[0].state, found[0].breaker) == (Doing.STOPPED, None)


def test_bytes_in_examples_are_cut_and_escaped(stream: Stream) -> None:
    stream.write("{share: 0.5, units: 1, action: pause}")
    (stream.landing / "1.json").write_bytes(b"\x1b[2J\xff\x00" + b"x" * 10_000)
    (example,) = paused(stream).examples
    assert "\\x1b[2J" in example
    assert "\x1b" not in example
    assert len(example) < 500


@pytest.mark.all
@pytest.mark.parametrize("where", ["before it is recorded", "after it is recorded"])
def test_a_crash_while_it_pauses(stream: Stream, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    stream.write(PAUSE)
    stream.land("1.json", 1, 9)

    def crash(*_: object) -> None:
        raise LakeproofError("crashed, as asked")

    with monkeypatch.context() as patch:
        if where.startswith("before"):
            patch.setattr(BreakerLog, "pause", crash)
        else:
            patch.setattr(land, "remove_files", crash)
        with pytest.raises(LakeproofError, match="crashed, as asked"):
            stream.drain()
    assert "9 of 10 units" in paused(stream).message
    repair.accept(stream.settings, "events")
    stream.drain()
    assert stream.counts() == (1, 9)
    assert stream.clean()


@pytest.mark.all
def test_a_pause_whose_tables_were_dropped_ends(stream: Stream) -> None:
    stream.write(PAUSE)
    stream.land("1.json", 4, 0)
    stream.drain()
    stream.land("2.json", 1, 9)
    paused(stream)
    catalog = open_catalog(stream.settings)
    for table in ("bronze", "dead_letters", "ledger"):
        catalog.drop_table(f"{table}.events")
    repair.reset(stream.settings, "events")
    # All units are read again from the beginning, and judged as they come.
    assert "9 of 14 units" in paused(stream).message
    repair.accept(stream.settings, "events")
    stream.drain()
    assert stream.counts() == (5, 9)
    assert stream.clean()


@pytest.mark.all
def test_a_state_database_that_is_lost_takes_no_pause_with_it(stream: Stream) -> None:
    stream.write(PAUSE)
    stream.land("1.json", 4, 0)
    stream.drain()
    stream.land("2.json", 1, 9)
    paused(stream)
    for file in stream.settings.home.glob("landing-log.db*"):
        file.unlink()
    repair.reset(stream.settings, "events")
    assert "9 of 10 units" in paused(stream).message
    fix(stream)
    stream.drain()
    assert stream.counts() == (14, 0)
    assert stream.clean()


@pytest.mark.all
def test_dead_letters_are_replayed_beside_a_pause_and_after_it(stream: Stream, session_of: SessionOf) -> None:
    stream.write("{share: 0.5, units: 4, over: 1 hour, action: pause}")
    stream.land("1.json", 9, 1)
    stream.drain()
    stream.land("2.json", 0, 8)
    assert "8 of 8 units of a micro-batch" in paused(stream).message
    stream.write("{share: 0.5, units: 4, over: 1 hour, action: pause}", "other", version="2.0.1")

    def replay() -> None:
        query = ReplayQuery(changed(stream.settings, LAKE_SETTLE_SECONDS=0), "events", Replay())
        run_queries(stream.settings, [query], lambda: session_of(stream.settings), available_now=True)

    replay()
    assert stream.counts() == (9, 1), "it failed again, and what is paused is left alone"
    assert "8 of 8 units of a micro-batch" in paused(stream).message
    repair.accept(stream.settings, "events")
    stream.drain()
    assert stream.counts() == (9, 9)
    fix(stream)
    replay()
    assert stream.counts() == (18, 9), "the dead letters are closed"
    # Neither accepted nor replayed units are counted.
    stream.land("3.json", 2, 2)
    stream.drain()
    assert stream.counts() == (22, 9)
