"""How much memory, and time of processors, a process and its descendants take."""

import contextlib
import threading
from collections.abc import Mapping
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
        Of the whole tree of processes at one moment. Memory that processes share counts for each of them.
    jvm, driver, workers
        Of the JVMs, of the process that was started, and of every other one, each at its own highest moment.
    """

    total: float = 0.0
    jvm: float = 0.0
    driver: float = 0.0
    workers: float = 0.0

    def or_higher(self, rss: Mapping[str, float]) -> "PeakMemory":
        """Take in the figures of one moment."""
        return PeakMemory(
            total=max(self.total, sum(rss.values())),
            jvm=max(self.jvm, rss.get("jvm", 0.0)),
            driver=max(self.driver, rss.get("driver", 0.0)),
            workers=max(self.workers, rss.get("workers", 0.0)),
        )


class MemoryWatch:
    """Looks at a tree of processes ten times a second, from a thread, between ``with`` and its end."""

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
        """Time of processors that all processes took, each until it was last looked at."""
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
                        # What a JVM starts is, for a moment, a second JVM on the same memory.
                        if process.ppid() in jvms:
                            continue
                    rss[part] = rss.get(part, 0.0) + process.memory_info().rss / _MIB
        return rss


def cpu_by_part(pid: int) -> dict[str, float]:
    """Time of processors that each part of a tree of processes has taken, with those of its processes that ended."""
    root, found = psutil.Process(pid), dict[str, float]()
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            used, part = process.cpu_times(), part_of(process.exe(), is_root=process.pid == pid)
            ended = used.children_user + used.children_system if part == "workers" else 0.0
            found[part] = found.get(part, 0.0) + used.user + used.system + ended
    return found


def part_of(program: str, *, is_root: bool) -> str:
    """Say which part of the tree a process is, by its program's path: ``jvm``, ``driver`` or ``workers``."""
    if Path(program).name == "java":
        return "jvm"
    return "driver" if is_root else "workers"
