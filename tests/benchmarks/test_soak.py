"""Comparisons of a soak, and a short soak."""

import pytest
from benchmarks.harness import Options
from benchmarks.soak import _growth, _medians, run


def test_growth_is_the_last_third_over_the_second() -> None:
    assert _growth([9, 9, 2, 2, 3, 3]) == 1.5
    assert _growth([0, 0, 0]) == 1
    assert _growth([5]) == 1


def test_a_time_without_notes_has_the_figure_of_before() -> None:
    notes = [{"at": 1.0, "seconds": 2.0}, {"at": 1.5, "seconds": 4.0}, {"at": 8.0, "seconds": 1.0}]
    assert _medians(notes, [{"absolute": 2.0}, {"absolute": 4.0}, {"absolute": 9.0}]) == [3.0, 3.0, 1.0]


@pytest.mark.long
@pytest.mark.spark
def test_a_soak_of_a_minute_stays_flat() -> None:
    report = run(Options(seconds=75))
    assert {goal.text.split(",")[0] for goal in report.goals} >= {"memory", "snapshots", "data files", "commit"}
    snapshots = next(row for row in report.tables[0].rows if row[0] == "snapshots")
    assert float(snapshots[-1].replace(",", "")) > 0
