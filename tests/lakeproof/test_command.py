"""Output of errors in one place: two lines for people, or a line in the log of a command that logs."""

import json
import shlex
import subprocess
import sys

import pexpect
import pytest
from tests.logs import failure
from tests.selection import only_with_all

PROGRAM = """
import sys
import logging, warnings
from threading import Thread
import typer
from lakeproof.command import run
from lakeproof.errors import LakeproofError, OutputClosedError, UnavailableError, UsageError

app = typer.Typer(pretty_exceptions_enable=False)

def fail():
    raise {error}

@app.command()
def logs():
    {before}
    fail()

@app.command()
def silent():
    fail()

run(app, logs=["logs"])
"""


def program(error: str, *arguments: str, before: str = "pass") -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(error=error, before=before), *arguments]


def ended(error: str, *arguments: str, before: str = "pass") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(program(error, *arguments, before=before), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("error", "message", "hint", "retryable"),
    [
        ("UnavailableError('It is away.', 'Start it.')", "It is away.", "Start it.", True),
        only_with_all("UsageError('It is wrong.', 'Correct it.')", "It is wrong.", "Correct it.", False),
        pytest.param(
            "FileNotFoundError(2, 'No such file', 'a')",
            "'a': No such file.",
            "Check the path, its permissions and the disk, then try again.",
            False,
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_command_that_logs_logs_its_error_and_another_prints_it(
    error: str, message: str, hint: str, retryable: bool
) -> None:
    logged, printed = ended(error, "logs"), ended(error, "silent")
    assert printed.stderr.splitlines() == [f"Error: {message}", f"  {hint}"]
    line = json.loads(logged.stderr)
    assert line.pop("timestamp")
    assert line == {"event": "failed", "level": "error", "message": message, "hint": hint, "retryable": retryable}
    assert logged.returncode == printed.returncode


@pytest.mark.parametrize("arguments", [("logs", "--nonsense"), only_with_all(("logs", "nonsense"))])
def test_a_wrong_command_line_is_a_line_of_the_log(arguments: tuple[str, ...]) -> None:
    done = ended("ValueError()", *arguments)
    assert done.returncode == 2
    line = failure(done.stderr)
    assert "nonsense" in line["message"]
    assert line["hint"] == "Add --help for the options."


def test_an_error_that_nobody_expected_is_a_line_with_its_stack() -> None:
    done = ended("ValueError('a mistake of ours')", "logs")
    assert done.returncode == 1
    line = failure(done.stderr)
    assert line["message"] == "ValueError: a mistake of ours"
    assert "in fail" in line["exception"]
    assert ended("ValueError('a mistake of ours')", "silent").stderr.startswith("Traceback (most recent call last):")


def test_what_libraries_and_threads_say_is_logged() -> None:
    before = """
    logging.getLogger("library").warning("two\\nlines")
    warnings.warn("careful")
    thread = Thread(target=fail); thread.start(); thread.join()
    class Bad:
        def __del__(self): fail()
    Bad()
"""
    said = ended("ValueError('x')", "logs", before=before).stderr
    assert failure(said)
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["event"] for line in lines] == [
        "library",
        "py.warnings",
        "an error was not handled",
        "an error was not handled",
        "failed",
    ]
    assert lines[0]["message"] == "two\nlines"
    assert "ValueError: x" in lines[2]["exception"]


def test_a_full_disk_is_named_and_worth_another_try() -> None:
    done = ended(
        "ValueError()", "logs", before="with open('/dev/full', 'w', buffering=1) as file: file.write('line\\n')"
    )
    assert done.returncode == 3
    assert "No space is left on the disk " in failure(done.stderr)["message"]


def test_on_a_terminal_an_error_is_not_logged() -> None:
    command, *arguments = program("UnavailableError('It is away.', 'Start it.')", "logs")
    child = pexpect.spawn(command, arguments, timeout=60, encoding="utf-8")
    child.expect(pexpect.EOF)
    child.close()
    assert child.before.splitlines() == ["Error: It is away.", "  Start it."]
    assert child.exitstatus == 3


@pytest.mark.all
def test_what_a_terminal_would_obey_is_shown_in_errors_and_logs() -> None:
    """A file name may have any character."""
    error = r"UnavailableError('\u202ea\x1b[31m is away.\u2028', 'Start \x9b it.\ud800')"
    shown = ended(error, "silent").stderr.splitlines()
    assert shown == [r"Error: \u202ea\x1b[31m is away.\u2028", r"  Start \x9b it.\ud800"]
    log = r"lambda: structlog.get_logger().warning('\u202ea', file='\u202eb', line='\x1b[7mc d')"
    command = [sys.executable, "-c", f"import structlog; from lakeproof.command import run; run({log})"]
    logged = str(pexpect.run(shlex.join(command), timeout=60, encoding="utf-8"))
    assert all(text in logged for text in (r"\u202ea", r"\u202eb", r"\x1b[7mc d"))
    assert "\u202e" not in logged
    assert "\x1b[7m" not in logged


def test_nobody_is_told_of_an_output_that_nobody_reads() -> None:
    assert ended("OutputClosedError('nobody reads')", "logs").stderr == ""
