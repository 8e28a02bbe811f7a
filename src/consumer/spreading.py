"""Distribute work to tasks, and pass their errors to the driver."""

import heapq
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import SparkContext
from pyspark.core.broadcast import Broadcast, BroadcastPickleRegistry

from lakeproof.cluster import check_like_driver, installed
from lakeproof.errors import LakeproofError

# A worker lives as long as the stream, and Arrow's allocator keeps its free pages. They are released once the worker
# has been idle for this time: getting them again took a quarter of the time of the next task. A worker that is never
# idle would grow, so it also releases them at this interval.
_IDLE_SECONDS, _BUSY_SECONDS = 2.0, 60.0

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)


def balanced(items: Iterable[ItemT], groups: int, cost: Callable[[ItemT], int]) -> list[list[ItemT]]:
    """Distribute items to at most `groups` groups of similar cost: the most expensive first, each to the lightest."""
    heap: list[tuple[int, int]] = [(0, index) for index in range(groups)]
    dealt: list[list[ItemT]] = [[] for _ in range(groups)]
    for item in sorted(items, key=cost, reverse=True):
        spent, lightest = heap[0]
        dealt[lightest].append(item)
        heapq.heapreplace(heap, (spent + cost(item), lightest))
    return [members for members in dealt if members]


def in_tasks(context: SparkContext, items: Sequence[ItemT], work: Callable[[ItemT], ResultT]) -> list[ResultT]:
    """Process each item in a task; return the results in the same order, or raise the error of a task."""
    if not items:
        return []
    with tidied(context):
        # An RDD, not a DataFrame: a task maps an item to a result, so there are no rows to plan, encode and decode.
        return succeeded(context.parallelize(items, len(items)).map(attempted(work)).collect())


class Broadcasts(BroadcastPickleRegistry):
    """PySpark's registry of a thread's broadcasts, which also remembers their files."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []

    def add(self, bcast: Broadcast[Any]) -> None:
        """Register a broadcast."""
        super().add(bcast)
        self.files.append(str(bcast._path))


@contextmanager
def tidied(context: SparkContext) -> Iterator[None]:
    """Remove the files of the broadcasts that jobs of this thread made, once the jobs are done.

    PySpark broadcasts a function with more than 1 MiB of data by a file, and would keep it until the driver ends.
    """
    files: list[str] = getattr(context._pickled_broadcast_vars, "files", [])  # our sessions have a `Broadcasts`
    begin = len(files)
    try:
        yield
    finally:
        for file in files[begin:]:
            with suppress(OSError):
                Path(file).unlink()
        del files[begin:]


def dealt(rows: RowsT, numbers: Any) -> Iterator[tuple[int, RowsT]]:
    """Yield the rows with each number, in order, for a shuffle by ``partitionBy(tasks, int)``."""
    order: Any = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    for number in np.unique(ordered).tolist():
        begin, end = np.searchsorted(ordered, [number, number + 1])
        yield number, rows.take(pa.array(order[begin:end]))  # a slice would be pickled with all rows


def attempted(work: Callable[[ItemT], ResultT]) -> Callable[[ItemT], ResultT | LakeproofError]:
    """Wrap `work` to return errors: an exception would reach the driver as the text of a stack trace.

    A task whose packages differ from the driver's returns an error in place of other results.
    """
    ours = installed()

    def attempt(item: ItemT) -> ResultT | LakeproofError:
        _keep_free_pages()
        try:
            check_like_driver(ours)
            return work(item)
        except LakeproofError as error:
            return error
        finally:
            _release_free_pages()

    return attempt


class _FreePages:
    """Releases the pages that Arrow's allocator keeps in a worker, between tasks.

    The allocator, mimalloc, has a heap for each thread, and releases only that of the calling one. So an alarm makes
    the main thread do it, which runs the tasks. If other code has the alarm, pages are released after each task.
    """

    def __init__(self) -> None:
        self._released = monotonic()

    def keep(self) -> None:
        """Begin a task."""
        if self._can_wait():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def release_later(self) -> None:
        """End a task."""
        if self._can_wait() and monotonic() - self._released < _BUSY_SECONDS:
            signal.signal(signal.SIGALRM, self._release)
            signal.setitimer(signal.ITIMER_REAL, _IDLE_SECONDS)
        else:
            self._release()

    def _can_wait(self) -> bool:
        handler = signal.getsignal(signal.SIGALRM)
        return current_thread() is main_thread() and handler in (signal.SIG_DFL, self._release)

    def _release(self, *_signal: object) -> None:
        pa.default_memory_pool().release_unused()
        self._released = monotonic()


_FREE_PAGES = _FreePages()


def _keep_free_pages() -> None:
    """Keep free pages during a task. A task's functions are sent by name; an object would be sent as it is."""
    _FREE_PAGES.keep()


def _release_free_pages() -> None:
    _FREE_PAGES.release_later()


def succeeded(results: Iterable[ResultT | LakeproofError]) -> list[ResultT]:
    """Return the results of :func:`attempted` work; raise the first error."""
    found = []
    for result in results:
        if isinstance(result, LakeproofError):
            raise result
        found.append(result)
    return found
