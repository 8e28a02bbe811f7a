"""A landing zone that was moved: the new one is recognized by the files that were read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import UsageError
from lakeproof.landing.root import check_same_files
from lakeproof.landing.zone import LandingZone, zone_at
from lakeproof.settings import S3Settings, Settings
from lakeproof.tables.schemas import ensure_tables

FILES = 1_001


@pytest.fixture
def catalog(lake_settings: Settings) -> Catalog:
    """A lake whose ledger has more files than are looked for; the newest one has the last row."""
    catalog = open_catalog(lake_settings)
    ensure_tables(catalog, load_contract(lake_settings.contracts, "events"))
    ledger = catalog.load_table("ledger.events")
    with ledger.update_schema(allow_incompatible_changes=True) as update:
        for column in ledger.schema().fields:
            update.make_column_optional(column.name)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"source": f"{n}.json", "size": 2, "landed_at": begin + timedelta(hours=n)} for n in range(FILES)]
    ledger.append(pa.Table.from_pylist(rows, schema=ledger.schema().as_arrow()))
    return catalog


def zone(folder: Path) -> LandingZone:
    return zone_at(folder.as_uri(), S3Settings())


def test_the_newest_file_is_enough(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / f"{FILES - 1}.json").write_bytes(b"[]")
    assert check_same_files(catalog, "events", zone(tmp_path)) == (FILES - 1, 1)


def test_a_zone_whose_files_were_all_removed_is_accepted_if_the_operator_says_so(
    catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "moved").mkdir()
    with pytest.raises(UsageError, match="None of the 1,000 files") as refused:
        check_same_files(catalog, "events", zone(tmp_path / "moved"))
    assert "--all-removed" in refused.value.hint
    assert check_same_files(catalog, "events", zone(tmp_path / "moved"), all_removed=True) == (FILES - 1, 0)
    with pytest.raises(UsageError, match="does not exist"):
        check_same_files(catalog, "events", zone(tmp_path / "missing"), all_removed=True)
