"""Folders that rebuilds have left behind are removed, and no others."""

import errno
import gzip
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from tests.clocks import shifted_datetime
from tests.lakes import changed
from tests.selection import only_with_all

from consumer.layers.rebuild import _mark_replaced
from consumer.maintenance.folders import (
    OF_NO_TABLE,
    abandoned,
    folders_of,
    orphans,
    promised,
    remove_replaced,
    sharing,
    unrecognized,
    why_left,
)
from lakeproof import holds
from lakeproof.catalog import open_catalog, pyiceberg_properties
from lakeproof.holds import OF_BACKUP, hold
from lakeproof.references import Metadata, change_tag, newest_metadata, swap_metadata, tag_of
from lakeproof.settings import Settings
from lakeproof.storage import open_storage

ROWS = pa.table({"id": [1, 2]})
NOW = datetime.now(UTC)
HALF_WRITTEN = {
    "00009-half.metadata.json": b"{",
    "00009-half.gz.metadata.json": gzip.compress(b"{}" * 1000)[:-10],
    "00009-zeros.gz.metadata.json": gzip.compress(b"{}" * 1000)[:-10] + bytes(10),
    "00009-other.gz.metadata.json": gzip.compress(b"{}")[:10] + bytes([255] * 20),
}
"""Files of a commit that is under way, or of a machine that lost power."""


@pytest.fixture(params=["local", only_with_all("s3", marks=[pytest.mark.s3])])
def settings(request: pytest.FixtureRequest, lake_settings: Settings) -> Settings:
    if request.param == "local":
        return lake_settings
    warehouse = request.getfixturevalue("s3_lake_settings").catalog.warehouse
    s3 = request.getfixturevalue("s3_settings")
    return changed(lake_settings, LAKE_WAREHOUSE=warehouse).model_copy(update={"s3": s3})


def table(catalog: Catalog, name: str) -> str:
    """Create a table; return its folder."""
    catalog.create_namespace_if_not_exists(name.split(".")[0])
    made = catalog.create_table(name, ROWS.schema)
    made.append(ROWS)
    return made.location()


def removed(settings: Settings, older_than: datetime, *, dry_run: bool = False) -> list[str]:
    found = remove_replaced(settings, folders_of(settings, open_catalog(settings)), older_than, dry_run=dry_run)
    return [uri.rpartition("/")[2] for uri in found]


def test_only_old_folders_of_replaced_tables_are_removed(settings: Settings) -> None:
    catalog, later = open_catalog(settings), datetime.now(UTC) + timedelta(hours=1)
    for name in ("replaced", "dropped", "used", "renamed"):
        table(catalog, f"silver.{name}")
    for name in ("replaced", "used", "renamed"):
        _mark_replaced(catalog, f"silver.{name}", "silver.new")
    catalog.drop_table("silver.replaced")
    # Tables of format 3, as in gold, and tables that a reader or a backup needs.
    table(catalog, "gold.replaced")
    at, metadata = newest_metadata(catalog, "gold.replaced")
    assert swap_metadata(catalog, "gold.replaced", at, metadata | {"format-version": 3, "next-row-id": 0})
    for name in ("held", "held_once"):
        table(catalog, f"gold.{name}")
    assert hold(catalog, "gold.held", "report", later)
    passing = datetime.now(UTC) + timedelta(seconds=1.5)
    assert hold(catalog, "gold.held_once", "report", passing)
    for name in ("replaced", "held", "held_once"):
        _mark_replaced(catalog, f"gold.{name}", "gold.new")
        catalog.drop_table(f"gold.{name}")
    time.sleep(max(0, (passing - datetime.now(UTC)).total_seconds()))
    catalog.drop_table("silver.dropped")
    catalog.rename_table("silver.renamed", "silver.other_name")
    assert removed(settings, NOW) == []
    assert removed(settings, later, dry_run=True) == ["held_once", "replaced", "replaced"]
    assert removed(settings, later) == ["held_once", "replaced", "replaced"]
    assert removed(settings, later) == []
    for name in ("silver.used", "silver.other_name"):
        assert catalog.load_table(name).scan().to_arrow().num_rows == 2


def test_a_folder_that_cannot_be_removed_is_left_for_the_next_time(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, later = open_catalog(lake_settings), datetime.now(UTC) + timedelta(hours=1)
    table(catalog, "silver.replaced")
    _mark_replaced(catalog, "silver.replaced", "silver.new")
    catalog.drop_table("silver.replaced")
    unlink = os.unlink
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", partial(_refuse_data, unlink))
        assert removed(lake_settings, later) == []
    assert removed(lake_settings, later) == ["replaced"]


def _refuse_data(unlink: Callable[..., None], path: str, **options: int) -> None:
    """Remove a file, unless it is a data file, as of another user."""
    if str(path).endswith(".parquet"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    unlink(path, **options)


@pytest.mark.s3
def test_the_warehouse_of_a_rest_catalog_is_another_than_the_setting(s3_lake_settings: Settings) -> None:
    settings = changed(s3_lake_settings, LAKE_WAREHOUSE=None).model_copy(update={"s3": s3_lake_settings.s3})
    assert settings.catalog.warehouse_uri.startswith("file:")
    catalog = open_catalog(s3_lake_settings)
    folder = table(catalog, "gold.replaced")
    catalog.drop_table("gold.replaced")
    why = why_left(settings, folder)
    assert why
    assert "no table of this catalog uses it" in why


def test_nothing_is_removed_while_a_table_cannot_be_read(lake_settings: Settings) -> None:
    catalog, later = open_catalog(lake_settings), datetime.now(UTC) + timedelta(hours=1)
    table(catalog, "silver.replaced")
    damaged = Path(urlsplit(table(catalog, "silver.damaged")).path)
    _mark_replaced(catalog, "silver.replaced", "silver.new")
    catalog.drop_table("silver.replaced")
    for file in damaged.rglob("*.metadata.json"):
        file.write_text("{")
    assert removed(lake_settings, later) == []


def test_files_of_a_dropped_table_that_a_backup_needs_are_no_orphans(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, later = open_catalog(settings), datetime.now(UTC) + timedelta(hours=1)

    def found() -> list[str]:
        return promised(settings, newest_metadata(catalog, "silver.orders")[1])

    def tag(name: str) -> None:
        def wanted(metadata: Metadata) -> Metadata:
            return tag_of(metadata["snapshots"][0], int(later.timestamp() * 1000))

        assert change_tag(catalog, "silver.orders", name, wanted)

    folder = table(catalog, "silver.orders")
    tag("mine")  # a tag of the table itself keeps no orphan
    assert found() == []
    change_tag(catalog, "silver.orders", "mine", lambda _: None)
    assert hold(catalog, "silver.orders", "report", later)
    catalog.drop_table("silver.orders")
    assert table(catalog, "silver.orders") == folder
    assert found() == []  # the tag was dropped, and the reader's table is gone
    tag(f"{OF_BACKUP}one")
    catalog.drop_table("silver.orders")
    table(catalog, "silver.orders")
    (said,) = found()
    assert said.startswith("1 backup until ")
    catalog.drop_table("silver.orders")
    table(catalog, "silver.orders")  # another one in between: the newest file of the folder is not that of the tag
    assert found() == [said]
    if folder.startswith("file:"):  # addresses as Spark may write them
        metadata = newest_metadata(catalog, "silver.orders")[1]
        for location in (urlsplit(folder).path, f"file:{urlsplit(folder).path}/"):
            assert promised(settings, metadata | {"location": location}) == [said]
    for name, content in HALF_WRITTEN.items():
        open_storage(folder, settings.s3).write_new(f"{folder}/metadata/{name}", content)
        assert found() == [said]
    monkeypatch.setattr(holds, "datetime", shifted_datetime(timedelta(hours=2)))
    assert found() == []


@pytest.mark.parametrize("name", [*HALF_WRITTEN])
def test_a_folder_with_half_written_metadata_is_of_no_known_table(lake_settings: Settings, name: str) -> None:
    catalog, later = open_catalog(lake_settings), datetime.now(UTC) + timedelta(hours=1)
    folder = table(catalog, "silver.half")
    catalog.drop_table("silver.half")
    open_storage(folder, lake_settings.s3).write_new(f"{folder}/metadata/{name}", HALF_WRITTEN[name])
    assert removed(lake_settings, later) == []
    assert why_left(lake_settings, folder) == OF_NO_TABLE


def test_a_warehouse_behind_a_link(lake_settings: Settings, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    settings = changed(lake_settings, LAKE_WAREHOUSE=link)
    catalog, later = open_catalog(settings), datetime.now(UTC) + timedelta(hours=1)
    for name in ("silver.replaced", "silver.used"):
        table(catalog, name)
        _mark_replaced(catalog, name, "silver.new")
    catalog.drop_table("silver.replaced")
    assert removed(settings, later) == ["replaced"]
    assert [each.name for each in (real / "silver").iterdir()] == ["used"]


def test_folders_that_a_server_names(lake_settings: Settings) -> None:
    catalog, warehouse = open_catalog(lake_settings), lake_settings.catalog.warehouse_uri
    catalog.create_namespace("silver")
    for name in ("events", "other", "replaced"):
        catalog.create_table(f"silver.{name}", ROWS.schema, location=f"{warehouse}/silver/0f3a-{name}").append(ROWS)
    before = catalog.load_table("silver.replaced").location()
    catalog.drop_table("silver.replaced")
    Path(urlsplit(warehouse).path, "silver", "no table").mkdir()
    locations = {"silver.events": catalog.load_table("silver.events").location()}
    folders = folders_of(lake_settings, catalog)
    assert abandoned(lake_settings, folders, locations) == []
    assert abandoned(lake_settings, folders, locations, [before, *locations.values(), f"{before}-gone"]) == [before]
    assert unrecognized(lake_settings, folders, locations) == [before]
    assert unrecognized(lake_settings, folders, {"silver.0f3a": locations["silver.events"]}) == []


def test_a_table_may_be_a_whole_bucket(lake_settings: Settings) -> None:
    locations = {"silver.events": "s3://0f3a--table-s3"}
    assert abandoned(lake_settings, {}, locations) == []
    assert unrecognized(lake_settings, {}, locations) == []


def test_tables_of_nested_namespaces_and_other_catalogs_share_folders(lake_settings: Settings) -> None:
    catalog = open_catalog(lake_settings)
    folder = table(catalog, "bronze.orders")
    catalog.create_namespace("a")
    catalog.create_namespace("a.b")
    catalog.create_table("a.b.inner", ROWS.schema, location=f"{folder}/inner")
    other = load_catalog("other", **pyiceberg_properties(lake_settings))
    other.create_namespace("x")
    other.create_table("x.outer", ROWS.schema, location=folder)
    shared = sharing(folders_of(lake_settings, catalog))
    assert shared("bronze.orders") == ["a.b.inner", "x.outer of the catalog other"]


def test_files_of_statistics_are_no_orphans(lake_settings: Settings) -> None:
    catalog = open_catalog(lake_settings)
    folder = Path(urlsplit(table(catalog, "bronze.orders")).path) / "metadata"
    at, metadata = newest_metadata(catalog, "bronze.orders")
    of_snapshot = {"snapshot-id": metadata["current-snapshot-id"], "file-size-in-bytes": 1}
    statistics, partitions = (
        of_snapshot | {"statistics-path": f"file://{folder}/{name}"} for name in ("of.stats", "partitions.parquet")
    )
    statistics |= {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    added = {"statistics": [statistics], "partition-statistics": [partitions]}
    assert swap_metadata(catalog, "bronze.orders", at, metadata | added)
    for name in ("of.stats", "partitions.parquet", "stray"):
        (folder / name).touch()
    assert orphans(lake_settings, catalog.load_table("bronze.orders")) == [(folder / "stray").as_uri()]
