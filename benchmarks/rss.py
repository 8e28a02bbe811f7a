"""Memory and processor time of a process and its descendants."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

_EVERY_SECONDS = 0.1
_MIB = 1024**2


@dataclass(frozen=True)
class PeakMemory:
    """Highest resident memory in MiB.

    Parameters
    ----------
    total
        Of the whole process tree at one moment. Memory shared by processes counts for each of them.
    jvm, driver, workers
        Of the JVMs, of the started process, and of all other processes, each at its own peak.
    """

    total: float = 0.0
    jvm: float = 0.0
    driver: float = 0.0
    workers: float = 0.0

    def or_higher(self, rss: Mapping[str, float]) -> "PeakMemory":
        """Return the maximum of these peaks and the values of one moment."""
        return PeakMemory(
            total=max(self.total, sum(rss.values())),
            jvm=max(self.jvm, rss.get("jvm", 0.0)),
            driver=max(self.driver, rss.get("driver", 0.0)),
            workers=max(self.workers, rss.get("workers", 0.0)),
        )


class MemoryWatch:
    """Context manager that samples a process tree ten times a second, in a thread."""

    def __init__(self, pid: int) -> None:
        self.peak = PeakMemory()
        self._cpu: dict[psutil.Process, float] = {}
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all processes, each until its last sample."""
        return sum(self._cpu.values())

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self.peak = self.peak.or_higher(self._look())

    def _look(self) -> dict[str, float]:
        rss: dict[str, float] = {}
        jvms: set[int] = set()
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [self._root, *self._root.children(recursive=True)]:  # parents before children
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    used = process.cpu_times()
                    self._cpu[process] = used.user + used.system
                    part = part_of(process.exe(), is_root=process.pid == self._root.pid)
                    if part == "jvm":
                        jvms.add(process.pid)
                        # A child process of a JVM is, for a moment, a second JVM that shares its memory.
                        if process.ppid() in jvms:
                            continue
                    rss[part] = rss.get(part, 0.0) + process.memory_info().rss / _MIB
        return rss


def cpu_by_part(pid: int) -> dict[str, float]:
    """Return the processor time of each part of a process tree; for workers, including child processes that ended."""

    def seconds(process: psutil.Process, part: str) -> float:
        used = process.cpu_times()
        ended = used.children_user + used.children_system if part == "workers" else 0.0
        return float(used.user + used.system + ended)

    return _by_part(pid, seconds)


def memory_by_part(pid: int) -> dict[str, float]:
    """Return the memory of each part of a process tree in MiB; what processes share is divided among them."""
    return _by_part(pid, lambda process, _: process.memory_full_info().pss / _MIB)


def _by_part(pid: int, measure: Callable[[psutil.Process, str], float]) -> dict[str, float]:
    root, found = psutil.Process(pid), dict[str, float]()
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            part = part_of(process.exe(), is_root=process.pid == pid)
            found[part] = found.get(part, 0.0) + measure(process, part)
    return found


def part_of(program: str, *, is_root: bool) -> str:
    """Return a process's part of the tree, based on its program's path: ``jvm``, ``driver`` or ``workers``."""
    if Path(program).name == "java":
        return "jvm"
    return "driver" if is_root else "workers"
