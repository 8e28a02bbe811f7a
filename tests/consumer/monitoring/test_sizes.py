"""Sizes of tables from their metadata: small files, counted in looks that read each manifest once."""

from typing import Any

import pyarrow as pa
import pytest

from consumer.monitoring import sizes
from consumer.monitoring.sizes import Sizes, TableSize, folder_size
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings
from lakeproof.tables.schemas import ensure_tables


def test_each_manifest_is_read_once_and_only_some_in_a_look(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(lake_settings)
    ensure_tables(catalog, load_contract(lake_settings.contracts, "events"))
    table = catalog.load_table("bronze.events")
    row = pa.Table.from_pylist(
        [{}], schema=pa.schema([field.with_nullable(True) for field in table.schema().as_arrow()])
    )
    with table.update_schema(allow_incompatible_changes=True) as update:
        for field in table.schema().fields:
            update.make_column_optional(field.name)
    for _ in range(4):
        table.append(row.cast(table.schema().as_arrow()))
    read: list[str] = []
    found = sizes._small

    def counting(table: Any, manifest: Any, least: int) -> Any:
        read.append(manifest.manifest_path)
        return found(table, manifest, least)

    monkeypatch.setattr(sizes, "_small", counting)
    monkeypatch.setattr(sizes, "_MANIFESTS", 3)
    looking = Sizes(lake_settings, ["events"])

    def look() -> TableSize:
        return next(each for each in looking.look() if each.table == "bronze.events")

    first, second = look(), look()
    assert (first.small_files, first.rows, first.files, first.snapshots) == (None, 4, 4, 4)
    assert second.small_files == 0  # maintenance would not compact these few
    table.append(row.cast(table.schema().as_arrow()))
    assert look().small_files == 5
    assert len(read) == len(set(read)) == 5
    # Another size makes the looks count again; with size 0, no file is small.
    monkeypatch.setattr(
        sizes,
        "tables_of",
        lambda settings, _: {
            "bronze.events": settings.maintenance.model_copy(update={"file_mib": 0}),
            "bronze.dropped": settings.maintenance,
        },
    )
    assert [look().small_files, look().small_files] == [None, 0]
    assert {each.table for each in looking.look()} == {"bronze.events"}


def test_a_folder_that_is_missing_has_no_bytes(lake_settings: Settings) -> None:
    assert folder_size(lake_settings.home / "none") == 0
