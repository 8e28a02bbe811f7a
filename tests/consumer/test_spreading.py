"""Work is dealt to tasks."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from consumer.iceberg.tasks import write_in_tasks
from consumer.spreading import Broadcasts, balanced, in_tasks


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
