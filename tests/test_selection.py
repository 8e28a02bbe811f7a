"""The choice of combinations, and what runs by default."""

from itertools import combinations, product

import pytest
from tests.selection import ALL, covering, examples, first_by_default, grid, only_with_all
from tests.test_conftest import run

AXES = [["a", "b", "c", "d"], ["1", "2"], ["x", "y", "z"]]


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 14), (3, 24)])
def test_each_combination_of_that_many_axes_is_chosen_by_few_cases(strength: int, most: int) -> None:
    chosen = covering(AXES, strength)
    assert len(chosen) <= most
    for numbers in combinations(range(len(AXES)), strength):
        found = {tuple(case[number] for number in numbers) for case in chosen}
        assert found == set(product(*(AXES[number] for number in numbers)))


def test_the_choice_is_always_the_same() -> None:
    assert covering(AXES, 2) == covering(AXES, 2)


def test_a_grid_of_two_axes_has_all_combinations_and_marks_those_that_do_not_run_by_default() -> None:
    mark = grid(step=["a", "b"], lost={"nothing": (), "all of it": (1, 2)}).mark
    names, cases = mark.args
    assert names == ["step", "lost"]
    assert {case.id: case.values for case in cases} == {
        "a-nothing": ("a", ()),
        "a-all of it": ("a", (1, 2)),
        "b-nothing": ("b", ()),
        "b-all of it": ("b", (1, 2)),
    }
    marks = {case.id: [mark.name for mark in case.marks] for case in cases}
    assert sorted(marks.values()) == [[], ["all"], ["long"], ["long"]]
    assert {name for name, those in marks.items() if those != ["long"]} in (
        {"a-nothing", "b-all of it"},
        {"a-all of it", "b-nothing"},
    )


def test_a_larger_grid_has_each_pair_of_values() -> None:
    _, cases = grid(**dict(zip("abc", AXES, strict=True))).mark.args
    values = [case.values for case in cases]
    assert len(values) < 24
    assert {(first, last) for first, _, last in values} == set(product(AXES[0], AXES[2]))
    marks = {case.values: [mark.name for mark in case.marks] for case in cases}
    assert {value for case in cases if marks[case.values] != ["long"] for value in case.values} == {
        each for axis in AXES for each in axis
    }
    assert list(marks.values()).count([]) == 1


def test_the_first_values_run_by_default() -> None:
    cases = first_by_default([("a", 1), "b", "c"], 2)
    assert [(case.values, [mark.name for mark in case.marks]) for case in cases] == [
        (("a", 1), []),
        (("b",), []),
        (("c",), ["all"]),
    ]


def test_examples_are_fewer_by_default() -> None:
    assert examples(500) == (500 if ALL else 100)
    assert examples(5) == 5


SELECTED = """
import pytest
from tests.selection import only_with_all

@pytest.mark.parametrize("name", ["first", only_with_all("second")])
def test_one(name):
    pass
"""


@pytest.mark.all
@pytest.mark.parametrize(("everything", "passed"), [("", 1), ("0", 1), ("1", 2)])
def test_what_is_marked_runs_with_all_only(tmp_path, monkeypatch, everything, passed) -> None:
    monkeypatch.setenv("ALL", everything)
    file = tmp_path / "test_selected.py"
    file.write_text(SELECTED)
    assert f"{passed} passed" in run(file)


def test_what_is_named_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("ALL", raising=False)
    file = tmp_path / "test_selected.py"
    file.write_text(SELECTED)
    assert "2 passed" in run(f"{file}::test_one")


def test_parameter_sets_keep_their_other_marks() -> None:
    marks = only_with_all(1, 2, id="x", marks=[pytest.mark.s3]).marks
    assert [mark.name for mark in marks] == ["all", "s3"]
