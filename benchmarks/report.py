"""Write a report as JSON, and generate its page and picture and the summary from the JSON."""

import json
from dataclasses import asdict
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.figures import Goal, Report, Table
from benchmarks.machine import ROOT
from benchmarks.plots import draw

DOCS = ROOT / "docs" / "benchmarks"


def write_report(report: Report, docs: Path = DOCS) -> None:
    """Write JSON, page and picture, and regenerate the summary of all reports."""
    docs.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(report), indent=1, ensure_ascii=False)
    (docs / f"{report.name}.json").write_text(text + "\n")
    render(docs)


def render(docs: Path = DOCS) -> None:
    """Generate all pages, pictures and the summary from the JSON files."""
    reports = read_reports(docs)
    for report in reports:
        notes = docs / "notes" / f"{report.name}.md"
        (docs / f"{report.name}.md").write_text(page(report, notes.read_text() if notes.exists() else ""))
        draw(report, docs / f"{report.name}.png")
    (docs / "README.md").write_text(summary(reports))


def read_reports(docs: Path = DOCS) -> list[Report]:
    """Read all reports, sorted by file name."""
    return [read_report(path) for path in sorted(docs.glob("*.json"))]


def read_report(path: Path) -> Report:
    """Read a report."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def page(report: Report, notes: str = "") -> str:
    """Return a report as Markdown, with handwritten notes (docs/benchmarks/notes/) below the goals."""
    parts = [f"# {report.title}", *report.about]
    if report.goals:
        parts += ["## Goals", _markdown(goals_table(report.goals))]
    if notes:
        parts.append(notes.strip())
    if report.bars or report.lines or report.histograms:
        parts.append(f"![{report.title}]({report.name}.png)")
    for table in report.tables:
        parts += [f"## {table.title}", _markdown(table)]
    about_run = {name.replace("_", " "): str(value) for name, value in report.options.items()}
    rows = [[name, value] for name, value in (report.machine | about_run).items()]
    parts += ["## Measured on", _markdown(Table("", ["what", "value"], rows), right=False)]
    parts.append(
        f"Made by `make bench NAME={report.name}`. The figures behind it: [{report.name}.json]({report.name}.json)."
    )
    return "\n\n".join(parts) + "\n"


def summary(reports: list[Report]) -> str:
    """Return the goals of all reports as one page."""
    rows = [
        [f"[{report.name}]({report.name}.md)", goal.text, goal.limit, _seen(goal), _verdict(goal)]
        for report in reports
        for goal in report.goals
    ]
    return (
        "\n\n".join(
            [
                "# Benchmarks",
                "`make bench` runs them all, `make bench NAME=backlog` one of them. Each runs all its sides in one go, "
                "each side in a process of its own, in turns; medians of several runs count. This page is made from "
                "the JSON files beside it.",
                _markdown(Table("", ["benchmark", "what", "goal", "seen", "met"], rows), right=False),
            ]
        )
        + "\n"
    )


def goals_table(goals: list[Goal]) -> Table:
    """Return a table of goals with their figures."""
    rows = [[goal.text, goal.limit, _seen(goal), _verdict(goal)] for goal in goals]
    return Table("Goals", ["what", "goal", "seen", "met"], rows)


def show(report: Report, console: Console) -> None:
    """Print a report."""
    for table in [*report.tables, *([goals_table(report.goals)] if report.goals else [])]:
        rich = RichTable(title=table.title, title_justify="left")
        for index, column in enumerate(table.columns):
            rich.add_column(column, justify="right" if index else "left")
        for row in table.rows:
            rich.add_row(*row)
        console.print(rich)


def _markdown(table: Table, *, right: bool = True) -> str:
    rule = ["---", *["---:" if right else "---"] * (len(table.columns) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [table.columns, rule, *table.rows])


def _seen(goal: Goal) -> str:
    """Format a figure with two decimals; small ones with two significant digits."""
    small = 0 < abs(goal.figure) < 0.1
    return f"{goal.figure:{'.2g' if small else '.2f'}} {goal.unit}"


def _verdict(goal: Goal) -> str:
    return "yes" if goal.met else "no"
