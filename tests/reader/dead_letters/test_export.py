"""What an export of dead letters leaves on the disk."""

import os
from pathlib import Path

from reader.dead_letters.export import export


def test_the_mode_of_a_folder_is_that_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        export([("a.json", 0, 1, "open", [], b"{")], tmp_path / "letters", is_folder=True)
    finally:
        os.umask(before)
    folder = tmp_path / "letters"
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
