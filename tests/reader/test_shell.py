"""The shell: standard input passes through, and while it is open it sees what is committed."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest
from tests.reader.lake import Append, Run

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings
from lakeproof.tables.schemas import bronze_schema, ensure_tables

PROMPT = "lake D "
COLUMNS = 200


class Terminal:
    """A shell on a terminal."""

    def __init__(self, settings: Settings, environment: dict[str, str]) -> None:
        settings.home.mkdir(parents=True, exist_ok=True)
        self.process: pexpect.spawn[str] = pexpect.spawn(
            sys.executable,
            ["-m", "reader", "shell"],
            env=environment | {"TERM": "xterm", "NO_COLOR": "1"},
            cwd=str(settings.home),
            dimensions=(50, COLUMNS),
            encoding="utf-8",
            timeout=120,
        )
        # It asks the terminal for its colors, and waits for an answer.
        self.process.expect_exact("\x1b[c")
        self.process.send("\x1b]11;rgb:0000/0000/0000\x07\x1b[?62c")
        self.process.expect_exact(PROMPT)
        self.greeting = str(self.process.before)

    def ask(self, statement: str) -> str:
        """Return the shell's output for `statement`, without colors."""
        self.process.send(f"{statement};\r")
        self.process.expect_exact(f"{statement[-5:]};")  # the echo, which is partly colored
        self.process.expect_exact("\r\n")
        self.process.expect_exact(PROMPT)
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", str(self.process.before))

    def count(self, table: str) -> int:
        """Number of rows of `table`."""
        answer = self.ask(f"SELECT 'n=' || count(*) FROM {table}")
        found = re.search(r"n=(\d+)", answer)
        assert found, answer
        return int(found[1])


@pytest.fixture
def terminal(
    local_lake: Settings, reader_environment: Callable[[Settings], dict[str, str]]
) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(settings: Settings = local_lake) -> Terminal:
        opened.append(Terminal(settings, reader_environment(settings)))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.process.close(force=True)


def test_piped_statements_run_and_print_nothing_else(lake: Settings, reader: Run) -> None:
    statements = (
        ".mode csv\nSELECT count(*) AS n FROM dead_letters.events;\nSELECT count(*) AS n FROM landing.events;\n"
    )
    statements += "SELECT current_setting('allow_unsigned_extensions') AS unsigned;\n"
    done = reader(lake, "shell", text=statements)
    assert done.stdout.split() == ["n", "3", "n", "9", "unsigned", "false"]
    assert done.stderr == ""
    assert done.returncode == 0


def test_a_piped_error_ends_the_shell_with_1(local_lake: Settings, reader: Run) -> None:
    done = reader(local_lake, "shell", text="SELECT 1 AS one;\nFROM bronze.nope;\n")
    assert "one" in done.stdout
    assert "nope does not exist" in done.stderr
    assert done.returncode == 1


def test_on_a_terminal_it_says_how_to_list_tables_and_an_error_does_not_end_it_with_1(
    terminal: Callable[..., Terminal], reader: Run, local_lake: Settings
) -> None:
    shell = terminal()
    assert "FROM tables; lists the tables" in shell.greeting
    listed = shell.ask("SELECT schema, name FROM tables AS events")
    assert re.search(r"│ bronze +│ events +│", listed)
    assert "sensors" not in listed  # a stream that never ran
    everything = reader(local_lake, "shell", text="SHOW ALL TABLES;").stdout
    assert "landing" in everything
    assert "sensors" not in everything
    shell.ask("FROM bronze.nope")
    shell.process.send("\x04")
    shell.process.expect(pexpect.EOF)
    shell.process.close()
    assert shell.process.exitstatus == 0


def test_an_open_shell_sees_commits_and_new_tables(
    local_lake: Settings, terminal: Callable[..., Terminal], append: Append
) -> None:
    shell = terminal()
    before = shell.count("bronze.events")
    append(local_lake, 7, start=500)
    assert shell.count("bronze.events") == before + 7

    assert "later does not exist" in shell.ask("FROM silver.later")
    catalog = open_catalog(local_lake)
    catalog.create_namespace("silver")
    catalog.create_table("silver.later", bronze_schema(load_contract(local_lake.contracts, "events")))
    append(local_lake, 2, table="silver.later")
    assert shell.count("silver.later") == 2
    catalog.drop_table("silver.later")
    catalog.drop_namespace("silver")


@pytest.mark.all
def test_a_shell_opened_before_anything_landed_sees_the_first_rows(
    lake_settings: Settings, terminal: Callable[..., Terminal], append: Append
) -> None:
    shell = terminal(lake_settings)
    assert "does not exist" in shell.ask("FROM bronze.events")
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    append(lake_settings, 4)
    assert shell.count("bronze.events") == 4
    assert shell.count("dead_letters_text.events") == 0


@pytest.mark.all
def test_the_terminal_shows_duckdbs_greeting_and_no_noise(terminal: Callable[..., Terminal]) -> None:
    shell = terminal()
    assert "DuckDB v" in shell.greeting
    assert "rror" not in shell.greeting
    assert "Loading resources" not in shell.greeting
    shell.process.send(".quit\r")
    shell.process.expect(pexpect.EOF)
    shell.process.wait()
    assert shell.process.exitstatus == 0


@pytest.mark.all
def test_a_result_fits_the_screen_and_a_long_value_is_shown_whole(terminal: Callable[..., Terminal]) -> None:
    shell = terminal()
    for statement in ("FROM dead_letters_text.events", "SELECT 'start' || repeat('x', 500) || 'end' AS longest"):
        answer = shell.ask(statement)
        assert 100 < max(map(len, answer.splitlines())) <= COLUMNS
    assert answer.count("x") >= 500
    assert "start" in answer
    assert "end" in answer


def test_ctrl_c_cancels_a_query_and_the_shell_goes_on(terminal: Callable[..., Terminal]) -> None:
    shell = terminal()
    shell.process.send("SELECT sum(a.range + b.range) FROM range(10000000) a, range(1000000) b;\r")
    (running,) = _children(shell.process.pid)
    before = _seconds_of(running)
    while _seconds_of(running) < before + 1:  # before it runs, Ctrl-C would be one more character of the line
        time.sleep(0.1)
    shell.process.sendintr()
    # The line editor echoes differently now: check only the answer.
    shell.process.send("SELECT 'n=' || sum(range) FROM range(4);\r")
    shell.process.expect_exact("n=6")


@pytest.mark.all
def test_whoever_ends_the_reader_ends_its_shell(terminal: Callable[..., Terminal]) -> None:
    shell = terminal()
    children = _children(shell.process.pid)
    assert len(children) == 1
    shell.process.kill(signal.SIGTERM)
    shell.process.expect(pexpect.EOF)
    shell.process.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)


@pytest.mark.s3
def test_the_key_is_on_no_command_line(s3_lake: Settings, terminal: Any) -> None:
    shell = terminal(s3_lake)
    assert shell.count("bronze.events") >= 3
    secret = s3_lake.s3.secret_access_key
    assert secret is not None
    for process in (shell.process.pid, *_children(shell.process.pid)):
        assert secret.get_secret_value().encode() not in Path(f"/proc/{process}/cmdline").read_bytes()


def _seconds_of(process: int) -> float:
    """Return the processor time that a process has taken."""
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


def _children(process: int) -> list[int]:
    lists = [task.read_text().split() for task in Path(f"/proc/{process}/task").glob("*/children")]
    return [int(child) for children in lists for child in children]
