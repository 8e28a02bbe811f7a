"""Folders over their budgets and slow new tests are found."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from tests.conftest import ROOT
from tests.durations import RUN, findings, is_whole, read_budgets, shares

BUDGETS = {"tests": 20.0, "tests/consumer": 60.0, "tests/consumer/layers": 20.0}
SECONDS = {
    "tests/consumer/layers/test_a.py::test_a": 30.0,
    "tests/consumer/test_b.py::test_b": 50.0,
    "tests/consumer_of/test_c.py::test_c": 19.6,
    "tests/test_d.py::test_d": 0.4,
}


def test_a_test_belongs_to_the_longest_path() -> None:
    found = {each.folder: (each.tests, each.seconds, each.percent) for each in shares(SECONDS, BUDGETS)}
    assert found == {
        "tests/consumer": (1, 50.0, pytest.approx(50.0)),
        "tests/consumer/layers": (1, 30.0, pytest.approx(30.0)),
        "tests": (2, 20.0, pytest.approx(20.0)),
    }


def test_folders_over_budget_and_slow_new_tests_are_named() -> None:
    layers, slow = findings(SECONDS, ["tests/consumer/layers/test_a.py::test_a", "tests/test_d.py::test_d"], BUDGETS)[
        :2
    ]
    assert layers.startswith("tests/consumer/layers takes 30.0 %")
    assert slow.startswith("tests/consumer/test_b.py::test_b is new")
    assert findings(SECONDS, SECONDS, BUDGETS | {"tests/consumer/layers": 30.1}) == []


def test_a_slower_machine_changes_nothing() -> None:
    slower = {test: seconds * 7 for test, seconds in SECONDS.items()}
    assert [each.percent for each in shares(slower, BUDGETS)] == pytest.approx(
        [each.percent for each in shares(SECONDS, BUDGETS)]
    )


def test_every_test_has_a_budget_and_every_budget_a_folder() -> None:
    assert RUN in ("default", "all")
    for run in ("default", "all"):
        budgets = read_budgets(run)
        assert "tests" in budgets
        assert [folder for folder in budgets if not (ROOT / folder).exists()] == []


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({}, True),
        ({"verbose": 1}, True),
        ({"markexpr": "long"}, False),
        ({"markexpr": ""}, False),
        ({"keyword": "kafka"}, False),
        ({"lf": True}, False),
        ({"maxfail": 1}, False),
        ({"deselect": ["tests/consumer"]}, False),
    ],
)
def test_only_a_run_of_all_tests_replaces_what_is_stored(options: dict[str, object], whole: bool) -> None:
    ini = {"testpaths": ["tests"], "addopts": ["-q", "-m", "not long"]}
    config = SimpleNamespace(
        args=["tests"], getini=ini.get, option=Namespace(**{"markexpr": "not long", "keyword": ""} | options)
    )
    assert is_whole(config) is whole
    config.args = ["tests/consumer"]
    assert not is_whole(config)
