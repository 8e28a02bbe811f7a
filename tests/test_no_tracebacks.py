"""Bad settings, signals and closed pipes: no program prints a stack trace. No test here starts a JVM."""

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.logs import failure
from tests.programs import forked
from tests.selection import only_with_all

ROOT = Path(__file__).parents[1]
PROGRAMS = {
    "producer": ("events", "--batches", "1", "--batch-size", "1"),
    "consumer": ("run", "events"),
    "reader": ("sql", "SELECT 1 AS one"),
    "lakeproof": ("settings",),
}
LONG_QUERY = "SELECT count(*) FROM range(10000000000) a, range(100000) b WHERE a.range % 7 = b.range % 3"


def environment(folder: Path, **changes: str) -> dict[str, str]:
    own = {"LAKE_HOME": str(folder / "lake"), "LAKE_CONTRACTS": str(ROOT / "contracts"), "LAKE_SPARK_UI_PORT": "0"}
    return os.environ | own | {"LAKE_JARS": str(ROOT / "target" / "jars" / "spark")} | changes


def run(folder: Path, program: str, *arguments: str | bytes, **changes: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*forked(program), *arguments],
        cwd=folder,
        env=environment(folder, **changes),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )


def shell(folder: Path, command: str) -> "subprocess.CompletedProcess[str]":
    """Run `command` in bash, which ends with the exit code of its first program; $PROGRAM runs a program."""
    program = shlex.join(forked("")[:-1])
    return subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        cwd=folder,
        env=environment(folder) | {"PROGRAM": program},
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_told(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """Check the exit code, and for a one-line error with these words and a hint; a log has both in its last line."""
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == code, done.stderr
    if "consumer run" in " ".join(map(str, done.args)):
        failed = failure(done.stderr)
        assert failed["retryable"] == (code == 3)
        assert failed["hint"]
        assert all(word in failed["message"] for word in words), failed
        return
    # An error in a file is followed by its line.
    error, hint = [line for line in done.stderr.splitlines() if not re.match(r" +\d* \| ", line)]
    assert error.startswith("Error: ")
    assert hint.startswith("  ")
    assert all(word in error for word in words), error


BAD_SETTINGS = {
    "LAKE_S3": "x",
    "LAKE_HOEM": "x",
    "LAKE_HOME": "x" * 300,
    "LAKE_LANDING": "s3:/bucket",
    "LAKE_CATALOG": "hive",
    "LAKE_CATALOG_URI": "sqlite://",
    "LAKE_LANDING_LOG_URI": "postgresql://",
    "LAKE_SPARK_MASTER": "local[x]",
    "LAKE_DRIVER_MEMORY": "2x",
    "LAKE_SPARK_UI_PORT": "x",
    "LAKE_WAREHOUSE": "\udcff",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_bad_setting(tmp_path: Path, program: str) -> None:
    # Each program with each setting would be slow: all programs read settings in one place.
    names = BAD_SETTINGS if program == "consumer" else ["LAKE_S3", "LAKE_HOME"]
    for name in names:
        assert_told(run(tmp_path, program, *PROGRAMS[program], **{name: BAD_SETTINGS[name]}), 2, name)
    assert list(tmp_path.iterdir()) == []


def test_a_master_without_a_port(tmp_path: Path) -> None:
    assert_told(run(tmp_path, "consumer", "run", "events", LAKE_SPARK_MASTER="spark://nowhere"), 2, "spark://nowhere")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_of_defaults_that_is_not_utf_8(tmp_path: Path, program: str) -> None:
    (tmp_path / ".env").write_bytes(b"LAKE_LOGS=caf\xe9\n")
    assert_told(run(tmp_path, program, *PROGRAMS[program]), 2, ".env is not UTF-8")


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_argument_that_is_not_utf_8(tmp_path: Path, program: str) -> None:
    assert_told(run(tmp_path, program, PROGRAMS[program][0], b"\xff"), 2, "is not valid UTF-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((), "Missing argument 'STREAM...'"), (("events", "--nonsense"), "--nonsense"), (("--trigger",), "--trigger")],
)
def test_a_wrong_command_line_is_a_line_of_the_log(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert_told(run(tmp_path, "consumer", "run", *arguments), 2, words)


def test_a_contract_that_is_wrong_is_told_before_spark_starts(tmp_path: Path) -> None:
    text = (ROOT / "contracts" / "events.yaml").read_text()
    (tmp_path / "events.yaml").write_text(text.replace("name: product_id", "name: _product"))
    # Without jars, so that a consumer that looked for Spark first would not find it either.
    done = run(tmp_path, "consumer", "run", "events", LAKE_CONTRACTS=str(tmp_path), LAKE_JARS=str(tmp_path))
    assert_told(done, 2, "events.yaml:", "_product")


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    for program in ("producer", "consumer"):
        assert_told(run(tmp_path, program, *PROGRAMS[program]), 3, str(tmp_path / "lake"))


PRINTS = {
    "producer": "$PROGRAM producer events --help",
    "consumer": "$PROGRAM consumer run --help",
    "reader": "$PROGRAM reader sql 'SELECT * FROM range(100000)' --format csv",
    "reader table": "$PROGRAM reader sql 'SELECT 1'",
    "reader help": "$PROGRAM reader --help",
    "lakeproof": "$PROGRAM lakeproof settings",
    "lakeproof contract": "$PROGRAM lakeproof contract json-schema events",
    "lakeproof diff": "$PROGRAM lakeproof contract diff events events",
}


@pytest.mark.parametrize("command", PRINTS.values(), ids=PRINTS)
def test_nobody_reads_on(tmp_path: Path, command: str) -> None:
    done = shell(tmp_path, f"{command} | true")
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_the_log_of_spark_on_a_full_disk_says_nothing_elsewhere(tmp_path: Path) -> None:
    """Log4j prints the stack traces of its own failures."""
    logs, landing = tmp_path / "lake" / "logs", tmp_path / "lake" / "landing" / "events"
    for folder in (logs, landing):
        folder.mkdir(parents=True)
    (logs / "spark.log").symlink_to("/dev/full")
    (landing / "1.json").write_text("{}")
    command = [sys.executable, "-m", "consumer", "run", "events", "--available-now", "--to", "bronze"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert [line for line in done.stderr.splitlines() if not line.startswith("{")] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("command", PRINTS.values(), ids=PRINTS)
def test_a_full_disk(tmp_path: Path, command: str) -> None:
    assert_told(shell(tmp_path, f"{command} > /dev/full"), 1, "standard output", "No space left on device")


@pytest.mark.parametrize("command", PRINTS.values(), ids=PRINTS)
def test_a_closed_output(tmp_path: Path, command: str) -> None:
    assert_told(shell(tmp_path, f"{command} >&-"), 1, "standard output", "Bad file descriptor")


def test_closed_streams_stop_nothing_that_needs_none(tmp_path: Path) -> None:
    assert shell(tmp_path, "$PROGRAM producer events --batches 1 --batch-size 1 <&- >&- 2>&-").returncode == 0
    assert len(list((tmp_path / "lake" / "landing").rglob("*.json"))) == 1
    done = shell(tmp_path, "$PROGRAM lakeproof settings home 2>&-")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'lake'}\n")


def test_the_producer_ends_quietly_when_nobody_takes_its_batches(tmp_path: Path) -> None:
    done = shell(tmp_path, "$PROGRAM producer events --data-sink stdout | head -1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("number", "codes"),
    [(signal.SIGINT, (130,)), only_with_all(signal.SIGTERM, (143, -signal.SIGTERM))],
)
def test_a_query_that_is_ended(tmp_path: Path, number: signal.Signals, codes: tuple[int, ...]) -> None:
    command = [sys.executable, "-m", "reader", "sql", LONG_QUERY]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 120
        # DuckDB is loaded once signals are handled; two seconds of processor time later, the query is running.
        ready = math.inf
        while (used := psutil.Process(process.pid).cpu_times().user) < ready and time.monotonic() < deadline:
            if ready == math.inf and "duckdb" in Path(f"/proc/{process.pid}/maps").read_text():
                ready = used + 2
            time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (out, err) == ("", "")
    assert process.returncode in codes


@pytest.mark.all
def test_a_producer_that_is_asked_twice(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "producer",
        "events",
        "--batch-size",
        "100000",
        "--sleep-between-batches-seconds",
        "0",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is None  # the second batch takes seconds, even on a fast machine
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    # 0 if it was done before the second signal, and the signal itself if that came while the interpreter ended.
    assert process.returncode in (0, 128 + signal.SIGINT, -signal.SIGINT)
