"""The scripts of a clone, copied to a folder of their own, with other programs on the PATH."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "deploy", tmp_path / "clone" / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "clone"


def run(clone: Path, script: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PATH": f"{clone.parent / 'bin'}:{os.environ['PATH']}"} | variables
    return subprocess.run(
        ["bash", clone / "deploy" / script, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def add_program(clone: Path, name: str, text: str) -> None:
    """Add a shell script to the PATH of the scripts."""
    path = clone.parent / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "refused"), [("1.8.0_402", True), ("17.0.15", False), ("22.0.2", False), ("25.0.1", True)]
)
def test_the_setup_requires_a_java_on_which_spark_runs(clone: Path, version: str, refused: bool) -> None:
    add_program(clone, "java", f"echo 'openjdk version \"{version}\" 2020-01-01' >&2")
    # Without Python, nothing is installed.
    done = run(clone, "setup.sh", JAVA_HOME="", PYTHON="none")
    assert done.returncode == 1
    assert ("Spark runs on Java 17 to 22" in done.stderr) == refused
    assert ("No Python" in done.stderr) != refused
