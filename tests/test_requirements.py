"""Each program runs with nothing but the packages of its requirements file, which is what its image has."""

import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.test_house import PROGRAMS, REQUIREMENTS, ROOT, pinned

_START = """
import sys
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, files
from sysconfig import get_path

installed, given = get_path("purelib"), set()
for name in sys.stdin.read().split():
    try:
        given |= {file.parts[0].partition(".")[0] for file in files(name) or ()}
    except PackageNotFoundError:  # of another platform
        pass

class Given(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        found = super().find_spec(fullname, path, target)
        if found is None or "." in fullname or fullname in given:
            return found
        places = [found.origin or "", *(found.submodule_search_locations or ())]
        return None if any(place.startswith(installed) for place in places) else found

sys.meta_path[:] = [Given if finder is PathFinder else finder for finder in sys.meta_path]
for name in [name for name in sys.modules if "." not in name and Given.find_spec(name) is None]:
    if getattr(sys.modules[name], "__file__", None) and sys.modules[name].__file__.startswith(installed):
        del sys.modules[name]  # imported at the start of the interpreter
"""
_IMPORT = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
_RUN = "import sys\nfrom {program}.cli import main\nmain()"
_OPTIONAL = ("consumer.monitoring.lineage",)  # the extra lineage
_CLOSED = "http://127.0.0.1:1"


def run(
    image: str, code: str, *arguments: str, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `code` with the packages of `image` only, in an own lake."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LAKE_", "AWS_"))}
    own |= {"LAKE_HOME": str(folder), "LAKE_CONTRACTS": str(ROOT / "contracts"), "LAKE_GOLD": str(ROOT / "gold")}
    return subprocess.run(
        [sys.executable, "-c", _START + code, *arguments],
        cwd=folder,
        env=own | environment,
        input=" ".join(pinned(REQUIREMENTS / f"{image}.txt")),
        capture_output=True,
        text=True,
        check=False,
    )


def program(image: str, command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in the image of a program."""
    name, *arguments = command.split()
    return run(image, _RUN.format(program=name), *arguments, folder=folder, **environment)


def on_closed_s3(**more: str) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": _CLOSED}
    return keys | {"LAKE_LANDING": "s3://landing", "LAKE_WAREHOUSE": "s3://warehouse"} | more


def test_other_packages_are_hidden() -> None:
    done = run("producer", "import faker, six\nimport pyspark")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'pyspark'"


@pytest.mark.parametrize("image", PROGRAMS)
def test_each_module_of_a_program_can_be_imported(image: str) -> None:
    package = import_module(image)
    modules = [found.name for found in pkgutil.walk_packages(package.__path__, f"{image}.")]
    if image != "collector":  # the only one that reads and writes no files
        modules += ["lakeproof.storage.local", "lakeproof.storage.s3"]
    done = run(image, _IMPORT, "lakeproof.cli", *(name for name in modules if name not in _OPTIONAL))
    assert done.returncode == 0, done.stderr


@pytest.mark.all
@pytest.mark.parametrize(
    ("image", "command", "expected"),
    [
        ("producer", "producer events --data-sink local --batches 1 --batch-size 2", 0),
        ("producer", "producer sensors --batches 1 --batch-size 2", 0),
        ("producer", "producer events --data-sink kafka --batches 1", 3),
        ("producer", "lakeproof doctor --for producer", 0),
        ("collector", "lakeproof doctor --for collector", 0),
        ("consumer", "consumer status", 2),  # no tables yet
        ("reader", "lakeproof doctor --for reader", 0),
        ("reader", "reader tables", 1),  # no tables yet
    ],
)
def test_it_runs_on_folders(image: str, command: str, expected: int, tmp_path: Path) -> None:
    done = program(image, command, tmp_path, LAKE_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1", LAKE_COLLECTOR_PORT="0")
    assert done.returncode == expected, done.stdout + done.stderr


@pytest.mark.all
@pytest.mark.parametrize(
    ("image", "command"),
    [
        ("producer", "producer events --data-sink s3 --batches 1"),
        ("producer", "lakeproof doctor --for producer"),
        ("reader", "reader summary events"),
        ("reader", "lakeproof doctor --for reader"),
        ("consumer", "lakeproof doctor --for consumer"),
    ],
)
def test_it_reaches_for_s3(image: str, command: str, tmp_path: Path) -> None:
    done = program(image, command, tmp_path, **on_closed_s3())
    assert "Could not connect to the endpoint" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_producer_reads_no_ledger(tmp_path: Path) -> None:
    """Its health check passes beside a catalog, for which its image has no client."""
    SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db").create_tables()
    done = program("producer", "lakeproof doctor --for producer", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
