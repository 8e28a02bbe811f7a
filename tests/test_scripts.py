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
    _write(clone.parent / "bin" / name, text)


def add_to_venv(clone: Path, name: str, text: str) -> None:
    """Add a shell script to the clone's .venv."""
    _write(clone / ".venv" / "bin" / name, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
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


@pytest.mark.parametrize(
    ("port_of_demo", "answering", "said"),
    [
        ("40123", "40123 8282", "The page is served at http://127.0.0.1:40123/ already.\n"),
        ("40123", "", "reader page --serve --port 8282\n"),
        (None, "8282", "reader page --serve --port 0\n"),  # 8282 is another lake's
    ],
)
def test_the_page_of_this_lake_is_opened(clone: Path, port_of_demo: str | None, answering: str, said: str) -> None:
    home = clone.parent / "a lake"
    (home / ".demo").mkdir(parents=True)
    if port_of_demo:
        (home / ".demo" / "page").write_text(port_of_demo)
    add_program(clone, "docker", "exit 1")
    add_program(clone, "xdg-open", "exit 0")
    ports = "|".join(f"*:{port}/version" for port in answering.split())
    add_program(clone, "curl", f'case "$*" in {ports or "none"}) printf 200 ;; *) exit 7 ;; esac')
    (clone / "deploy" / "setup.sh").write_text("#!/bin/sh\n")
    add_to_venv(clone, "lakeproof", f"echo '{home}'")
    add_to_venv(clone, "reader", 'echo reader "$@"')
    done = run(clone, "demo/page.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
