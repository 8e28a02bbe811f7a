import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lakeproof(tmp_path):
    def call(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        own = {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0"}
        return subprocess.run(
            [sys.executable, "-m", "lakeproof", *arguments],
            cwd=ROOT,
            env=os.environ | own | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return call


def test_the_doctor_says_that_all_is_well(lakeproof):
    done = lakeproof("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout
    assert "Java" in done.stdout


def test_the_doctor_says_everything_that_is_not(lakeproof, tmp_path):
    done = lakeproof("doctor", LAKE_JARS=str(tmp_path), LAKE_CONTRACTS=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count("failed") == 2
    assert "make setup" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_doctor_looks_at_one_program(lakeproof, tmp_path):
    done = lakeproof("doctor", "--for", "producer", LAKE_JARS=str(tmp_path))
    assert done.returncode == 0
    assert "jars" not in done.stdout


def test_settings_for_people_and_for_scripts(lakeproof, tmp_path):
    table = lakeproof("settings", LAKE_CATALOG_URI="postgresql://me:hush@db/lake", AWS_SECRET_ACCESS_KEY="secret")
    assert table.returncode == 0
    assert "postgresql://me:***@db/lake" in table.stdout
    assert "hush" not in table.stdout
    assert "secret" not in table.stdout
    assert lakeproof("settings", "home", "catalog").stdout.splitlines() == [str(tmp_path / "lake"), "sql"]


def test_a_mistake_is_one_line_and_a_hint(lakeproof):
    for arguments, environment in (
        (["settings", "hom"], {}),
        (["doctor"], {"LAKE_CATALOG": "hive"}),
    ):
        done = lakeproof(*arguments, **environment)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: ")
        assert len(done.stderr.splitlines()) == 2
