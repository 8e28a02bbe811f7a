"""Command lines that the modes refuse."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.programs import forked
from typer.testing import CliRunner

from consumer.cli import app
from consumer.cli import run as cli
from lakeproof.kafka.modes import ModeName, fields_of


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dedupe"], ["The mode dedupe has no sink", "--parquet FOLDER"]),
        (["dedupe", "events"], ["cannot run with events", "process of its own"]),
        (["windows", "--to", "gold"], ["--to cannot be used with windows"]),
        (["windows", "--data-source", "s3"], ["--data-source cannot be used with windows"]),
        (["events", "--user-id", "u"], ["--user-id cannot be used with streams"]),
        (["dedupe", "--config", "none.yaml"], ["none.yaml does not exist"]),
        (["windows", "--topic", "t", "--kafka", "t"], ["topic and kafka", "are the same topic, t"]),
        (["dedupe", "--kafka", "k", "--window", "1 hour"], ["the mode dedupe has no field 'window'"]),
        (["dedupe", "--kafka", "k", "--trigger", "soon"], ["--trigger: expected a duration"]),
    ],
)
def test_what_would_be_ignored_or_cannot_run_is_refused(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    command = [*forked("consumer"), "run", *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", list(ModeName))
def test_each_field_is_an_option(monkeypatch: pytest.MonkeyPatch, name: ModeName) -> None:
    given = []
    monkeypatch.setattr(cli, "_run_mode", lambda *arguments: given.append(arguments[2]))
    values = {field: f"a-{field}" for field in fields_of(name)}
    options = [part for field, value in values.items() for part in (f"--{field.replace('_', '-')}", value)]
    done = CliRunner().invoke(app, ["run", name, *options], catch_exceptions=False)
    assert (done.exit_code, given) == (0, [values])
    helped = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    assert all(str(info.description)[:40] in helped for field, info in fields_of(name).items() if field != "topic")
