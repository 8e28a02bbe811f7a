"""The wheel as installed by a user: a fresh environment, an empty folder, and no access to the repository."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.selection import first_by_default

from lakeproof.install.judges import judge_choice
from lakeproof.settings import settings_of

ROOT = Path(__file__).parents[1]
VERSION = version("lakeproof")
Run = Callable[..., str]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with programs of an environment with the wheel; its dependencies come from the tests' environment."""
    folder = tmp_path_factory.mktemp("wheel")
    calls: list[list[str | Path]] = [
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        [sys.executable, "-m", "venv", "--without-pip", folder / "env"],
    ]
    for call in calls:
        subprocess.run(call, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    # This path is searched after the environment's own packages, and its .pth files are not read.
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    (wheel,) = folder.glob("*.whl")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        folder / "env" / "bin" / "python",
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, wheel], cwd=folder, check=True, capture_output=True, timeout=120)
    return folder / "env" / "bin"


@pytest.fixture
def run(programs: Path, tmp_path: Path) -> Run:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def call(command: str, folder: Path = tmp_path, code: int = 0, **more: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=kept | own | more, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


@pytest.mark.all
@pytest.mark.spark
@pytest.mark.slow
def test_from_the_wheel_to_a_verified_lake(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(tmp_path.parent) in run("python -c 'import consumer; print(consumer.__file__)'")
    said = run("lakeproof init 'my lake'")
    lake = tmp_path / "my lake"
    assert "lakeproof setup" in said
    page = (ROOT / "docs" / "install.md").read_text()
    (commands,) = re.findall(
        r"^```sh\nlakeproof init my-lake\ncd my-lake\nlakeproof setup\n(.*?)^```$", page, re.M | re.S
    )
    files = {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}
    assert files == {".env", "compose.yaml", "contracts/events.yaml", "gold/user_activity.yaml"}

    said = run("consumer run events --available-now", lake, code=3, LAKE_SPARK_UI_PORT="0")
    assert "lakeproof setup" in said
    # Ivy would use these from its cache; the tests need no network.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jars = settings_of({}).spark.jars
    jars.mkdir(parents=True)
    for jar in (ROOT / "target" / "jars" / "spark").glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    assert "are in place" in run("lakeproof setup --no-archive", lake)

    said = run(f"set -e\n{commands}", lake, LAKE_SPARK_UI_PORT="0")
    assert "user_activity" in said
    assert "Clean: each landed unit is in exactly one table, once." in said
    assert (lake / "lake" / "catalog.db").exists()
    (own,) = re.findall(r"^## Your own data\n.*?^```sh\n(.*?)^```$", page, re.M | re.S)
    orders = [{"order_id": str(n), "at": "2026-11-21T08:00:00Z", "total": n} for n in range(3)]
    (lake / "sample.json").write_text(json.dumps(orders))
    (lake / "more").mkdir()
    (lake / "more" / "later.json").write_text(json.dumps([orders[0] | {"order_id": "3"}, {"order_id": "4"}]))
    said = run(f"set -e\n{own}", lake, LAKE_SPARK_UI_PORT="0")
    assert "land files in lake/landing/orders" in said
    assert re.search(r"later.json │ +1 │ missing_field │ \$\.at ", said)
    assert said.count("2026-11-21 08:00:00+00") == 4  # rows of bronze
    # A second time, in the folder with its current files.
    assert "All files exist already." in run("lakeproof init", lake)
    (lake / "contracts" / "events.yaml").write_text("mine")
    assert "contracts/events.yaml exists, with other content" in run("lakeproof init", lake, code=2)
    assert (lake / "contracts" / "events.yaml").read_text() == "mine"


@pytest.mark.long  # a minute: the demo of the wheel waits for the rows of a producer
@pytest.mark.spark
def test_the_demo_in_an_empty_folder(run: Run, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    lake = tmp_path / "empty"
    lake.mkdir()
    jars = {"LAKE_JARS": str(ROOT / "target" / "jars" / "spark"), "LAKE_SPARK_UI_PORT": "0"}
    request.addfinalizer(lambda: run("lakeproof demo stop", lake, **jars))  # it keeps running if rows take too long
    said = run("lakeproof demo", lake, **jars)
    assert "Records: bronze.events" in said
    assert "user_activity" in said
    assert "lakeproof demo stop" in said
    (address,) = re.findall(r"^The page of the lake, .*: (http://\S+)$", said, re.MULTILINE)
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert "bronze.events" in answer.read().decode()
    assert "Stopped." in run("lakeproof demo stop", lake, **jars)
    run("consumer run events --available-now", lake, **jars)  # files that landed as the demo stopped
    assert "Clean: each landed unit is in exactly one table, once." in run("reader verify events", lake, **jars)
    assert "Removed lake." in run("lakeproof demo clean", lake, **jars)
    files = {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}
    named = [f"{name}/{path.name}" for name in ("contracts", "gold") for path in (ROOT / name).glob("*.yaml")]
    assert files == {".env", "compose.yaml", *named}


@pytest.mark.parametrize("program", first_by_default(["lakeproof", "producer", "collector", "consumer", "reader"]))
def test_each_program_says_its_version_and_completes(run: Run, program: str) -> None:
    judge = f" (judge: {judge_choice()})" if program in ("lakeproof", "consumer") else ""
    assert run(f"{program} --version") == f"{program} {VERSION}{judge}\n"
    words = {"COMP_WORDS": f"{program} --ver", "COMP_CWORD": "1", f"_{program.upper()}_COMPLETE": "complete_bash"}
    assert run(program, **words).split() == ["--version"]


@pytest.mark.all
def test_the_version_says_which_judge_runs_and_never_fails(run: Run) -> None:
    assert run("consumer --version", LAKE_JUDGE="python") == f"consumer {VERSION} (judge: python)\n"
    said = run("lakeproof --version", LAKE_JUDGE="rust")
    assert said == f"lakeproof {VERSION} (judge: none, see `lakeproof doctor`)\n"


def test_sql_needs_no_contracts(run: Run, tmp_path: Path) -> None:
    assert run('reader sql "select 1 as one" --format csv') == "one\n1\n"
    assert list(tmp_path.iterdir()) == []
