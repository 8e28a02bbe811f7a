"""Errors of `lakeproof demo` before it starts anything; tests/test_demo.py and tests/test_wheel.py start it."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakeproof.cli import app
from lakeproof.demo import run
from lakeproof.demo.processes import Processes
from lakeproof.demo.run import _listens
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings, settings_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path.parent))
    return tmp_path


def demo(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["demo", *arguments], env={"LAKE_HOME": "lake"})


def test_a_folder_with_other_files_stays_as_it_is(folder: Path) -> None:
    (folder / "thesis.tex").touch()
    refused = demo()
    assert "has other files, and no contract of events" in str(refused.exception)
    assert "empty folder" in str(refused.exception)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_the_clickstream_comes_through_a_collector() -> None:
    refused = demo("--stream", "clickstream", "--source", "files")
    assert refused.exit_code == 2
    assert "files cannot be used for clickstream" in refused.output


def test_nothing_runs_and_nothing_is_removed_in_an_empty_folder(folder: Path) -> None:
    assert demo("stop").output == "Nothing is running.\n"
    assert demo("clean").output == "No data found in lake.\n"
    (folder / "lake").mkdir()
    (folder / "lake" / ".demo").symlink_to("/nowhere")  # left by a machine that was switched off
    assert demo("stop").output == "Nothing is running.\n"
    assert demo("clean").output == "Removed lake.\n"
    assert list(folder.iterdir()) == []


def test_what_is_not_of_a_lake_is_not_removed(folder: Path) -> None:
    (folder / "lake").mkdir()
    (folder / "lake" / "notes.txt").touch()
    assert "contains notes.txt" in str(demo("clean").exception)
    assert (folder / "lake" / "notes.txt").exists()


def test_a_lake_behind_a_link_is_removed_with_the_link(folder: Path) -> None:
    (folder / "disk" / "logs").mkdir(parents=True)
    (folder / "lake").symlink_to("disk")
    assert demo("clean").output == "Removed lake.\n"
    assert list(folder.iterdir()) == []


def test_a_broker_may_have_any_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert _listens(f"[::1]:{server.getsockname()[1]}")
    assert not _listens(f"{'a' * 64}:9092")  # no name of a host


def done(*_: object, **__: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess([], 0, "", "")


def pid_of_nobody() -> str:
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


@pytest.fixture
def running(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a demo that runs events from files, without its programs."""
    at = folder.parent / f"{folder.name}-run"
    at.mkdir()
    (at / "what").write_text("events from files")
    monkeypatch.setattr(Processes, "running", classmethod(lambda cls, settings: cls(settings, at, {"PAGE": "0"})))
    monkeypatch.setattr(Processes, "status", lambda _: "producer RUNNING\n")
    monkeypatch.setattr(run, "_page", lambda *_: None)
    monkeypatch.setattr(subprocess, "run", done)
    return at


@pytest.mark.usefixtures("running")
def test_a_demo_of_something_else_is_refused_while_one_runs() -> None:
    same = demo()
    assert same.exit_code == 0
    assert "already running on lake:\nproducer RUNNING\n" in same.output
    for arguments, asked in (
        (["--source", "kafka"], "events from Kafka"),
        (["--stream", "sensors"], "sensors from files"),
        (["--stream", "clickstream"], "clickstream from Kafka"),
    ):
        error = demo(*arguments).exception
        assert isinstance(error, UsageError)
        assert error.message == f"The demo on lake runs events from files, not {asked}."
        assert "lakeproof demo stop" in error.hint


def test_a_start_that_was_cut_off_is_repeated(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Processes, "stop", lambda _: calls.append("stop"))
    monkeypatch.setattr(run, "_start", lambda *_, **__: calls.append("start"))
    (running / "starter").write_text(str(os.getpid()))  # another terminal starts it just now
    assert "already running" in demo().output
    assert calls == []
    (running / "starter").write_text(pid_of_nobody())
    assert demo("--source", "kafka").exit_code == 0
    assert calls == ["stop", "start"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), LakeproofError("The demo did not start."), SystemExit(1)])
def test_a_start_that_fails_stops_what_it_started(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    stopped: list[Processes] = []

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Processes, "_run", done)
    monkeypatch.setattr(Processes, "stop", lambda processes: stopped.append(processes))
    monkeypatch.setattr(run, "_launch", fail)
    with pytest.raises(type(error)):
        run._start(lake_settings, run.DemoStream.EVENTS, "events from files", kafka=False)
    assert len(stopped) == 1


@pytest.fixture
def supervised(lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """A real supervisord that has started no program yet."""
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # a short path for the socket
    variables = {"PRODUCER": "events", "CONSUMER": "", "KAFKA": "false", "BROKER": "", "JARS": ""}
    started = Processes.start(lake_settings, "events from files", variables)
    yield started
    started.stop()


def test_what_another_command_has_stopped_is_stopped(lake_settings: Settings, supervised: Processes) -> None:
    first, second = Processes.running(lake_settings), Processes.running(lake_settings)
    assert first
    assert second
    first.stop()
    second.stop()
    assert Processes.running(lake_settings) is None


@pytest.mark.long
def test_what_is_being_stopped_runs_until_its_end(lake_settings: Settings, supervised: Processes) -> None:
    starting = supervised._popen("start", "producer")
    while not (pid := int(supervised._control("pid", "producer").stdout)):
        time.sleep(0.05)
    os.kill(pid, signal.SIGSTOP)  # until then, it cannot end
    with ThreadPoolExecutor() as pool:
        stops = [pool.submit(supervised.stop)]
        try:
            while not supervised.is_stopping:
                time.sleep(0.05)
            found = Processes.running(lake_settings)
            assert found
            stops.append(pool.submit(found.stop))
            time.sleep(1)
            assert not any(stop.done() for stop in stops)
        finally:
            os.kill(pid, signal.SIGCONT)
        for stop in stops:
            stop.result()
    starting.wait()
    assert not (lake_settings.home / ".demo").is_symlink()


def test_what_was_started_is_known_to_other_commands(lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "_run", done)
    Processes.start(lake_settings, "sensors from Kafka", {})
    found = Processes.running(lake_settings)
    assert found
    assert (found.what, found.page, found.cut_off) == ("sensors from Kafka", None, False)
    (lake_settings.home / ".demo" / "page").write_text("40123")
    assert found.page == "http://127.0.0.1:40123/"
    monkeypatch.setattr(os, "getpid", lambda: int(pid_of_nobody()))
    started = Processes.start(lake_settings, "sensors from Kafka", {})
    found = Processes.running(lake_settings)
    assert found
    assert found.cut_off
    started.complete()
    assert not found.cut_off


@pytest.mark.parametrize("name", ["a%b", "%(x)s", 'a"b, é'])
def test_the_lake_may_have_any_name(name: str, folder: Path) -> None:
    settings = settings_of({"LAKE_HOME": folder / name, "LAKE_LOGS": folder / name / "logs"})
    variables = dict.fromkeys(("PRODUCER", "CONSUMER", "BROKER", "JARS"), "") | {"KAFKA": "false"}
    started = Processes.start(settings, "events from files", variables)
    try:
        assert (settings.logs / "supervisord.log").exists()
    finally:
        started.stop()
    assert settings.logs.exists()
