"""Goals are judged correctly, and pages are generated from the JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.figures import Bars, Goal, Report, Table
from benchmarks.report import page, read_reports, summary


def report(name: str, *goals: Goal, **parts: Any) -> Report:
    return Report(
        name=name,
        title=f"The {name}",
        about=["What it is."],
        goals=list(goals),
        tables=[Table("Times", ["side", "seconds"], [["ours", "1.0"], ["theirs", "6.0"]])],
        machine={"cores": "2"},
        options={"files": 7},
        **parts,
    )


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal("a", 5.0, at_least=5), True),
        (Goal("a", 4.99, at_least=5), False),
        (Goal("a", 3.5, at_most=3.5), True),
        (Goal("a", 3.51, at_most=3.5), False),
    ],
)
def test_a_goal_is_met_up_to_its_limit(goal: Goal, met: bool) -> None:
    assert goal.met is met


def test_a_page_shows_goals_tables_machine_and_options() -> None:
    text = page(report("backlog", Goal("theirs over ours", 6.0, at_least=5), Goal("start", 12.0, at_most=10, unit="s")))
    assert "| theirs over ours | ≥ 5 x | 6.00 x | yes |" in text
    assert "| start | ≤ 10 s | 12.00 s | no |" in text
    assert "| theirs | 6.0 |" in text
    assert "| cores | 2 |" in text
    assert "| files | 7 |" in text
    assert "backlog.png" not in text


def test_notes_stand_below_the_goals() -> None:
    text = page(report("backlog", Goal("one", 1.0, at_most=2)), "What bounds it: the parser.\n")
    assert text.index("| one |") < text.index("What bounds it: the parser.") < text.index("## Times")


def test_a_page_names_its_picture_where_there_is_one() -> None:
    drawn = report("backlog", bars=[Bars("times", "seconds", ["compact"], {"ours": [1.0]})])
    assert "](backlog.png)" in page(drawn)


def test_the_summary_has_every_goal_of_every_report() -> None:
    text = summary([report("a", Goal("one", 1.0, at_most=2)), report("b", Goal("two", 3.0, at_most=2))])
    assert "| [a](a.md) | one | ≤ 2 x | 1.00 x | yes |" in text
    assert "| [b](b.md) | two | ≤ 2 x | 3.00 x | no |" in text


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    from dataclasses import asdict

    written = report("a", Goal("one", 1.5, at_most=2), raw=[{"seconds": 1.5}])
    (tmp_path / "a.json").write_text(json.dumps(asdict(written)))
    assert read_reports(tmp_path) == [written]
