"""Work is dealt to tasks."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.selection import only_with_all

from consumer.iceberg.tasks import write_in_tasks
from consumer.spreading import Broadcasts, attempted, balanced, in_tasks


@given(st.lists(st.integers(0, 100)), st.integers(1, 5))
def test_each_item_is_dealt_once_and_no_group_is_much_heavier(costs: list[int], groups: int) -> None:
    dealt = balanced(enumerate(costs), groups, lambda item: item[1])
    assert sorted(item for group in dealt for item in group) == list(enumerate(costs))
    assert len(dealt) <= groups
    assert all(dealt)
    weights = [sum(cost for _, cost in group) for group in dealt] + [0] * (groups - len(dealt))
    # The heaviest group got its last item while it was the lightest of all.
    assert max(weights) - min(weights) <= max(costs, default=0)


@pytest.mark.all
@pytest.mark.spark
def test_large_functions_leave_no_files(spark: SparkSession) -> None:
    """PySpark would keep a file for each of them until the driver ends."""
    large, context = os.urandom(2 << 20), spark.sparkContext
    assert isinstance(context._pickled_broadcast_vars, Broadcasts)
    folder: Any = context._temp_dir
    assert Path(str(context.broadcast(1)._path)).parent == Path(folder)
    before = set(Path(folder).iterdir())
    assert in_tasks(context, [1, 2], lambda number: len(large) + number) == [len(large) + 1, len(large) + 2]
    assert set(write_in_tasks(spark.range(2), lambda _: len(large))) == {len(large)}
    assert set(Path(folder).iterdir()) == before


# A process of its own: pytest-timeout has the alarm in this one. A task leaves 200 MB of free pages.
WORKER = """
import os, sys, time
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from consumer import spreading

def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

def task(_):
    values = pa.array(np.arange(100_000))
    arrays = [pc.add(values, 1) for _ in range(250)]
    time.sleep(0.2)

idle, spreading._BUSY_SECONDS, later = map(float, sys.argv[1:])
spreading._IDLE_SECONDS = 600  # on a busy machine, this process may be idle before it is measured
work = spreading.attempted(task)
before = resident()
for number in range(3):
    work(number)
after = resident()
spreading._IDLE_SECONDS = idle
work(number)
deadline = time.monotonic() + later
while resident() - before > 100 and time.monotonic() < deadline:
    time.sleep(0.1)
print(before, after, resident())
"""


def memory_of_worker(*seconds: float) -> tuple[int, int]:
    """Return the MiB that remain after three tasks, and later, once most are free or a time has passed.

    The seconds are those until it is idle, of being busy, and until later.
    """
    command = [sys.executable, "-c", WORKER, *map(str, seconds)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    before, after, later = map(int, ran.stdout.split())
    return after - before, later - before


@pytest.mark.parametrize(
    ("idle_seconds", "busy_seconds", "later", "keeps_after", "keeps_later"),
    [
        pytest.param(600, 600, 1, True, True, id="until it is idle"),
        only_with_all(1, 600, 120, True, False, id="not when it is idle"),
        only_with_all(60, 0, 1, False, False, id="not for long if it is never idle"),
    ],
)
def test_a_worker_keeps_free_pages_for_its_next_task(
    idle_seconds: float, busy_seconds: float, later: float, keeps_after: bool, keeps_later: bool
) -> None:
    """Getting them again took a quarter of the time of a backlog, and a worker that kept them for ever would grow."""
    kept_after, kept_later = memory_of_worker(idle_seconds, busy_seconds, later)
    assert (kept_after > 100) is keeps_after
    assert (kept_later > 100) is keeps_later


def test_an_alarm_of_other_code_is_left_alone() -> None:
    def handler(_number: int, _frame: object) -> None: ...

    before = signal.signal(signal.SIGALRM, handler)
    left = signal.setitimer(signal.ITIMER_REAL, 500)
    try:
        assert attempted(lambda item: item)(1) == 1
        assert signal.getsignal(signal.SIGALRM) is handler
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 400
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)
