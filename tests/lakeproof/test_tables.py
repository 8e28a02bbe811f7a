from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import UnavailableError
from lakeproof.settings import settings_of
from lakeproof.tables.evolution import unsuitable, wider
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import dead_letter_schema, ensure_tables


@pytest.fixture(params=["lake_settings", pytest.param("s3_lake_settings", marks=pytest.mark.s3)])
def settings(request):
    return request.getfixturevalue(request.param)


def test_tables_are_made_once_and_partitioned_by_day(settings):
    contract = load_contract(settings.contracts, "events")
    for _ in range(2):
        ensure_tables(open_catalog(settings), contract)
    catalog = open_catalog(settings)
    bronze = catalog.load_table("bronze.events")
    names = [field.name for field in contract]
    assert [field.name for field in bronze.schema().fields] == [
        *names,
        "_source",
        "_position",
        "_micro_batch_id",
        "_landed_at",
        "_ingested_at",
        "_contract_version",
    ]
    ids = [field.field_id for field in bronze.schema().fields]
    assert len(set(ids)) == len(ids)
    dead = catalog.load_table(stream_tables("events").dead_letters)
    for table, day_of in ((bronze, "event_timestamp"), (dead, "_ingested_at")):
        (part,) = table.spec().fields
        assert part.transform == DayTransform()
        assert table.schema().find_column_name(part.source_id) == day_of
        assert table.metadata.format_version == 2


def test_dead_letters_keep_any_bytes(settings):
    catalog = open_catalog(settings)
    ensure_tables(catalog, load_contract(settings.contracts, "events"))
    table = catalog.load_table("dead_letters.events")
    row = dict.fromkeys(dead_letter_schema().column_names) | {
        "raw": b"\xff\x00",
        "reasons": [{"code": "invalid_utf8", "path": "$", "detail": None}],
        "_ingested_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    (read,) = table.scan().to_arrow().to_pylist()
    assert (read["raw"], read["reasons"][0]["code"]) == (b"\xff\x00", "invalid_utf8")


@pytest.mark.parametrize(
    "change",
    [
        {"LAKE_CATALOG_URI": "postgresql://me:hush@127.0.0.1:1/x"},
        {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": "http://127.0.0.1:1"},
    ],
)
def test_a_catalog_that_does_not_answer_is_one_line(tmp_path, change):
    settings = settings_of({"LAKE_HOME": tmp_path, **change})
    with pytest.raises(UnavailableError, match="catalog") as caught:
        open_catalog(settings)
    assert "hush" not in str(caught.value)
    assert "\n" not in caught.value.message


def test_a_catalog_file_that_is_none_is_one_line(tmp_path):
    (tmp_path / "catalog.db").write_bytes(b"not a database, but long enough to be looked at" * 10)
    with pytest.raises(UnavailableError, match="catalog"):
        open_catalog(settings_of({"LAKE_HOME": tmp_path}))


def test_a_folder_in_the_way_of_the_catalog_is_one_line(tmp_path):
    (tmp_path / "lake").write_bytes(b"")
    with pytest.raises(UnavailableError, match="catalog"):
        open_catalog(settings_of({"LAKE_HOME": tmp_path / "lake"}))


@pytest.mark.parametrize(
    ("has", "wanted", "is_wider", "is_unsuitable"),
    [
        (LongType(), LongType(), False, False),
        (IntegerType(), LongType(), False, False),
        (LongType(), IntegerType(), True, False),
        (DecimalType(10, 2), DecimalType(12, 2), False, False),
        (DecimalType(12, 2), DecimalType(10, 2), True, False),
        (DecimalType(38, 0), DecimalType(38, 2), False, True),
        (DecimalType(38, 2), DecimalType(38, 0), False, True),
        (LongType(), DecimalType(21, 1), False, True),
        (StringType(), LongType(), False, True),
    ],
    ids=str,
)
def test_columns_that_cannot_be_widened(has, wanted, is_wider, is_unsuitable):
    table = Schema(NestedField(1, "a", has))
    target = Schema(NestedField(1, "a", wanted), NestedField(2, "new", LongType()))
    assert wider(table, target) == ["a"] * is_wider
    assert unsuitable(table, target) == ["a"] * is_unsuitable
