"""The consumer as a process that is asked to end: by whom, when, and what remains."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import psutil
import pytest
from tests.chaos.processes import Process, wait_until
from tests.consumer.lake import Drain, rows
from tests.consumer.test_cli import environment, land
from tests.selection import only_with_all

from lakeproof.settings import Settings

pytestmark = pytest.mark.spark

Start: TypeAlias = "Starter"

SECONDS = 120  # for each step, on a slow machine, too


class Starter:
    """Starts consumers, and ends the remaining processes."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self._folder = folder
        self._started: list[Process] = []

    def __call__(self, trigger: str = "200 milliseconds") -> Process:
        command = [sys.executable, "-m", "consumer", "run", "events", "--trigger", trigger]
        process = Process(command, environment(self.settings), self._folder / f"log-{len(self._started)}")
        self._started.append(process)
        return process

    def end_all(self) -> None:
        for process in self._started:
            process.end_all()


@pytest.fixture
def start(lake_settings: Settings, tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(lake_settings, tmp_path)
    yield starter
    starter.end_all()


def wait_for(process: Process, event: str) -> None:
    assert wait_until(lambda: bool(process.said(event)) or not process.alive, SECONDS), process.text()
    assert process.alive, process.text()


def java(process: Process) -> psutil.Process | None:
    return next(iter(process.named("java")), None)


def assert_ended_well(process: Process) -> None:
    """Check that the consumer ended as documented, in time, and that none of its processes is left."""
    assert process.wait(SECONDS) == 0, process.text()
    assert "Traceback" not in process.text()
    assert process.said("stopped")[-1].values["on_signal"]
    assert wait_until(lambda: not process.family(), SECONDS), process.family()


@pytest.mark.all
@pytest.mark.parametrize(
    ("number", "to_group"),
    [
        pytest.param(signal.SIGTERM, False, id="kill"),
        only_with_all(signal.SIGINT, True, id="Ctrl-C"),
        only_with_all(signal.SIGHUP, True, id="closed terminal"),
    ],
)
def test_its_micro_batch_is_finished(start: Start, number: signal.Signals, to_group: bool, drain: Drain) -> None:
    settings = start.settings
    land(settings, 0, 5)
    process = start()
    wait_for(process, "micro-batch")
    landed = 5
    for _ in range(10):
        land(settings, landed, 5)
        landed += 5
        time.sleep(0.05)
    if to_group:
        os.killpg(process.pid, number)
    else:
        process.signal_itself(number)
    assert_ended_well(process)
    assert [line.values["event"] for line in process.said("stopping: finishing the micro-batch")]
    counted = sum(line.values["bronze"] for line in process.said("micro-batch"))
    assert counted == len(rows(settings, "bronze.events"))
    drain(settings)
    assert sorted(int(row["event_id"]) for row in rows(settings, "bronze.events")) == list(range(landed))


@pytest.mark.all
def test_it_does_not_wait_for_the_next_trigger(start: Start) -> None:
    """The whole group gets the signal, as from `timeout`."""
    land(start.settings, 0, 1)
    process = start("1 hour")
    wait_for(process, "micro-batch")
    time.sleep(1)
    os.killpg(process.pid, signal.SIGTERM)
    assert_ended_well(process)


def test_it_can_be_stopped_while_spark_starts(start: Start) -> None:
    process = start()
    assert wait_until(lambda: java(process) is not None, SECONDS, every=0.01)
    os.killpg(process.pid, signal.SIGTERM)
    assert_ended_well(process)


@pytest.mark.all
def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    process = start("1 hour")
    wait_for(process, "started")
    jvm = java(process)
    assert jvm is not None
    jvm.suspend()  # no micro-batch can be finished
    os.killpg(process.pid, signal.SIGTERM)
    wait_for(process, "stopping: finishing the micro-batch")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(SECONDS) == 128 + signal.SIGTERM, process.text()
    jvm.resume()
    assert "Traceback" not in process.text()
    assert wait_until(lambda: not process.family(), SECONDS), process.family()


@pytest.mark.all
@pytest.mark.parametrize("part", ["driver", only_with_all("JVM")])
def test_nothing_lives_on_when_a_part_is_killed(start: Start, part: str) -> None:
    land(start.settings, 0, 1)
    process = start()
    wait_for(process, "micro-batch")
    if part == "driver":
        process.signal_itself(signal.SIGKILL)
        process.wait(SECONDS)
    else:
        jvm = java(process)
        assert jvm is not None
        jvm.kill()
        assert process.wait(SECONDS) in (1, 3), process.text()
        assert "Traceback" not in process.text()
    assert wait_until(lambda: not process.family(), SECONDS), process.family()
