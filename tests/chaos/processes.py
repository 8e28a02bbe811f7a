"""Processes of the harness: started in their own sessions, and hurt and ended with all processes that belong to them.

The id of an ended process may soon be reused. So a group is signaled only until its first process was waited for,
and other processes of the family are identified by a mark in their environment, not by id.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import psutil

_MARK = "CHAOS_PROCESS"


def wait_until(condition: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    """Wait until `condition` holds; return whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def groups_of(pid: int) -> tuple[int, ...]:
    """Return the process groups of all descendants of a process, and then its own group.

    Spark's JVM and workers are in groups of their own, which a signal to the consumer's group does not reach.
    """
    own, groups = os.getpgid(pid), set[int]()
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(ProcessLookupError):
            groups.add(os.getpgid(child.pid))
    return (*(groups - {own}), own)


def signal_groups(groups: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to process groups. Find the groups before: that takes longer than writing a file."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


@dataclass(frozen=True)
class Line:
    """A line of a log, with the seconds since the start of its process."""

    seconds: float
    values: dict[str, Any]


class Process:
    """A program in a session of its own, with its output in a file.

    Parameters
    ----------
    command
        Program and arguments.
    environment
        The complete environment.
    log
        File for the output.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        self._began = datetime.now(UTC)
        self._mark = uuid.uuid4().hex
        environment = {**environment, _MARK: self._mark}
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
        """Whether the program is still running."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Wait for the program's end; return its exit code, or None if it is still running."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the program's group and the groups of its children, unless the program itself has ended."""
        if self.alive:
            signal_groups(groups_of(self.pid), number)

    def signal_itself(self, number: signal.Signals) -> None:
        """Send a signal to the program alone."""
        self._process.send_signal(number)

    def family(self) -> list[psutil.Process]:
        """Return the program and all processes that it started, if they are alive."""
        return [process for process in psutil.process_iter() if _mark_of(process) == self._mark]

    def named(self, program: str) -> list[psutil.Process]:
        """Return the processes of the family that run a program, like ``java``."""
        found = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):  # it may end meanwhile
                if process.name() == program:
                    found.append(process)
        return found

    def end_all(self) -> None:
        """Kill the whole family with SIGKILL, as if the machine died; wait until all processes are gone."""
        self.signal_group(signal.SIGKILL)
        self._process.wait()
        while family := self.family():
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family, timeout=1)

    def text(self) -> str:
        """Return the output so far."""
        return self.log.read_text(errors="replace")

    def said(self, event: str) -> list[Line]:
        """Return the structured lines about an event in the log."""
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
        """Return the line that says why the program ended, or else its last line."""
        lines = [line for line in self.text().splitlines() if line.strip()]
        if failed := self.said("failed"):
            return str(failed[-1].values["message"])
        return next((line for line in reversed(lines) if line.startswith("Error: ")), lines[-1] if lines else "nothing")


def _mark_of(process: psutil.Process) -> str | None:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(_MARK)
    except (psutil.Error, OSError):
        return None
