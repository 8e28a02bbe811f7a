"""Errors of `lakeproof demo` before it starts anything; tests/test_demo.py and tests/test_wheel.py start it."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakeproof.cli import app
from lakeproof.demo.run import _listens


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def demo(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["demo", *arguments], env={"LAKE_HOME": "lake"})


def test_a_folder_with_other_files_stays_as_it_is(folder: Path) -> None:
    (folder / "thesis.tex").touch()
    refused = demo()
    assert "has other files, and no contract of events" in str(refused.exception)
    assert "empty folder" in str(refused.exception)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_the_clickstream_comes_through_a_collector() -> None:
    refused = demo("--stream", "clickstream", "--source", "files")
    assert refused.exit_code == 2
    assert "files cannot be used for clickstream" in refused.output


def test_nothing_runs_and_nothing_is_removed_in_an_empty_folder(folder: Path) -> None:
    assert demo("stop").output == "Nothing is running.\n"
    assert demo("clean").output == "No data found in lake.\n"
    (folder / "lake").mkdir()
    (folder / "lake" / ".demo").symlink_to("/nowhere")  # left by a machine that was switched off
    assert demo("stop").output == "Nothing is running.\n"
    assert demo("clean").output == "Removed lake.\n"
    assert list(folder.iterdir()) == []


def test_what_is_not_of_a_lake_is_not_removed(folder: Path) -> None:
    (folder / "lake").mkdir()
    (folder / "lake" / "notes.txt").touch()
    assert "contains notes.txt" in str(demo("clean").exception)
    assert (folder / "lake" / "notes.txt").exists()


def test_a_lake_behind_a_link_is_removed_with_the_link(folder: Path) -> None:
    (folder / "disk" / "logs").mkdir(parents=True)
    (folder / "lake").symlink_to("disk")
    assert demo("clean").output == "Removed lake.\n"
    assert list(folder.iterdir()) == []


def test_a_broker_may_have_any_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert _listens(f"[::1]:{server.getsockname()[1]}")
    assert not _listens(f"{'a' * 64}:9092")  # no name of a host
