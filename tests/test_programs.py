"""A fork of a program behaves like the program."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.chaos.processes import wait_until
from tests.programs import folder, forked
from tests.selection import only_with_all
from tests.servers import PATIENCE


def run(command: list[str], *arguments: str | bytes, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*command, *arguments], cwd="/", env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr.replace("python -m lakeproof", "lakeproof")


@pytest.mark.parametrize(
    "arguments",
    [
        ("settings", "home"),
        ("nonsense",),
        only_with_all(("settings",)),
        only_with_all(("contract", "check", "é")),
        only_with_all((b"\xff",)),
    ],
)
def test_it_says_and_ends_with_what_the_program_does(tmp_path: Path, arguments: tuple[str | bytes, ...]) -> None:
    own = {"LAKE_HOME": str(tmp_path / "é"), "LAKE_CONTRACTS": str(tmp_path)}
    real = run([sys.executable, "-m", "lakeproof"], *arguments, **own)
    assert run(forked("lakeproof"), *arguments, **own) == real
    assert run([str(folder() / "lakeproof")], *arguments, **own) == real


def test_it_reads_the_standard_input(tmp_path: Path) -> None:
    done = subprocess.run(
        [*forked("reader"), "shell"],
        env=os.environ | {"LAKE_HOME": str(tmp_path)},
        input="select 6 * 7 as n;",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "42" in done.stdout


def test_it_is_ended_with_its_caller(tmp_path: Path) -> None:
    query = "SELECT count(*) FROM range(10000000000) a, range(100000) b WHERE a.range % 7 = b.range % 3"
    command = forked("reader")
    # A child that has ended has no command line.
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    (server,) = [child for child in children if "tests.programs" in child.cmdline()]
    process = subprocess.Popen([*command, "sql", query], env=os.environ | {"LAKE_HOME": str(tmp_path)})
    assert wait_until(lambda: bool(server.children(recursive=True)), PATIENCE)
    time.sleep(0.2)
    process.kill()
    process.wait()
    assert wait_until(lambda: not server.children(recursive=True), PATIENCE)
