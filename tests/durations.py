"""Durations of the tests: each run stores them, and a run of the whole suite is compared with the folders' budgets.

``python -m tests.durations`` prints the table of the newest runs. Budgets are shares of the total, since seconds depend
on the machine. The end of a run lists each folder over its budget, which does not fail the run.
"""

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.selection import ALL

BUDGETS = Path(__file__).parent / "budgets.csv"
STORED = "durations/{}"
RUN = "all" if ALL else "default"
SLOW_PERCENT = 0.5
"""A new test that takes more than this share of the total is reported."""


class Share(NamedTuple):
    """A folder's share of the total."""

    folder: str
    tests: int
    seconds: float
    percent: float
    budget: float


def read_budgets(run: str) -> dict[str, float]:
    """Return percent of the total by folder; a test belongs to the longest folder path that contains it."""
    with BUDGETS.open(encoding="utf-8", newline="") as file:
        return {row["folder"]: float(row[run]) for row in csv.DictReader(file)}


def shares(seconds: Mapping[str, float], budgets: Mapping[str, float]) -> list[Share]:
    """Return the folders, the slowest first."""
    spent, tests = dict.fromkeys(budgets, 0.0), dict.fromkeys(budgets, 0)
    for test, duration in seconds.items():
        folder = max((each for each in budgets if test.startswith(f"{each}/")), key=len)
        spent[folder] += duration
        tests[folder] += 1
    whole = sum(seconds.values()) or 1.0
    return [
        Share(folder, tests[folder], spent[folder], 100 * spent[folder] / whole, budgets[folder])
        for folder in sorted(spent, key=spent.__getitem__, reverse=True)
    ]


def findings(seconds: Mapping[str, float], known: Iterable[str], budgets: Mapping[str, float]) -> list[str]:
    """Return messages about folders over their budgets, and slow tests that no earlier run has stored."""
    lines = [
        f"{each.folder} takes {each.percent:.1f} % of the whole; its budget is {each.budget:.1f} %"
        for each in shares(seconds, budgets)
        if each.percent > each.budget
    ]
    limit = sum(seconds.values()) * SLOW_PERCENT / 100
    new = {test: seconds[test] for test in seconds.keys() - set(known) if seconds[test] > limit}
    slowest = sorted(new, key=new.__getitem__, reverse=True)[:10]
    return lines + [f"{test} is new and takes {new[test]:.1f} s" for test in slowest]


def is_whole(config: pytest.Config) -> bool:
    """Return whether no path and no option selects or leaves out tests."""
    addopts, options = config.getini("addopts"), config.option
    by_default = "-m" in addopts and options.markexpr == addopts[addopts.index("-m") + 1]
    limits = ("keyword", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "maxfail")  # some are of plugins
    return (
        by_default
        and config.args == config.getini("testpaths")
        and not any(getattr(options, limit, None) for limit in limits)
    )


class Durations:
    """A plugin that stores the duration of each test, and reports slow folders and tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._whole = is_whole(config)
        self._config = config
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases of a test."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Store the durations, and print the findings."""
        whole = self._whole and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        cache = getattr(self._config, "cache", None)  # None with -p no:cacheprovider
        if cache is None or not self._seconds:
            return
        key = STORED.format(RUN)
        stored: dict[str, float] = cache.get(key, {})
        rounded = {test: round(seconds, 3) for test, seconds in self._seconds.items()}
        cache.set(key, rounded if whole else stored | rounded)
        if not whole:
            return
        found = findings(rounded, stored or rounded, read_budgets(RUN))
        for line in found:
            terminalreporter.write_line(f"Slow: {line}", yellow=True)
        if found:
            terminalreporter.write_line("All folders: .venv/bin/python -m tests.durations")


def main() -> None:
    """Print the table of each stored kind of run."""
    for run in ("default", "all"):
        stored = Path(".pytest_cache/v") / STORED.format(run)
        if not stored.exists():
            continue
        seconds = json.loads(stored.read_text())
        sys.stdout.write(f"\n{run}: {len(seconds)} tests, {sum(seconds.values()):.0f} s\n")
        for each in shares(seconds, read_budgets(run)):
            part = f"{each.percent:5.1f} % of {each.budget:4.1f} {'over' if each.percent > each.budget else ''}"
            sys.stdout.write(f"{each.folder:32} {each.tests:5} tests {each.seconds:7.0f} s {part}\n")


if __name__ == "__main__":
    main()
