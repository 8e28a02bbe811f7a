"""Sides run in their own folders, in turns, and medians are taken by figure."""

import os
import sys
from pathlib import Path

import pytest
from benchmarks.harness import PeakMemory, Sample, Side, SideFailedError, last_line_figures, measure, medians, run_side
from benchmarks.rss import part_of


def python(name: str, code: str, **environment: str) -> Side:
    return Side(name, (sys.executable, "-c", code), environment)


def sample(side: str, seconds: float, **figures: object) -> Sample:
    return Sample(side, seconds, seconds + 1, PeakMemory(total=seconds * 10), figures)


@pytest.fixture(autouse=True)
def _own_work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.harness.WORK", tmp_path)


def test_a_side_gives_the_figures_of_its_last_line() -> None:
    found = run_side(python("a", "print('hello'); print('{\"seconds\": 0.25, \"bronze\": 3}')"))
    assert (found.seconds, found.figures["bronze"]) == (0.25, 3)
    assert found.process_seconds != 0.25


def test_without_figures_the_whole_process_counts() -> None:
    found = run_side(python("a", "print(1)"))
    assert found.seconds == found.process_seconds
    assert found.figures == {}


def test_a_side_has_an_empty_folder_of_its_own_that_is_gone_afterwards(tmp_path: Path) -> None:
    code = "import json, os; print(json.dumps({k: os.environ[k] for k in ('BENCH_FOLDER', 'LAKE_HOME', 'X')}))"
    side = python("a side", code, X="s3://bucket/{run}")
    first, second = run_side(side).figures, run_side(side).figures
    assert first["BENCH_FOLDER"] != second["BENCH_FOLDER"]
    assert first["LAKE_HOME"].startswith(first["BENCH_FOLDER"])
    assert first["X"] == f"s3://bucket/{Path(first['BENCH_FOLDER']).name}"
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_side_does_not_see_the_callers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_WAREHOUSE", "elsewhere")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "elsewhere")
    code = "import json, os; print(json.dumps({'seen': [k for k, v in os.environ.items() if v == 'elsewhere']}))"
    assert run_side(python("a", code)).figures == {"seen": []}
    assert os.environ["LAKE_WAREHOUSE"] == "elsewhere"


def test_a_side_that_fails_says_why() -> None:
    with pytest.raises(SideFailedError, match="out of luck"):
        run_side(python("a", "import sys; sys.exit('out of luck')"))


def test_the_processor_time_of_children_counts() -> None:
    code = "import time; begin = time.process_time(); exec('while time.process_time() < begin + 2: pass')"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    assert run_side(python("a", child)).cpu_seconds > 0.3


def test_memory_of_children_counts() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'b = bytes(10) * 10_000_000; input()'])"
    alone = run_side(python("a", "import time; time.sleep(1)"))
    child = code.replace("input()", "import time; time.sleep(1)")
    with_child = run_side(python("a", child))
    assert with_child.peak.workers > 90
    assert with_child.peak_rss_mib > alone.peak_rss_mib + 90


def test_sides_take_turns() -> None:
    order = [found.side for found in measure([python("a", "pass"), python("b", "pass")], repeat=2)]
    assert order == ["a", "b", "a", "b"]


def test_medians_are_of_each_figure() -> None:
    runs = [
        sample("a", 1.0, rows=5, kind="x"),
        sample("b", 9.0),
        sample("a", 3.0, rows=7, kind="y"),
        sample("a", 2.0, rows=6),
    ]
    found = medians(runs)
    assert list(found) == ["a", "b"]
    assert (found["a"].seconds, found["a"].process_seconds, found["a"].peak_rss_mib) == (2.0, 3.0, 20.0)
    assert found["a"].figures == {"rows": 6, "kind": "x"}
    assert found["b"].seconds == 9.0


@pytest.mark.parametrize("output", ["", "\n", "text", "12", "[1]", '{"a": 1'])
def test_a_last_line_that_is_no_object_has_no_figures(output: str) -> None:
    assert last_line_figures(output) == {}


def test_a_peak_keeps_the_highest_of_each_part_and_of_the_sum() -> None:
    peak = PeakMemory().or_higher({"jvm": 10.0, "workers": 1.0}).or_higher({"jvm": 4.0, "workers": 5.0})
    assert peak == PeakMemory(total=11.0, jvm=10.0, workers=5.0)


def test_parts_of_a_tree_of_processes() -> None:
    assert part_of("/usr/lib/jvm/bin/java", is_root=False) == "jvm"
    assert part_of("/usr/bin/python3", is_root=True) == "driver"
    assert part_of("/usr/bin/python3", is_root=False) == "workers"
