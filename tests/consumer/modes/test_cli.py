"""What the command line of the modes refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dedupe"], ["The mode dedupe has no sink", "--set parquet=FOLDER"]),
        (["dedupe", "events"], ["cannot run with events", "process of its own"]),
        (["windows", "--to", "gold"], ["--to cannot be used with windows"]),
        (["windows", "--data-source", "s3"], ["--data-source cannot be used with windows"]),
        (["events", "--set", "topic=t"], ["--set cannot be used with streams"]),
        (["dedupe", "--config", "none.yaml"], ["none.yaml does not exist"]),
        (["windows", "--topic", "t", "--set", "kafka=t"], ["topic and kafka", "are the same topic, t"]),
        (["dedupe", "--set", "kafka=k", "--trigger", "soon"], ["--trigger: expected a duration"]),
    ],
)
def test_what_would_be_ignored_or_cannot_run_is_refused(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    command = [sys.executable, "-m", "consumer", "run", *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert not list(tmp_path.iterdir())
