"""Limits and settings that apply to every test, including a runaway one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
from tests import conftest
from tests.conftest import MAX_MEMORY, ROOT, native_judge

RUNS_AWAY = """
def test_runs_away():
    grown = []
    while len(grown) < 1_000:
        grown.append(bytearray(64 << 20))

def test_the_next_one():
    pass
"""


def run(file: Path | str, *options: str, prefix: Sequence[str] = ()) -> str:
    """Return pytest's output for a file of tests, under the same conftest."""
    command = [
        *prefix,
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        *options,
        str(file),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CI": "true"}  # where Hypothesis has its own defaults
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout


@pytest.mark.long
def test_a_test_that_runs_away_ends_in_a_memory_error_and_the_next_one_runs(tmp_path):
    file = tmp_path / "test_away.py"
    file.write_text(RUNS_AWAY)
    printed = run(file)
    assert "MemoryError" in printed
    assert "1 failed, 1 passed" in printed


SIGNALS = """
import os, signal, subprocess, sys, pytest

@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_program_is_ended_by(number):
    done = subprocess.run(["sh", "-c", f"kill -{int(number)} $$; true"])
    assert done.returncode == -number
    os.kill(os.getpid(), number)  # the tests themselves go on
"""


@pytest.mark.all
def test_programs_of_tests_answer_signals_that_the_tests_ignore(tmp_path):
    file = tmp_path / "test_signals.py"
    file.write_text(SIGNALS)
    ignoring = ["bash", "-c", 'trap "" HUP INT; exec "$@"', "bash"]
    assert "2 passed" in run(file, prefix=ignoring)


@pytest.mark.all
def test_as_much_as_tests_need_can_be_had():
    assert len(bytearray(MAX_MEMORY // 4)) == MAX_MEMORY // 4


DRAWS = """
from hypothesis import given, settings, strategies

@given(strategies.integers(0, 2**64))
@settings(max_examples=20)
def test_draws(number):
    print(number)
"""


@pytest.mark.all
@pytest.mark.parametrize(
    ("profile", "alike"),
    [
        ("few", True),
        pytest.param("all", True, marks=pytest.mark.long),
        pytest.param("fuzz", False, marks=pytest.mark.long),
    ],
)
def test_examples_are_the_same_each_time_unless_fuzz_is_asked_for(tmp_path, profile, alike):
    file = tmp_path / "test_draws.py"
    file.write_text(DRAWS)
    options = [f"--hypothesis-profile={profile}"]
    numbers = [
        {line for line in run(file, "-s", f"--hypothesis-seed={seed}", *options).splitlines() if line.isdigit()}
        for seed in (1, 2)
    ]
    assert min(map(len, numbers)) > 2
    assert (numbers[0] == numbers[1]) is alike


def test_the_profile_of_these_tests_is_one_of_ours():
    assert hypothesis.settings.default is not None
    assert hypothesis.settings.get_current_profile_name() in ("few", "all", "fuzz")


def with_programs(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("programs", "outcome", "said"),
    [
        ([], pytest.skip.Exception, "cargo is missing"),
        (["cargo"], pytest.fail.Exception, "run `make setup-native`"),
    ],
    ids=["none", "cargo"],
)
def test_only_a_machine_without_cargo_may_lack_the_native_judge(tmp_path, monkeypatch, programs, outcome, said):
    monkeypatch.setitem(sys.modules, "native_judge", None)
    with_programs(monkeypatch, tmp_path, *programs)
    with pytest.raises(outcome, match=said):
        native_judge()


def test_a_native_judge_of_unknown_or_other_sources_is_refused(tmp_path, monkeypatch):
    built = ModuleType("native_judge")
    monkeypatch.setitem(sys.modules, "native_judge", built)
    monkeypatch.setattr(conftest, "ROOT", tmp_path)
    with_programs(monkeypatch, tmp_path)
    assert native_judge() is built  # nobody can build it here
    with_programs(monkeypatch, tmp_path, "cargo")
    with pytest.raises(pytest.fail.Exception, match="sources of the native judge are unknown"):
        native_judge()
    source, stamp = tmp_path / "src" / "lib.rs", tmp_path / ".venv" / "native.stamp"
    for file in (source, stamp):
        file.parent.mkdir()
    source.write_text("fn")
    stamp.write_text(f"{sha256(b'fn').hexdigest()}  src/lib.rs\n{sha256(b'').hexdigest()}  target/rustc-version\n")
    assert native_judge() is built
    source.write_text("fn other")
    with pytest.raises(pytest.fail.Exception, match="built from other sources"):
        native_judge()
