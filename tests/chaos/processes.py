"""Processes of the harness: started in a session of their own, and hurt and ended with all that belong to them."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import psutil


def wait_until(condition: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    """Wait until `condition` holds; return whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


@dataclass(frozen=True)
class Line:
    """A line of a log, so many seconds after the start of its process."""

    seconds: float
    values: dict[str, Any]


class Process:
    """A program that runs in a session of its own, with its output in a file.

    Parameters
    ----------
    command
        Program and arguments.
    environment
        All of its environment.
    log
        Where its output goes.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        self._began = datetime.now(UTC)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end_all()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Wait for its end; return its exit code, or None where it goes on."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def signal_itself(self, number: signal.Signals) -> None:
        """Send a signal to the program alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def family(self) -> list[psutil.Process]:
        """All processes of its session that live."""
        return [process for process in psutil.process_iter() if _session(process.pid) == self.pid and _lives(process)]

    def end_all(self) -> None:
        """SIGKILL to all of its session, as when the machine dies; wait until they are gone."""
        self.signal_group(signal.SIGKILL)
        while family := self.family():
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family, timeout=1)
        self._process.wait()

    def text(self) -> str:
        """What it has said so far."""
        return self.log.read_text(errors="replace")

    def said(self, event: str) -> list[Line]:
        """The structured lines of its log about an event."""
        found = []
        for line in self.text().splitlines():
            if line.startswith("{"):
                with contextlib.suppress(json.JSONDecodeError):
                    values = json.loads(line)
                    if values.get("event") == event:
                        at = datetime.fromisoformat(values["timestamp"])
                        found.append(Line((at - self._began).total_seconds(), values))
        return found

    def last_words(self) -> str:
        """The line that says why it ended, or else its last one."""
        lines = [line for line in self.text().splitlines() if line.strip()]
        return next((line for line in reversed(lines) if line.startswith("Error: ")), lines[-1] if lines else "nothing")


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
