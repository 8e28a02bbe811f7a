"""Final windows in Parquet files: each window once, and DuckDB never sees a partial file."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf, rows
from tests.consumer.layers.gold.lakes import FINAL, NOON, Silver, fill, order, write_product
from tests.consumer.taking import take_all
from tests.operations import tables
from tests.operations.pieces import Piece, back_up, restore
from tests.pages import blocks

from consumer.asked import Asked
from consumer.layers.registry import layers_of
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings
from lakeproof.storage.local import LocalStorage

pytestmark = pytest.mark.spark

(SHOWN,) = blocks("docs/sinks.md", "yaml")
TEXT = FINAL.text.replace("publish: final\n", SHOWN)


def publish(spark: SparkSession, settings: Settings, text: str = TEXT) -> int:
    product = write_product(settings, text)
    asked = Asked(settings, {"orders": load_contract(settings.contracts, "orders")}, products=[product])
    _, sink = layers_of(asked)
    return take_all(spark, settings, sink)


def published(settings: Settings) -> list[Any]:
    """Return the published rows, read by DuckDB."""
    found = duckdb.sql(f"SELECT * FROM '{settings.home}/published/closed/*.parquet' ORDER BY ALL")
    return [tuple(row) for row in found.fetchall()]


def in_table(settings: Settings) -> list[Any]:
    return sorted((tuple(row.values()) for row in rows(settings, "gold.closed")), key=str)


def test_each_final_window_is_in_one_file_once(
    lake: Settings,
    session: SparkSession,
    session_of: SessionOf,
    silver: Silver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = lake.home / "published" / "closed"
    silver.keep([order(NOON + timedelta(hours=hour)) for hour in range(3)])
    fill(session, lake, FINAL)
    assert publish(session, lake) == 0  # no window is final yet
    silver.keep([order(NOON + timedelta(days=8))])
    fill(session, lake, FINAL)

    def crash(self: LocalStorage, uri: str, data: bytes) -> None:
        write(self, f"{uri}.tmp", data[:100])  # a partial write
        raise LakeproofError("crashed, as asked")

    write = LocalStorage.write_new
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "write_new", crash)
        with pytest.raises(LakeproofError, match="as asked"):
            publish(session, lake)
    assert list(folder.glob("*.parquet")) == []
    # Meanwhile more windows became final.
    silver.keep([order(NOON + timedelta(days=8, hours=2))])
    fill(session, lake, FINAL)
    assert publish(session, lake) == 1
    assert sorted(published(lake), key=str) == in_table(lake)
    assert len(published(lake)) == 3
    back_up(lake, tmp_path / "copy", Piece.CATALOG, Piece.WAREHOUSE)

    tables.maintain(session, "gold.closed")
    silver.keep([order(NOON + timedelta(days=16))])
    fill(session, lake, FINAL)
    assert publish(session, lake) == 1
    assert publish(session, lake) == 0
    assert sorted(published(lake), key=str) == in_table(lake)
    assert len(list(folder.glob("*.parquet"))) == 2

    with pytest.raises(UsageError, match="another definition"):
        publish(session, lake, TEXT.replace("size: 1 hour", "size: 2 hours"))
    restore(lake, tmp_path / "copy", Piece.CATALOG, Piece.WAREHOUSE)
    with pytest.raises(LakeproofError, match="restored from an older copy"):
        publish(session_of(lake), lake)
