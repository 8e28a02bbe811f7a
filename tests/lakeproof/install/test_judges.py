import sys
from importlib.metadata import version as version_of
from pathlib import Path
from types import ModuleType

import pytest

from lakeproof.errors import UnavailableError
from lakeproof.install.judges import JudgeChoice, judge_choice

VERSION = version_of("lakeproof")


def _module(version: str | None) -> ModuleType:
    module = ModuleType("native_judge")
    if version is not None:
        module.__version__ = version
    return module


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "native_judge", None)


def test_the_native_judge_is_chosen_where_it_is_installed(native: ModuleType) -> None:
    assert judge_choice() == judge_choice("native") == JudgeChoice("native", native.__version__)
    assert str(judge_choice()) == f"native {native.__version__}"


def test_the_python_judge_can_be_chosen_although_the_native_one_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "native_judge", _module(VERSION))
    assert judge_choice() == JudgeChoice("native", VERSION)
    choice = judge_choice("python")
    assert (str(choice), choice.why) == ("python", "LAKE_JUDGE is python")


def test_without_the_native_judge_it_is_python_and_says_why(absent: None) -> None:
    assert judge_choice() == JudgeChoice("python", why="the native judge is not installed")


def test_a_native_judge_that_is_wanted_must_be_there(absent: None) -> None:
    with pytest.raises(UnavailableError, match="LAKE_JUDGE is native, but the native judge is not installed") as caught:
        judge_choice("native")
    assert "make setup-native" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("0.0.1", f"the native judge is of version 0.0.1, and lakeproof of {VERSION}"),
        (None, "the native judge is not installed"),
    ],
    ids=["of another version", "only a folder"],
)
def test_another_module_of_this_name_is_not_used(
    monkeypatch: pytest.MonkeyPatch, version: str | None, why: str
) -> None:
    monkeypatch.setitem(sys.modules, "native_judge", _module(version))
    assert judge_choice() == JudgeChoice("python", why=why)
    with pytest.raises(UnavailableError, match=why):
        judge_choice("native")


def test_one_that_cannot_be_loaded_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "native_judge.py").write_text("raise ImportError('GLIBC_2.99 not found')\n")
    monkeypatch.delitem(sys.modules, "native_judge", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert judge_choice() == JudgeChoice("python", why="the native judge cannot be loaded: GLIBC_2.99 not found")
