"""Texts of RocksDB that consumer/layers/buckets.py relies on, since errors have no codes or types."""

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from consumer.layers.buckets import _LOCKED, Buckets, DamagedError, InUseError


def failure(folder: Path) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - RocksDB raises no other
        Rdict(str(folder), Options(raw_mode=True))
    return caught.value


def test_rocksdb_says_that_it_is_in_use_by_a_text_alone(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path), Options(raw_mode=True))
    error = failure(tmp_path)
    database.close()
    assert type(error) is Exception, "buckets.py can tell errors apart by type now"
    assert str(error).startswith(_LOCKED)


def test_a_damaged_database_is_not_taken_for_one_in_use(tmp_path: Path) -> None:
    """The database is not taken for one in use even if its path contains the words."""
    folder = tmp_path / "IO error: While lock file"
    Rdict(str(folder), Options(raw_mode=True)).close()
    (folder / "CURRENT").write_text("lock hold by current process\n")
    assert not str(failure(folder)).startswith(_LOCKED)
    buckets = Buckets(folder, "LAKE_SILVER_INDEX")
    assert buckets.names == []
    buckets.close()


def test_a_database_in_use_is_not_cleared(tmp_path: Path) -> None:
    first = Buckets(tmp_path, "LAKE_SILVER_INDEX")
    first.put([(b"key", None, b"value")], None, None)
    with pytest.raises(InUseError):
        Buckets(tmp_path, "LAKE_SILVER_INDEX")
    assert not issubclass(InUseError, DamagedError)
    assert first.names == ["rest"]
    first.close()
