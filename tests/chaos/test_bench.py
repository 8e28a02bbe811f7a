"""Logic of the bench and its scenarios: what ends by itself or was missed is never green.

The consumers are scripts, and the lake has at once what landed.
"""

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
from tests.chaos import advice, clusters, faults, kills, maintained, replays
from tests.chaos.bench import Bench, BrokenError, NotStruckError, Options
from tests.chaos.followers import engines
from tests.chaos.grid import Outcome, Verdict
from tests.chaos.lake import Count, Lake, Verified
from tests.chaos.orders import Act, Step
from tests.chaos.processes import Process

from lakeproof.settings import S3Settings

RUNS, CRASHES = "exec sleep 1000", "echo oh; exit 1"
FAILED = '{"event":"failed","timestamp":"2026-11-21T00:00:00Z","message":"no catalog","hint":"Try again."}'
MAINTAINED = '{"event":"maintained","timestamp":"2026-11-21T00:00:00Z","to_expire":2}'
IMPATIENT = next(seed for seed in count() if random.Random(seed).random() < 0.01)
"""Seed whose first random moment comes at once."""


class QuietLake(Lake):
    """A lake that has at once what landed; its units are not read."""

    lost = 0

    def accounted(self) -> int:
        return len(self.files)

    def drained(self) -> bool:
        return True

    def count(self) -> Count:
        return Count(self.lost, 0)

    def verify(self) -> Verified:
        return Verified(0, {"streams": []}, "")


class ScriptedBench(Bench):
    """A bench that starts scripts in place of the consumer: the given ones, then consumers that run."""

    def __init__(self, folder: Path, *scripts: str) -> None:
        super().__init__(Options(folder, seed=IMPATIENT))
        self._scripts = iter(scripts)
        self.lost = 0

    def new_lake(self, *_arguments: Any, **_options: Any) -> Lake:
        self.end_consumers()
        self._lakes += 1
        self._lake = lake = QuietLake(self.options.folder / f"lake-{self._lakes}", None, S3Settings(), seed=1)
        lake.lost = self.lost
        return lake

    def start_victim(self, *_arguments: str, **_options: Any) -> Process:
        script = next(self._scripts, RUNS)
        process = Process(["sh", "-c", script], dict(os.environ), self.options.folder / f"{len(self._processes)}.log")
        self._processes.append(process)
        if script != RUNS:
            process.wait(10)
        return process


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ScriptedBench]:
    with ScriptedBench(tmp_path) as bench:
        yield bench


def with_consumer(bench: Bench, script: str) -> Process:
    """Give the bench a lake and a consumer."""
    bench.new_lake()
    bench.consumer = consumer = ScriptedBench(bench.options.folder, script).start_victim()
    bench._processes.append(consumer)
    return consumer


def test_a_consumer_that_ended_by_itself_is_a_problem(bench: ScriptedBench) -> None:
    with_consumer(bench, CRASHES)
    outcome = bench.recover(Outcome(hits=1))
    assert outcome.problems == ["the consumer ended by itself with 1: oh"]
    assert outcome.verdict is Verdict.RED


def test_a_consumer_that_a_scenario_killed_is_none(bench: ScriptedBench) -> None:
    with_consumer(bench, RUNS)
    outcome = Outcome(hits=1)
    bench.kill(outcome)
    assert bench.recover(outcome).verdict is Verdict.GREEN


def test_a_slow_start_is_no_stall(bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = with_consumer(bench, RUNS)
    monkeypatch.setattr(advice, "_STALLED_SECONDS", 0.0)
    monkeypatch.setattr(QuietLake, "drained", lambda _: bool(consumer.said("started")))
    starting = Timer(1, lambda: consumer.log.write_text('{"event":"started","timestamp":"2026-11-21T00:00:00Z"}'))
    starting.start()
    assert advice.go_on(bench, Outcome(hits=1)).verdict is Verdict.GREEN
    starting.join()


def test_a_consumer_that_had_ended_cannot_be_killed(bench: ScriptedBench) -> None:
    with_consumer(bench, CRASHES)
    outcome = Outcome(hits=1)
    bench.kill(outcome)
    assert outcome.problems == ["the consumer ended by itself with 1: oh"]


def test_no_scenario_begins_with_a_consumer_that_ended_by_itself(bench: ScriptedBench) -> None:
    with_consumer(bench, CRASHES)
    with pytest.raises(BrokenError, match="ended by itself with 1: oh"):
        bench.ready()


def test_a_consumer_that_was_killed_at_a_step_is_none(bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = with_consumer(bench, "kill -9 $$")
    monkeypatch.setattr(bench, "order", lambda *_: killed)
    bench.kill_at(Step.BRONZE_APPENDED)
    assert bench.recover(Outcome(hits=1)).verdict is Verdict.GREEN


def test_a_consumer_that_ends_before_its_step_is_not_tried_again(
    bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = with_consumer(bench, RUNS)
    monkeypatch.setattr(bench.lake, "land", lambda _: consumer.end_all())
    with pytest.raises(BrokenError, match="the consumer ended by itself with -9"):
        bench.order(Step.BRONZE_APPENDED, Act.WAIT)


@pytest.mark.parametrize(
    ("script", "error"), [("echo oh; exit 1", BrokenError), ("exit 0", NotStruckError), ("kill -9 $$", None)]
)
def test_a_program_that_fails_before_its_step_is_not_tried_again(
    bench: ScriptedBench, script: str, error: type[Exception] | None
) -> None:
    program = with_consumer(bench, script)
    if error is None:
        bench.end_by_kill(program, Step.ACCEPTED)
        assert bench.has_lake
        return
    with pytest.raises(error):
        bench.end_by_kill(program, Step.ACCEPTED)
    assert not bench.has_lake


def test_what_is_found_after_a_fault_that_did_not_strike_is_kept(bench: ScriptedBench) -> None:
    with_consumer(bench, RUNS)
    with pytest.raises(NotStruckError, match="too quick"):
        bench.missed("too quick")
    bench.lost = 7
    with_consumer(bench, RUNS)
    outcome = bench.missed("too quick")
    assert (outcome.lost, outcome.verdict) == (7, Verdict.RED)
    assert not bench.has_lake


@pytest.mark.parametrize("run", [kills.during_append, kills.during_checkpoint("offsets")], ids=["append", "checkpoint"])
def test_what_is_found_after_a_kill_that_came_too_late_is_kept(
    bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch, run: maintained.Run
) -> None:
    places = count()
    monkeypatch.setattr(QuietLake, "table_location", lambda _: str(next(places)))
    monkeypatch.setattr(kills, "_checkpoint_files", lambda *_: next(places))
    monkeypatch.setattr(kills, "_kill_at_file", lambda bench, *_: bench.kill(Outcome()))
    with pytest.raises(NotStruckError):
        run(bench)
    bench.lost = 7
    with_consumer(bench, RUNS)
    assert run(bench).lost == 7


def test_a_consumer_that_was_killed_at_a_file_is_none(bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "STRIKE_SECONDS", 0.1)
    with_consumer(bench, RUNS)
    (bench.lake.folder / "a").mkdir()
    with pytest.raises(NotStruckError):
        kills._kill_at_file(bench, "a", "b")
    assert bench.consumer is None


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (FAILED, None),
        (f"Traceback (most recent call last):\n{FAILED}", "it ended with 3 and a stack trace: no catalog"),
        ("oh", "it ended with 3 and no clear line: oh"),
    ],
)
def test_an_end_is_clear_only_without_a_stack_trace(bench: ScriptedBench, said: str, problem: str | None) -> None:
    with_consumer(bench, f"echo '{said}'; exit 3")
    assert bench.unclear_end() == ([problem] if problem else [])


def test_a_jvm_that_is_missing_is_a_problem(bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "STRIKE_SECONDS", 0.1)
    consumer = with_consumer(bench, RUNS)
    outcome = Outcome(hits=1)
    kills._kill_part(bench, consumer, "JVM", outcome)
    assert outcome.problems == ["it had no JVM: nothing"]
    assert not consumer.alive


@pytest.mark.parametrize("part", ["group", "driver", "JVM"])
def test_a_consumer_that_had_ended_has_no_part_to_kill(bench: ScriptedBench, part: str) -> None:
    consumer = with_consumer(bench, CRASHES)
    outcome = Outcome(hits=1)
    kills._kill_part(bench, consumer, part, outcome)
    assert outcome.problems == ["the consumer ended by itself with 1: oh"]
    assert bench.consumer is None


def test_random_kills_must_meet_work(bench: ScriptedBench) -> None:
    with pytest.raises(NotStruckError, match="no kill met work under way"):
        kills.at_random(1)(bench)


def test_random_kills_in_a_cluster_must_meet_work(bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "cluster", None, raising=False)
    monkeypatch.setattr(clusters, "_kill", lambda *_: None)
    with pytest.raises(NotStruckError, match="no kill met work under way"):
        clusters.at_random(1)(bench)


@pytest.mark.parametrize(("code", "problems"), [(0, None), (1, ["a replay ended by itself with 1: oh"])])
def test_replays_must_not_end_before_random_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, problems: list[str] | None
) -> None:
    monkeypatch.setattr(replays, "_prepare", lambda bench: bench.new_lake())
    monkeypatch.setattr(replays, "_begun", lambda _: 0)
    monkeypatch.setattr(replays, "_finish", lambda _bench, _by, outcome: outcome)
    with ScriptedBench(tmp_path, f"echo oh; exit {code}") as bench:
        if problems is None:
            with pytest.raises(NotStruckError, match="each replay had ended"):
                replays.killed_at_random(1)(bench)
        else:
            assert replays.killed_at_random(1)(bench).problems == problems


@pytest.mark.parametrize(
    ("second", "hits"),
    [("exit 3", 0), ("exit 0", 0), (f"echo '{MAINTAINED}'; exit 3", 0), (f"echo '{MAINTAINED}'", 3)],
    ids=["refused", "idle", "refused later", "worked"],
)
def test_of_two_maintainers_the_second_must_have_worked(tmp_path: Path, second: str, hits: int) -> None:
    with ScriptedBench(tmp_path, RUNS, *[f"echo '{MAINTAINED}'", second] * 3) as bench:
        outcome = maintained.two_maintainers(bench)
    assert outcome.harmless
    assert outcome.hits == hits


def test_a_replay_must_wait_while_the_maintenance_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintained, "KEEP_SECONDS", 0)
    with ScriptedBench(tmp_path, RUNS, "exit 0", "kill -9 $$") as bench:
        monkeypatch.setattr(bench, "stop", bench.end_consumers)
        with pytest.raises(BrokenError, match="it ended by itself"):
            maintained.beside_a_replay(Step.SWAPPING)(bench)


def test_an_engine_that_answers_nothing_is_a_problem(bench: ScriptedBench, tmp_path: Path) -> None:
    (tmp_path / "end").touch()
    report = engines(bench.new_lake().settings, tmp_path)
    assert report.problems == ["duckdb: only 0 queries succeeded", "pyiceberg: only 0 queries succeeded"]


@pytest.mark.parametrize("arrives", [False, True])
def test_metadata_that_was_held_back_must_arrive(
    bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    with_consumer(bench, RUNS)
    monkeypatch.setattr(bench, "proxy", SimpleNamespace(struck=lambda: ["PUT /a/b"]), raising=False)
    monkeypatch.setattr(faults, "STRIKE_SECONDS", 0.1)
    monkeypatch.setattr(faults, "_hold", lambda *_: None)
    monkeypatch.setattr(faults, "_arrived", lambda *_: arrives)
    monkeypatch.setattr(faults, "time", SimpleNamespace(sleep=lambda _: None))
    if arrives:
        assert faults.commit_held_back(killed=True)(bench).verdict is Verdict.GREEN
    else:
        with pytest.raises(NotStruckError, match="it never arrived: PUT /a/b"):
            faults.commit_held_back(killed=True)(bench)


def catalog_of(folder: Path) -> Path:
    """Make a catalog's database, as the scenarios read it."""
    file = folder / "catalog.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE iceberg_tables (table_namespace, metadata_location)")
        database.execute("INSERT INTO iceberg_tables VALUES ('bronze', 'v1')")
    return file


def append(catalog: Path) -> None:
    """Commit to bronze."""
    with closing(sqlite3.connect(catalog)) as database, database:
        database.execute("UPDATE iceberg_tables SET metadata_location = 'v2'")


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_missing_catalog_must_stop_the_append(
    bench: ScriptedBench, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
) -> None:
    with_consumer(bench, RUNS)
    catalog = catalog_of(bench.lake.folder)
    monkeypatch.setattr(bench, "order", lambda *_: None)

    def sleep(_seconds: float) -> None:
        if goes_on:  # through a connection that was open before
            append(catalog.with_name("away.db"))

    monkeypatch.setattr(faults, "time", SimpleNamespace(sleep=sleep))
    if goes_on:
        with pytest.raises(NotStruckError, match="the append went on"):
            faults.catalog_gone(at_start=False)(bench)
    else:
        assert faults.catalog_gone(at_start=False)(bench).verdict is Verdict.GREEN
    assert catalog.is_file()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_full_disk_must_stop_the_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool) -> None:
    @contextmanager
    def disk(_: Path) -> Iterator[Path]:
        yield tmp_path

    def fill(filler: Path) -> None:
        filler.touch()
        if goes_on:
            append(bench.lake.folder / "catalog.db")

    def order(*_: object) -> None:
        catalog_of(bench.lake.folder)
        bench.consumer = bench.start()

    monkeypatch.setattr(faults, "_small_disk", disk)
    monkeypatch.setattr(faults, "_fill", fill)
    with ScriptedBench(tmp_path, f"echo '{FAILED}'; exit 3") as bench:
        monkeypatch.setattr(bench, "order", order)
        if goes_on:
            with pytest.raises(NotStruckError, match="the append went on"):
                faults.disk_full(bench)
        else:
            assert faults.disk_full(bench).verdict is Verdict.GREEN
