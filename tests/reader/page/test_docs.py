"""The commands in docs/page.md, and its description of the first line."""

import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pages import blocks
from tests.reader.lake import Run
from tests.reader.page.lake import Day, Text, good

from lakeproof.settings import Settings


@pytest.mark.all
def test_the_commands_of_the_page_write_and_serve_it(
    lake_settings: Settings, reader: Run, reader_environment: Callable[[Settings], dict[str, str]]
) -> None:
    Day(lake_settings).hour(9, *good(9))
    write, serve = (block.splitlines() for block in blocks("docs/page.md", "sh"))
    (lake_settings.home / "target").mkdir()
    for command, file in zip(write, ("lake.html", "target/lake.html"), strict=True):
        arguments = [each for each in shlex.split(command)[1:] if each != "sensors"]  # which is not in this lake
        done = reader(lake_settings, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"Wrote {file}. All is well.\n"
        assert "100 landed units" in Text((lake_settings.home / file).read_text()).text
    program, *arguments = shlex.split(serve[0])
    served = subprocess.Popen(
        [Path(sys.executable).parent / program, *arguments, "--port", "0"],
        env=reader_environment(lake_settings), cwd=lake_settings.home, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert served.stdout
        address = served.stdout.readline().split()[7]
        with urllib.request.urlopen(address, timeout=120) as answer:
            assert "100 landed units" in Text(answer.read().decode()).text
    finally:
        served.send_signal(signal.SIGTERM)
        assert served.wait(120) == 0
