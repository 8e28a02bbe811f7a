"""Processes of the harness: started in a session of their own, and hurt and ended with all that belong to them.

A number of a process that has ended may soon be another's. So a group is signalled only while its first process was
not waited for, and what else belongs to it is known by a mark in its environment, not by a number.
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
    """The process groups of all that a process started, and then its own.

    Spark's JVM and workers are in groups of their own, which a signal to the consumer's does not reach.
    """
    own, groups = os.getpgid(pid), set[int]()
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(ProcessLookupError):
            groups.add(os.getpgid(child.pid))
    return (*(groups - {own}), own)


def signal_groups(groups: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to process groups; to look for them takes longer than a file is written, so that is done before."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


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
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Wait for its end; return its exit code, or None where it goes on."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to its process group and those of its children, unless the program itself has ended."""
        if self.alive:
            signal_groups(groups_of(self.pid), number)

    def signal_itself(self, number: signal.Signals) -> None:
        """Send a signal to the program alone."""
        self._process.send_signal(number)

    def family(self) -> list[psutil.Process]:
        """All processes that it started, and itself, which live."""
        return [process for process in psutil.process_iter() if _mark_of(process) == self._mark]

    def named(self, program: str) -> list[psutil.Process]:
        """Those of its family that run a program, like ``java``."""
        found = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends while it is looked at
                if process.name() == program:
                    found.append(process)
        return found

    def end_all(self) -> None:
        """SIGKILL to all of its family, as when the machine dies; wait until they are gone."""
        self.signal_group(signal.SIGKILL)
        self._process.wait()
        while family := self.family():
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family, timeout=1)

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
