"""The one place that prints errors: as two lines for people, and as data in the log of a command that logs."""

import json
import subprocess
import sys

import pexpect
import pytest

PROGRAM = """
import sys
from lakeproof.command import logged_errors, run
from lakeproof.errors import LakeproofError, OutputClosedError, UnavailableError, UsageError

def logs():
    with logged_errors():
        silent()

def silent():
    raise {error}

run({command})
"""


def program(error: str, command: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(error=error, command=command)]


def stderr_of(error: str, command: str) -> list[str]:
    return subprocess.run(program(error, command), capture_output=True, text=True, timeout=60).stderr.splitlines()


@pytest.mark.parametrize(
    ("error", "message", "hint", "retryable"),
    [
        ("UnavailableError('It is away.', 'Start it.')", "It is away.", "Start it.", True),
        ("UsageError('It is wrong.', 'Correct it.')", "It is wrong.", "Correct it.", False),
        (
            "FileNotFoundError(2, 'No such file', 'a')",
            "'a': No such file.",
            "Check the path, its permissions and the disk, then try again.",
            False,
        ),
    ],
)
def test_a_command_that_logs_logs_its_error_as_data_and_prints_it(
    error: str, message: str, hint: str, retryable: bool
) -> None:
    logged, *printed = stderr_of(error, "logs")
    assert printed == [f"Error: {message}", f"  {hint}"] == stderr_of(error, "silent")
    line = json.loads(logged)
    assert line.pop("timestamp")
    assert line == {"event": "failed", "level": "error", "message": message, "hint": hint, "retryable": retryable}


def test_on_a_terminal_an_error_is_not_logged() -> None:
    command, *arguments = program("UnavailableError('It is away.', 'Start it.')", "logs")
    child = pexpect.spawn(command, arguments, timeout=60, encoding="utf-8")
    child.expect(pexpect.EOF)
    child.close()
    assert child.before.splitlines() == ["Error: It is away.", "  Start it."]
    assert child.exitstatus == 3


def test_what_is_no_users_error_is_not_logged() -> None:
    assert stderr_of("ValueError('a mistake of ours')", "logs")[0] == "Traceback (most recent call last):"
    assert stderr_of("OutputClosedError('nobody reads')", "logs") == []
