"""Logic of the harness: a fault that did not strike proves nothing, and a faulty result is never green."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from tests.chaos.bench import Bench, BrokenError, NotStruckError, Options
from tests.chaos.grid import Outcome, Row, Verdict, as_markdown, passed
from tests.chaos.lake import TABLES, Lake
from tests.chaos.orders import Act, Orders, Step
from tests.chaos.processes import Process
from tests.chaos.scenarios import Scenario, run_scenario, scenarios
from tests.chaos.watch import Watch

from lakeproof.errors import UnavailableError
from lakeproof.settings import S3Settings


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(hits=1), Verdict.GREEN),
        (Outcome(hits=0), Verdict.RED),
        (Outcome(hits=1, lost=1), Verdict.RED),
        (Outcome(hits=1, doubled=1), Verdict.RED),
        (Outcome(hits=1, problems=["verify: exit code 1"]), Verdict.RED),
        (Outcome(hits=1, notes=["it ended with 3"]), Verdict.GREEN),
        (Outcome(possible=False), Verdict.NOT_POSSIBLE),
    ],
)
def test_a_verdict(outcome: Outcome, verdict: Verdict) -> None:
    assert outcome.verdict is verdict


def test_the_grid_passes_only_if_all_that_was_possible_is_green() -> None:
    green, red, not_possible = (
        Row("a scenario", "local", outcome, 1.0) for outcome in (Outcome(hits=1), Outcome(), Outcome(possible=False))
    )
    assert passed([green, green])
    assert passed([green, not_possible])
    assert not passed([green, red])
    assert not passed([not_possible])
    assert not passed([])


def test_the_markdown_says_what_is_wrong() -> None:
    rows = [Row("a | b", "minio", Outcome(hits=0, lost=2, problems=["not drained"]), 12.4)]
    assert as_markdown(rows).splitlines()[2] == (
        r"| a \| b | minio | 0 | 2 | 0 | 12 | red | the fault never struck; not drained |"
    )


def test_a_scenario_that_does_not_strike_is_tried_again_and_is_never_green(tmp_path: Path) -> None:
    tries = []

    def miss(_bench: Bench) -> Outcome:
        tries.append(1)
        raise NotStruckError("too quick")

    row = run_scenario(Scenario("missed", miss), Bench(Options(tmp_path)))
    assert len(tries) == 3
    assert row.outcome.verdict is Verdict.RED
    assert row.outcome.why() == ["the fault never struck", "too quick"]


@pytest.mark.parametrize(
    "error", [UnavailableError("Cannot use the catalog."), OSError("no space"), BrokenError("no lake")]
)
def test_a_scenario_that_cannot_be_tried_is_red_and_the_next_one_is_run(tmp_path: Path, error: Exception) -> None:
    def fail(_bench: Bench) -> Outcome:
        raise error

    row = run_scenario(Scenario("failed", fail), Bench(Options(tmp_path)))
    assert row.outcome.verdict is Verdict.RED
    assert str(error) in row.outcome.problems[0]


@pytest.mark.all
def test_a_locked_database_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", None, S3Settings(), seed=1)
    lake.land(1)
    with closing(sqlite3.connect(lake.folder / "landing-log.db", isolation_level=None)) as database:
        assert lake.locked() is None
        database.execute("BEGIN IMMEDIATE")
        assert lake.locked(seconds=0.2) == "landing-log.db"


def test_names_of_scenarios_differ() -> None:
    names = [scenario.name for scenario in scenarios(50)]
    assert len(set(names)) == len(names)


def test_an_order_is_obeyed_once_and_at_its_step_only(tmp_path: Path) -> None:
    orders, strikes = Orders(tmp_path / "orders.json"), []
    orders.obey(Step.BEFORE_JUDGEMENT, strikes.append)
    orders.give(Step.BRONZE_APPENDED, Act.KILL)
    orders.obey(Step.BEFORE_JUDGEMENT, strikes.append)
    assert not orders.struck()
    assert strikes == []
    orders.obey(Step.BRONZE_APPENDED, strikes.append)
    orders.obey(Step.BRONZE_APPENDED, strikes.append)
    assert orders.struck()
    assert strikes == [Act.KILL]
    orders.give(Step.BRONZE_APPENDED, Act.SUSPEND)
    assert not orders.struck()
    orders.take_back()
    orders.obey(Step.BRONZE_APPENDED, strikes.append)
    assert strikes == [Act.KILL]


def test_a_process_is_ended_with_what_it_started_and_its_number_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A child in its own group, like Spark's workers, that outlives its parent.
    script = "set -m; sleep 1000 & echo $!"
    process = Process(["bash", "-c", script], dict(os.environ), tmp_path / "log")
    assert process.wait(10) == 0
    child = psutil.Process(int(process.text()))
    assert process.family() == [child]
    signalled = []
    monkeypatch.setattr(os, "killpg", lambda *arguments: signalled.append(arguments))
    process.end_all()
    process.end_all()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert signalled == []


def test_a_watch_sees_the_file_that_it_waits_for(tmp_path: Path) -> None:
    acted = []
    with Watch(tmp_path, r"^\.\d+\..*\.tmp$", lambda: acted.append(1)) as watch:
        (tmp_path / "other").touch()
        (tmp_path / ".7.abc.tmp").touch()
        (tmp_path / ".8.abc.tmp").touch()
    assert (watch.seen, acted) == (".7.abc.tmp", [1])


def test_the_harness_knows_each_unit_that_it_landed(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", None, S3Settings(), seed=1)
    landed = lake.land(20)
    listed = [name for name, _ in lake.zone.list()]
    assert sorted(listed) == sorted(landed) == sorted(lake.files)
    tables = [table for table, _, _ in lake.expected]
    assert tables.count(TABLES.bronze) > 100
    assert tables.count(TABLES.dead_letters) > 20
    again = lake.land_again(landed[0])
    units = {source: sorted(unit[::2] for unit in lake.expected if unit[1] == source) for source in (landed[0], again)}
    assert units[landed[0]] == units[again] != []
