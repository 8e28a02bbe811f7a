"""Work is dealt to tasks."""

import os
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from consumer import spreading
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


class Pool:
    """In place of Arrow's allocator: counts how often its free pages are released."""

    def __init__(self) -> None:
        self.released = 0
        self.was_released = Event()

    def release_unused(self) -> None:
        self.released += 1
        self.was_released.set()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    pool = Pool()
    monkeypatch.setattr(spreading.pa, "default_memory_pool", lambda: pool)
    monkeypatch.setattr(spreading, "_FREE_PAGES", spreading._FreePages())
    return pool


def test_a_worker_keeps_free_pages_for_its_next_task(pool: Pool) -> None:
    """Releasing them after each task took a quarter of the time of a backlog."""
    work = attempted(lambda item: item)
    assert [work(number) for number in range(5)] == list(range(5))
    assert pool.released == 0


def test_a_worker_without_tasks_releases_free_pages_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "_IDLE_SECONDS", 0.2)
    work = attempted(lambda item: item)
    for number in range(3):
        work(number)
    assert pool.was_released.wait(10)
    sleep(0.5)
    assert pool.released == 1


def test_no_free_pages_are_released_during_a_task(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "_IDLE_SECONDS", 0.2)
    attempted(lambda item: item)(1)
    attempted(lambda _: sleep(0.5) or pool.released)(2)
    assert attempted(lambda _: sleep(0.5) or pool.released)(3) == 0


def test_a_worker_that_is_never_idle_releases_free_pages_now_and_then(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreading, "_BUSY_SECONDS", -1)
    work = attempted(lambda item: item)
    for number in range(3):
        work(number)
    assert pool.released == 3
