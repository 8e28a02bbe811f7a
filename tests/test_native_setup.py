"""`make setup` builds the native judge: in a copy of its input, with compilers that do what a test needs."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
CRATE = ROOT / "src" / "native-judge"
NO_CARGO = "cargo is missing, so the Python judge will be used, which is slower."
NOT_BUILT = "Cannot build the native judge, so the Python judge will be used. Log: target/native/build.log."
BUILDS = 'cargo; for last; do :; done; mkdir -p "$last"; cp "$WHEEL" "$last"'


class Clone:
    """A clone of the project with `.venv`, but without a native judge."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache, self.programs = root, cache, root / "programs"
        for name in ("common.sh", "native.sh", "requirements"):
            _copy(ROOT / "deploy" / name, root / "deploy" / name)
        for name in ("Cargo.toml", "crates.lock", "lock.sh", "pyproject.toml", "src"):
            _copy(CRATE / name, root / "src" / CRATE.name / name)
        # The pins as they would be for a registry without a name: cargo is not asked which one it uses.
        _copy(CRATE / "crates.lock", root / "src" / CRATE.name / "Cargo.lock")
        venv.create(root / ".venv", with_pip=False)
        (root / ".venv" / "bin" / "uv").symlink_to(Path(sys.executable).parent / "uv")
        self.programs.mkdir()
        for tool in (
            "bash",
            "cat",
            "cmp",
            "cp",
            "cut",
            "dirname",
            "env",
            "find",
            "grep",
            "mkdir",
            "mv",
            "rm",
            "sha256sum",
            "shasum",
            "sort",
        ):
            if found := shutil.which(tool):
                (self.programs / tool).symlink_to(found)

    def has(self, *, cargo: str = "", maturin: str = "") -> None:
        """Put compilers on the PATH, and maturin in the setup's place for it."""
        self.script(self.programs / "cargo", cargo)
        self.script(self.programs / "rustc", "echo rustc 1.0.0")
        folder = self.root / "target" / "native" / "maturin"
        if maturin:
            self.script(folder / "bin" / "maturin", maturin)
            listed = subprocess.run(
                ["sha256sum", "deploy/requirements/native.txt"], cwd=self.root, capture_output=True, check=True
            )
            (folder / "stamp").write_bytes(listed.stdout)

    @staticmethod
    def script(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\nset -e\n{text}\n")
        path.chmod(0o755)

    def setup(self, **more: str) -> list[str]:
        """Return the lines printed by the setup. It has no network, and never fails."""
        done = subprocess.run(
            ["bash", "-c", "source deploy/common.sh; source deploy/native.sh; start_native; finish_native"],
            cwd=self.root,
            env={
                "PATH": str(self.programs),
                "HOME": str(self.root),
                "XDG_CACHE_HOME": str(self.cache),
                "UV_OFFLINE": "1",
                "UV_CACHE_DIR": str(self.root / "uv"),
                "PIP_NO_INDEX": "1",
            }
            | more,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [line for line in done.stdout.splitlines() if line != "Building the native judge …"]

    @property
    def installed(self) -> str:
        """Return the version of the installed native judge; empty if there is none."""
        code = "import native_judge as n; print(n.__version__)"
        done = subprocess.run([self.root / ".venv" / "bin" / "python", "-Ic", code], capture_output=True, text=True)
        return done.stdout.strip()


def _copy(what: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if what.is_dir() else shutil.copy)(what, to)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "a clone", tmp_path / "cache")


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    """A wheel with a fake native judge."""
    name = "lakeproof_native_judge-0.1.0"
    files = {
        "native_judge/__init__.py": '__version__ = "0.1.0"\n',
        f"{name}.dist-info/METADATA": "Metadata-Version: 2.1\nName: lakeproof-native-judge\nVersion: 0.1.0\n",
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}.dist-info/RECORD": "",
    }
    path = tmp_path / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for inside, text in files.items():
            file.writestr(inside, text)
    return str(path)


def test_without_cargo_it_says_so_once(clone: Clone) -> None:
    (said,) = clone.setup()
    assert said.startswith(NO_CARGO)
    assert clone.setup() == []
    assert clone.installed == ""


@pytest.mark.parametrize(
    ("cargo", "maturin", "why"),
    [("echo too old >&2; exit 1", BUILDS, "too old"), ("", "", "maturin")],
    ids=["cargo fails", "no network"],
)
def test_a_failed_build_leaves_the_python_judge(clone: Clone, wheel: str, cargo: str, maturin: str, why: str) -> None:
    clone.has(cargo=cargo, maturin=maturin)
    (said,) = clone.setup(WHEEL=wheel)
    assert said == f"{NOT_BUILT} To try again: make setup-native"
    assert why in (clone.root / "target/native/build.log").read_text()
    assert clone.installed == ""
    assert clone.setup(WHEEL=wheel) == []  # `make start` does not try again

    clone.has(cargo="true", maturin=BUILDS)
    assert clone.setup(WHEEL=wheel) == []
    assert clone.setup(WHEEL=wheel, NATIVE_AGAIN="true") == []
    assert clone.installed == "0.1.0"


def test_it_is_built_once_for_all_clones(clone: Clone, wheel: str, tmp_path: Path) -> None:
    clone.has(cargo="true", maturin=BUILDS)
    assert clone.setup(WHEEL=wheel) == []
    assert clone.installed == "0.1.0"

    other = Clone(tmp_path / "another", clone.cache)
    other.has(cargo="exit 1", maturin="exit 1")
    assert other.setup() == []
    assert other.installed == "0.1.0"
    (other.root / "src" / CRATE.name / "src/more.rs").write_text("// others\n")
    (said,) = other.setup()
    assert said.startswith(NOT_BUILT)
    assert other.installed == ""  # a judge from other sources could judge differently


def test_the_demo_takes_what_was_built_and_does_not_wait_for_a_compiler(
    clone: Clone, wheel: str, tmp_path: Path
) -> None:
    clone.has(cargo="true", maturin=BUILDS)
    (said,) = clone.setup(WHEEL=wheel, NATIVE_KEPT="true")
    assert said.startswith("The native judge is not built")
    assert clone.installed == ""
    assert clone.setup(WHEEL=wheel) == []  # `make setup` after it builds
    assert clone.installed == "0.1.0"
    assert clone.setup(NATIVE_KEPT="true") == []
    assert clone.installed == "0.1.0"

    other = Clone(tmp_path / "another", clone.cache)
    other.has(cargo="exit 1", maturin="exit 1")
    assert other.setup(NATIVE_KEPT="true") == []
    assert other.installed == "0.1.0"
    (other.root / "src" / CRATE.name / "src/more.rs").write_text("// others\n")
    (said,) = other.setup(NATIVE_KEPT="true")
    assert said.startswith("The native judge is not built")
    assert other.installed == ""  # a judge from other sources could judge differently


def test_without_cargo_what_was_built_stays_until_the_sources_change(clone: Clone, wheel: str) -> None:
    clone.has(cargo="true", maturin=BUILDS)
    clone.setup(WHEEL=wheel)
    (clone.programs / "cargo").unlink()
    assert clone.setup() == []
    assert clone.installed == "0.1.0"
    (clone.root / "src" / CRATE.name / "src/more.rs").write_text("// others\n")
    (said,) = clone.setup()
    assert said.startswith(NO_CARGO)
    assert clone.installed == ""


def test_a_newer_compiler_builds_what_an_older_one_could_not(clone: Clone, wheel: str) -> None:
    clone.has(cargo="exit 1", maturin=BUILDS)
    (said,) = clone.setup(WHEEL=wheel)
    assert said.startswith(NOT_BUILT)
    clone.has(cargo="true", maturin=BUILDS)
    clone.script(clone.programs / "rustc", "echo rustc 2.0.0")
    assert clone.setup(WHEEL=wheel) == []
    assert clone.installed == "0.1.0"


def test_the_sources_are_compiled_for_every_python_from_3_11(native: ModuleType) -> None:
    assert native.__file__
    folder = Path(native.__file__).parent
    assert [file.name for file in folder.glob("*.abi3.so")] == ["native_judge.abi3.so"]
    assert os.path.commonpath([folder, sys.prefix]) == sys.prefix  # not the folder of the sources
