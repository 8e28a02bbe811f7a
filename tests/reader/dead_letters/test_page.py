"""The page on dead letters: its commands run, and print the output that it shows."""

import csv
import io
import json
import shlex
from pathlib import Path

import pytest
from tests.pages import ROOT, blocks
from tests.reader.lake import Run
from tests.reader.verify.lake import Lake
from tests.reader.verify.replays import Replayer

from lakeproof.settings import Settings
from reader.verify.checks import replays

PAGE = "docs/dead-letters.md"


def event(number: int, **changes: object) -> dict[str, object]:
    record = {"user_id": "u1", "event_id": f"e{number}", "event_timestamp": "2026-11-21T12:30:00Z"}
    return record | {"event_type": "refund"} | changes


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    """Two refunds corrected by a transform, one with a wrong type that is parked, and two that are open."""
    landed = Lake(lake_settings)
    records = [event(0), event(1), event(2, user_id=17), event(3), event(4)]
    landed.land({"2026/11/21.json": json.dumps(records).encode()})
    landed.consume()
    replayer = Replayer(lake_settings, tmp_path / "today")
    replayer.replay(
        lambda letter: letter["_position"] in (0, 1), transform=lambda raw: raw.replace(b'"refund"', b'"purchase"')
    )
    replayer.replay(lambda letter: letter["_position"] == 2, most=1)
    return lake_settings


def run(settings: Settings, reader: Run, command: str, code: int = 0) -> str:
    program, *arguments = shlex.split(command)
    assert program == "reader"
    done = reader(settings, *arguments)
    assert (done.returncode, done.stderr) == (code, ""), done.stderr
    return done.stdout


def test_the_commands_show_and_export_what_the_page_says(settings: Settings, reader: Run) -> None:
    look, export = blocks(PAGE, "sh")
    shown, parked, text, table = (run(settings, reader, command) for command in look.splitlines())
    (expected,) = blocks(PAGE, "text")
    for line in expected.splitlines():
        assert line.rstrip() in [each.rstrip() for each in shown.splitlines()], line
    assert "wrong_type at $.user_id" in parked
    assert json.loads(text)["states"] == {"open": 2, "parked": 1, "closed": 2}
    assert [row["reason"] for row in csv.DictReader(io.StringIO(table))] == ["not_allowed", "wrong_type"]
    lines, folder = (run(settings, reader, command) for command in export.splitlines())
    assert (lines, folder) == ("Wrote 3 dead letters to left.jsonl\n", "Wrote 5 dead letters to all/\n")
    assert json.loads((settings.home / "left.jsonl").read_text().splitlines()[1]) == event(3)


@pytest.mark.all
def test_what_a_transform_did_is_a_statement_of_sql(settings: Settings, reader: Run) -> None:
    (statement,) = blocks(PAGE, "sql")
    found = json.loads(run(settings, reader, f'reader sql "{statement}" --format json'))
    assert [row["transform"] for row in found] == ["fix.py", "fix.py"]
    assert all("refund" in row["landed"] and "purchase" in row["judged"] for row in found)


def test_the_page_names_the_findings_about_batches() -> None:
    text = (ROOT / PAGE).read_text()
    for finding in (replays.LEFT_BEHIND, replays.OTHER_REST, replays.OTHER_NUMBER, replays.OTHER_VALUES):
        assert f"| {finding} |" in text
