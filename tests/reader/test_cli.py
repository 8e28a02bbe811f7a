"""The reader's command line, run as a program."""

import csv
import io
import json
import sqlite3
from pathlib import Path

import pytest
from tests.reader.lake import Run
from typer.testing import CliRunner

from lakeproof.addresses import sqlite_path
from lakeproof.errors import UsageError
from lakeproof.settings import Settings
from reader.cli import app

QUERY = (
    "SELECT event_id, event_timestamp, properties FROM bronze.events WHERE event_id IN ('e0', 'e1') ORDER BY event_id"
)


def catalog_file(settings: Settings) -> Path:
    path = sqlite_path(settings.catalog.uri)
    assert path is not None
    return path


def test_sql_prints_a_table(local_lake: Settings, reader: Run) -> None:
    done = reader(local_lake, "sql", QUERY)
    assert done.returncode == 0, done.stderr
    assert "│ e0       │ 2026-01-01 12:00:00+00   │ {amount=12.50, currency=EUR} │" in done.stdout
    assert done.stderr == ""


def test_sql_prints_csv(local_lake: Settings, reader: Run) -> None:
    done = reader(local_lake, "sql", QUERY, "--format", "csv")
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["event_id", "event_timestamp", "properties"],
        ["e0", "2026-01-01T12:00:00+00:00", '{"amount": "12.50", "currency": "EUR"}'],
        ["e1", "2026-01-01T13:00:00+00:00", '{"amount": "12.50", "currency": "EUR"}'],
    ]


def test_sql_prints_json(local_lake: Settings, reader: Run) -> None:
    done = reader(local_lake, "sql", QUERY, "--format", "json")
    assert json.loads(done.stdout) == [
        {
            "event_id": f"e{number}",
            "event_timestamp": f"2026-01-01T{12 + number}:00:00+00:00",
            "properties": {"amount": "12.50", "currency": "EUR"},
        }
        for number in range(2)
    ]


def test_dead_letters_print_in_json(lake: Settings, reader: Run) -> None:
    done = reader(lake, "sql", "SELECT raw, as_text(raw) AS text FROM dead_letters.events LIMIT 1", "--format", "json")
    assert json.loads(done.stdout) == [
        {"raw": "eyJ1c2VyX2lkIjogIv8iLCAieCI6IDF9", "text": r'{"user_id": "\xFF", "x": 1}'}
    ]


def test_a_statement_without_result_prints_nothing(local_lake: Settings, reader: Run) -> None:
    done = reader(local_lake, "sql", "SET threads = 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELEC 1", 'Error: Parser Error: syntax error at or near "SELEC"\n'),
        ("SELECT nope FROM bronze.events", 'Error: Binder Error: Referenced column "nope" not found in FROM clause!'),
        ("SELECT 'x'::INT", "Error: Conversion Error: Could not convert string 'x' to INT32\n"),
        ("SELECT error('now') FROM range(3)", "Error: Invalid Input Error: now\n"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(local_lake: Settings, reader: Run, statement: str, message: str) -> None:
    done = reader(local_lake, "sql", statement)
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert done.returncode == 1


def test_a_missing_table_is_answered_with_those_that_exist(local_lake: Settings, reader: Run) -> None:
    done = reader(local_lake, "sql", "FROM bronze.nope")
    assert done.returncode == 1
    assert "Did you mean bronze.events? `reader tables` lists the tables." in done.stderr


def test_an_empty_lake_says_what_to_do(lake_settings: Settings, reader: Run) -> None:
    for arguments in (("sql", "FROM bronze.events"), ("tables",), ("summary", "events")):
        done = reader(lake_settings, *arguments)
        assert done.returncode == 1
        assert "no tables yet" in done.stderr
        assert "lakeproof demo" in done.stderr
        assert "Traceback" not in done.stderr


def test_sql_without_tables_opens_no_catalog(lake_settings: Settings, reader: Run) -> None:
    assert reader(lake_settings, "sql", "SELECT count(*) FROM landing.events, range(3)").returncode == 0
    assert not catalog_file(lake_settings).exists()


def test_a_broken_catalog_is_exit_code_3(lake_settings: Settings, reader: Run) -> None:
    lake_settings.home.mkdir()
    catalog_file(lake_settings).write_text("no database, whatever its name says")
    for arguments in (("sql", "FROM bronze.events"), ("tables",), ("summary", "events", "--wait", "--timeout", "1")):
        done = reader(lake_settings, *arguments)
        assert done.returncode == 3, done.stderr
        assert "file is not a database" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_locked_catalog_can_still_be_read(local_lake: Settings, reader: Run) -> None:
    with sqlite3.connect(catalog_file(local_lake)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        done = reader(local_lake, "sql", "SELECT count(*) AS n FROM dead_letters.events", "--format", "csv")
        writer.rollback()
    assert done.stdout.split() == ["n", "3"], done.stderr


def test_help_names_every_command(local_lake: Settings, reader: Run) -> None:
    done = reader(local_lake, "--help")
    assert done.returncode == 0
    for command in ("sql", "shell", "tables", "summary"):
        assert command in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "--follow", "--all"], "--follow proves only what is new"),
        (["verify", "--follow", "--receipts", "r.jsonl"], "--follow cannot be used with --receipts"),
        (["verify", "events", "--every", "60"], "--every is for --follow."),
        (["page", "--serve", "--out", "lake.html"], "--serve cannot be used with --out"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    lake_settings: Settings, arguments: list[str], message: str
) -> None:
    environment = {"LAKE_HOME": str(lake_settings.home), "LAKE_CONTRACTS": str(lake_settings.contracts)}
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
    assert refused.value.message.startswith(message)
