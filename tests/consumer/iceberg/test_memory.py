"""The cache keeps what is used, and forgets what is not."""

from functools import partial

import pyarrow as pa
import pytest
from cachetools import TTLCache

from consumer.iceberg import memory
from consumer.iceberg.derivation import Derivation
from consumer.iceberg.memory import Memory

ROWS_AS_THEY_ARE = Derivation({"id": "id"}, 1, "rows", lambda rows: pa.Table.from_batches([rows]))


def test_what_is_not_used_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(memory, "TTLCache", partial(TTLCache, timer=lambda: now[0]))
    cache, table = Memory(), pa.table({"id": [1, 2, 3]})
    cache.keep("used", {"rows": table})
    cache.keep("unused", {"rows": table})
    cache.want("silver.unused", ROWS_AS_THEY_ARE)
    cache.vectors("unused", dict)
    for _ in range(4):
        now[0] += memory._IDLE_SECONDS * 0.4
        assert cache.table("used", "rows") is table
    assert cache.table("unused", "rows") is None
    assert cache.vectors("unused", lambda: {"read": "again"}) == {"read": "again"}
    assert len(cache._tables) == 1
    assert not cache.wanted("silver.unused", 1)


def test_a_table_that_is_larger_than_the_cache_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_BYTES", 100)
    cache = Memory()
    cache.keep("large", {"rows": pa.table({"id": range(100)})})
    assert cache.table("large", "rows") is None
    cache.keep("small", {"rows": pa.table({"id": [1]})})
    assert cache.table("small", "rows") is not None
    cache.forget()
    assert cache.table("small", "rows") is None


def test_files_that_a_compaction_has_replaced_are_forgotten() -> None:
    cache, table = Memory(), pa.table({"id": [1, 2, 3]})
    for path in ("replaced", "left"):
        cache.keep(path, {"rows": table, "keys": table})
    cache.forget_files({"replaced", "of another table"})
    assert [cache.table("replaced", kind) for kind in ("rows", "keys")] == [None, None]
    assert [cache.table("left", kind) for kind in ("rows", "keys")] == [table, table]


def test_a_table_is_taken_once() -> None:
    cache, table = Memory(), pa.table({"id": [1]})
    cache.keep("path", {"rows": table})
    assert cache.take("path", "keys") is None
    assert cache.take("path", "rows") is table
    assert cache.take("path", "rows") is None


def test_what_readers_want_is_known_by_table() -> None:
    cache = Memory()
    cache.want("silver.events", ROWS_AS_THEY_ARE)
    cache.want("silver.events", ROWS_AS_THEY_ARE)
    assert cache.wanted("silver.events", 1) == [ROWS_AS_THEY_ARE]
    assert not cache.wanted("bronze.events", 1)
    cache.forget()
    assert not cache.wanted("silver.events", 1)


def test_rows_of_another_schema_are_left_to_the_reader() -> None:
    """The key names the schema of the reader: results of rows with other types would be taken for those of this one."""
    cache = Memory()
    cache.want("silver.events", ROWS_AS_THEY_ARE)
    assert not cache.wanted("silver.events", 0)
    assert not cache.wanted("silver.events", 2)


def test_writers_have_no_room_while_the_cache_is_almost_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_BYTES", 100)
    cache = Memory()
    assert cache.room() == 75
    cache.keep("first", {"rows": pa.table({"id": range(5)})})
    assert cache.room() == 35
    cache.keep("second", {"rows": pa.table({"id": range(5)})})
    assert cache.room() == 0
    cache.take("first", "rows")
    assert cache.room() == 35
