"""Final windows in Parquet files: each window once, and DuckDB never sees a partial file."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf, rows
from tests.consumer.layers.gold.lakes import FINAL, NOON, SILVER, Silver, fill, gold_layer, order, write_product
from tests.consumer.taking import take_all
from tests.operations import tables
from tests.operations.pieces import Piece, back_up, restore
from tests.pages import blocks

from consumer.layers.rebuild import rebuild
from consumer.layers.registry import layers_of
from consumer.scope import Scope
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings
from lakeproof.storage.local import LocalStorage
from lakeproof.tables.schemas import ensure_silver_tables

pytestmark = pytest.mark.spark

(SHOWN,) = blocks("docs/sinks.md", "yaml")
TEXT = FINAL.text.replace("publish: final\n", SHOWN)


def publish(spark: SparkSession, settings: Settings, text: str = TEXT) -> int:
    product = write_product(settings, text)
    scope = Scope(settings, {"orders": load_contract(settings.contracts, "orders")}, products=[product])
    _, sink = layers_of(scope)
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


def test_windows_of_a_rebuilt_silver_are_not_added_to_files_of_the_old_one(
    lake: Settings, session: SparkSession, silver: Silver
) -> None:
    folder = lake.home / "published" / "closed"
    silver.keep([order(NOON)], [order(NOON + timedelta(days=8))])
    fill(session, lake, FINAL)
    assert publish(session, lake) == 1
    before = published(lake)
    product = write_product(lake, TEXT)
    rebuild(lake, gold_layer(lake, product), lambda: session)
    assert publish(session, lake) == 0  # from the same silver

    catalog = open_catalog(lake)
    catalog.drop_table(SILVER.kept)
    ensure_silver_tables(catalog, load_contract(lake.contracts, "orders"), SILVER)
    rebuilt = Silver(session, lake)
    rebuilt.keep([order(NOON, "b")], [order(NOON + timedelta(days=8))], [order(NOON + timedelta(days=16))])
    rebuild(lake, gold_layer(lake, product), lambda: session)
    with pytest.raises(UsageError, match=r"gold\.closed was filled again from a rebuilt silver\.orders") as refused:
        publish(session, lake)
    assert "move the files away" in refused.value.hint
    assert published(lake) == before

    # A file of an earlier version does not name its silver.
    (file,) = folder.glob("*.parquet")
    rows_of_file = pq.read_table(file)
    metadata = {name: value for name, value in rows_of_file.schema.metadata.items() if name != b"lakeproof.silver"}
    assert len(metadata) < len(rows_of_file.schema.metadata)
    pq.write_table(rows_of_file.replace_schema_metadata(metadata), file)
    assert publish(session, lake) == 1
    for file in folder.glob("*.parquet"):
        file.rename(lake.home / file.name)
    assert publish(session, lake) == 1
    assert sorted(published(lake), key=str) == in_table(lake)
