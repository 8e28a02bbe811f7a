"""Ratios are the right way round, and the table shows a side with wrong results."""

import pytest
from benchmarks.compare import DLT, DUCKDB, OURS, USUAL, Comparison, Truth
from benchmarks.harness import PeakMemory, Sample, SideFailedError
from benchmarks.inputs import Input, digest

SECONDS = {OURS: 10.0, USUAL: 60.0, DLT: 20.0, DUCKDB: 4.0}


def comparison(**landed: tuple[int, int]) -> Comparison:
    found = {}
    for side, seconds in SECONDS.items():
        bronze, dead = landed.get(side.split()[0], (90, 10))
        found[side] = Sample(side, seconds, seconds, PeakMemory(), {"bronze": bronze, "dead_letters": dead})
    return Comparison("compact", Truth(90, 10), found)


def test_goals_are_ratios_the_right_way_round() -> None:
    usual, dlt, duckdb = comparison().goals()
    assert (usual.figure, usual.met) == (6.0, True)
    assert (dlt.figure, dlt.met) == (2.0, False)
    assert (duckdb.figure, duckdb.met) == (2.5, True)


def test_a_side_that_lands_something_else_is_shown_to() -> None:
    compared = comparison(usual=(91, 9), DuckDB=(90, 0))
    shown = {row[0]: row[-3:] for row in compared.table().rows}
    assert shown[OURS] == ["90", "10", "yes"]
    assert shown[USUAL] == ["91", "9", "no"]
    assert shown[DUCKDB] == ["90", "0", "no"]


def test_wrong_results_of_ours_meet_no_goal_however_fast_they_are() -> None:
    with pytest.raises(SideFailedError, match=r"lakeproof landed 89 \+ 10 .* expected 90 \+ 10"):
        comparison(lakeproof=(89, 10)).goals()


def test_each_input_has_a_name_of_its_own() -> None:
    inputs = [
        Input(10),
        Input(11),
        Input(10, 100),
        Input(10, style="spaced"),
        Input(10, invalid=0.1),
        Input(10, corrupt=0.1),
    ]
    assert len({digest(each) for each in inputs}) == len(inputs)
    assert digest(Input(10)) == digest(Input(10))
