"""The cache keeps what is used, and forgets what is not."""

import time

import pyarrow as pa
import pytest

from consumer.iceberg import memory
from consumer.iceberg.memory import Memory


def test_what_is_not_used_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_IDLE_SECONDS", 0.5)
    cache, table = Memory(), pa.table({"id": [1, 2, 3]})
    cache.keep("used", table)
    cache.keep("replaced by a compaction", table)
    cache.vectors("unused", dict)
    for _ in range(4):
        time.sleep(0.2)
        assert cache.table("used") is table
    assert cache.table("replaced by a compaction") is None
    assert cache.vectors("unused", lambda: {"read": "again"}) == {"read": "again"}
    assert len(cache._tables) == 1


def test_a_table_that_is_larger_than_the_cache_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_BYTES", 100)
    cache = Memory()
    cache.keep("large", pa.table({"id": range(100)}))
    assert cache.table("large") is None
    cache.keep("small", pa.table({"id": [1]}))
    assert cache.table("small") is not None
    cache.forget()
    assert cache.table("small") is None
