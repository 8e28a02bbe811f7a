"""The command line: reproducible, refusing to overwrite, ending cleanly, and clear about mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pexpect
import pytest
from tests.selection import first_by_default

from lakeproof.errors import UsageError

CONTRACTS = Path(__file__).parents[2] / "contracts"
START = ["--seed", "5", "--start", "2026-01-31T23:59:00Z"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def start(folder: Path, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"LAKE_CONTRACTS": str(CONTRACTS)}
    command = [sys.executable, "-m", "producer", "events", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, **options)


def test_same_seed_and_start_same_bytes_and_names(produce: Any, tmp_path: Path) -> None:
    chances = ["--duplicate-chance", 0.2, "--invalid-schema-chance", 0.2, "--corruption-chance", 0.2]
    for name in ("one", "two"):
        assert produce(*START, *chances, "--batches", 10, "--target", tmp_path / name).exit_code == 0
    one = files(tmp_path / "one")
    assert one == files(tmp_path / "two")
    assert min(one) == "dt=2026-01-31/hh=23/20260131T235900.000000Z-000000.json"
    assert len(one) == 10


def test_the_virtual_clock_goes_by_the_pause(produce: Any, tmp_path: Path) -> None:
    produce(*START, "--batches", 3, "--sleep-between-batches-seconds", 0.02, "--target", tmp_path / "landing")
    assert [Path(name).name for name in sorted(files(tmp_path / "landing"))] == [
        "20260131T235900.000000Z-000000.json",
        "20260131T235900.020000Z-000001.json",
        "20260131T235900.040000Z-000002.json",
    ]


def test_an_existing_name_is_refused_and_what_landed_stays(produce: Any, tmp_path: Path) -> None:
    taken = tmp_path / "landing/dt=2026-01-31/hh=23/20260131T235902.000000Z-000002.json"
    taken.parent.mkdir(parents=True)
    taken.write_bytes(b"mine")
    report = tmp_path / "report.json"
    result = produce(*START, "--batches", 5, "--target", tmp_path / "landing", "--report", report)
    assert isinstance(result.exception, UsageError)
    assert taken.name in result.exception.message
    assert "--start" in result.exception.hint
    assert taken.read_bytes() == b"mine"
    assert len(files(tmp_path / "landing")) == 3
    assert json.loads(report.read_bytes())["batches"] == 2


def test_a_reader_never_sees_a_part_of_a_batch(produce: Any, tmp_path: Path) -> None:
    done, seen, broken = Event(), set[str](), []

    def poll() -> None:
        while not done.is_set():
            for path in (tmp_path / "landing").rglob("*.json"):
                try:
                    complete = len(json.loads(path.read_bytes())) == 2000
                except ValueError:
                    complete = False
                if not complete:
                    broken.append(path.name)
                seen.add(path.name)

    poller = Thread(target=poll)
    poller.start()
    try:
        result = produce("--batches", 20, "--batch-size", 2000, "--target", tmp_path / "landing")
    finally:
        done.set()
        poller.join()
    assert result.exit_code == 0
    assert seen
    assert broken == []
    assert all(name.endswith(".json") for name in files(tmp_path / "landing"))  # nothing is left behind


def test_the_default_target_is_the_landing_zone(produce: Any, tmp_path: Path) -> None:
    assert produce("--batches", 1).exit_code == 0
    assert len(files(tmp_path / "target/lake/landing/events")) == 1


def test_stdout_is_a_batch_a_line(produce: Any) -> None:
    result = produce("--data-sink", "stdout", "--batches", 3, "--batch-size", 4)
    assert [len(json.loads(line)) for line in result.stdout.splitlines()] == [4, 4, 4]
    assert "batches" in result.stderr


@pytest.mark.parametrize("number", first_by_default([signal.SIGINT, signal.SIGTERM]))
def test_a_signal_ends_an_endless_run_with_its_report(tmp_path: Path, recount: Any, number: signal.Signals) -> None:
    arguments = ("--target", "landing", "--report", "report.json", "--invalid-schema-chance", "0.3")
    process = start(tmp_path, *arguments, "--sleep-between-batches-seconds", "0.05")
    deadline = time.monotonic() + 180
    while len(list(tmp_path.rglob("*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    landed = files(tmp_path / "landing")
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["batches"] == len(landed) >= 3
    assert report["expected"] == recount(list(landed.values()))
    assert f"{report['batches']:,} batches with {report['events']:,} events" in errors.decode()


def test_a_signal_ends_a_long_pause(tmp_path: Path) -> None:
    process = start(tmp_path, "--target", "landing", "--sleep-between-batches-seconds", "3600")
    deadline = time.monotonic() + 180
    while not list(tmp_path.rglob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
    process.communicate()


def test_a_terminal_shows_progress(tmp_path: Path) -> None:
    environment = os.environ | {"LAKE_CONTRACTS": str(CONTRACTS), "TERM": "xterm"}
    arguments = ["-m", "producer", "events", "--target", "landing", "--sleep-between-batches-seconds", "0.5"]
    options: Any = {"cwd": tmp_path, "env": environment, "timeout": 120, "encoding": "utf-8"}
    bounded = pexpect.spawn(sys.executable, [*arguments, "--batches", "4"], **options)
    bounded.expect("━.*[1-3]/4")  # drawn ten times a second
    bounded.expect("expected in bronze")
    bounded.expect(pexpect.EOF)
    bounded.close()
    assert bounded.exitstatus == 0
    endless = pexpect.spawn(sys.executable, arguments, **options)
    endless.expect(r"\d+ batches, \d+00 events")
    endless.sendintr()
    endless.expect("Stopped on request")
    endless.expect(pexpect.EOF)
    endless.close()
    assert endless.exitstatus == 0


@pytest.mark.all
def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    process = start(tmp_path, "--data-sink", "stdout", "--sleep-between-batches-seconds", "0", stdout=subprocess.PIPE)
    assert process.stdout
    assert len(json.loads(process.stdout.readline())) == 100
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert process.stderr
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--data-sink", "s3"], "does not match the landing zone"),
        (["--data-sink", "s3", "--target", "folder"], "does not match --target folder"),
        (["--data-sink", "local", "--target", "s3://bucket"], "does not match --target s3://bucket"),
        (["--data-sink", "stdout", "--target", "folder"], "cannot be used with --target"),
        (["--target", "ftp://host/folder"], "is not a file:// or s3:// address"),
        (["--target", "s3://"], "has no bucket name"),
        (["--target", "s3:/bucket"], "looks like an address"),
        (["--target", "file:///"], "Cannot land batches at"),
    ],
)
def test_what_cannot_be_is_refused(produce: Any, tmp_path: Path, arguments: list[str], problem: str) -> None:
    result = produce("--batches", 1, *arguments)
    assert isinstance(result.exception, UsageError)
    assert problem in result.exception.message
    assert result.exception.hint
    assert files(tmp_path) == {}


def test_local_needs_a_folder_when_the_landing_zone_is_a_bucket(produce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_LANDING", "s3://bucket/landing")
    result = produce("--batches", 1, "--data-sink", "local")
    assert isinstance(result.exception, UsageError)
    assert "LAKE_LANDING" in result.exception.hint


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batches", "0"],
        ["--batch-size", "-1"],
        ["--users", "0"],
        ["--duplicate-chance", "1.1"],
        ["--extra-field-chance", "-0.1"],
        ["--corruption-chance", "nan"],
        ["--sleep-between-batches-seconds", "-1"],
        ["--sleep-between-batches-seconds", "nan"],
        ["--sleep-between-batches-seconds", "inf"],
        ["--sleep-between-batches-seconds", "soon"],
        ["--start", "yesterday"],
        ["--start", "0001-01-01"],
        ["--json-style", "xml"],
        ["--data-sink", "ftp"],
    ],
)
def test_values_out_of_range_are_usage_errors(produce: Any, tmp_path: Path, arguments: list[str]) -> None:
    result = produce(*arguments, "--target", tmp_path / "landing")
    assert result.exit_code == 2
    assert arguments[0] in result.output
    assert not (tmp_path / "landing").exists()


def test_a_mistake_is_one_line_and_a_hint(tmp_path: Path) -> None:
    process = start(tmp_path, "--data-sink", "s3", "--batches", "1")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert errors.decode().startswith("Error: --data-sink s3 does not match the landing zone")
    assert len(errors.decode().splitlines()) == 2
