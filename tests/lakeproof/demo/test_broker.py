"""The broker of the demo formats its folder, whatever the name of that is."""

import os
from pathlib import Path

import pytest
from tests.servers import KAFKA_JARS

from lakeproof.demo import broker


@pytest.mark.parametrize("name", ["a b%c", *(pytest.param(name, marks=pytest.mark.long) for name in ("a,b", "josé"))])
def test_data_are_in_the_folder_of_the_lake(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder, started = tmp_path / name / "kafka", []
    monkeypatch.setattr(os, "execv", lambda *command: started.append(command))
    for _ in range(2):  # it is formatted once
        broker.main(folder, "127.0.0.1:1", KAFKA_JARS)
    assert (folder / "data" / "meta.properties").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(started) == 2
