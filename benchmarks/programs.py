"""Programs of a benchmark that run at the same time."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import ROOT, SideFailedError, module

PATIENCE_SECONDS = 120


@contextmanager
def run_program(
    name: str, folder: Path, environment: dict[str, str], *arguments: object
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a module until the end of the context, then kill it."""
    command = module(name, *arguments)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        yield process
    except SideFailedError as error:
        if code := process.poll():  # the reason why what was waited for did not come
            raise _ended(name, code, folder) from error
        raise
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise _ended(name, process.returncode, folder)


def _ended(name: str, code: int, folder: Path) -> SideFailedError:
    """Return an error with the end of a program's log."""
    last = (folder / f"{name}.log").read_text()[-3_000:]
    return SideFailedError(f"{name} ended with exit code {code}:\n{last}")


def wait_for(
    come: Any, needed: Sequence["subprocess.Popen[bytes]"], expected_seconds: float = 0.0, every: float = 0.5
) -> None:
    """Wait for a condition while the needed programs run."""
    deadline = time.monotonic() + expected_seconds + PATIENCE_SECONDS
    while not come():
        if time.monotonic() > deadline or any(program.poll() is not None for program in needed):
            raise SideFailedError("A program ended early, or what is waited for did not come in time.")
        time.sleep(every)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and all its descendants, including those that ended."""
    root = psutil.Process(pid)
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue  # ended since it was listed
    return total
