"""Metadata of tables, and the same without older snapshots."""

import json

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import StringType

from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings
from reader.catalogs import Frozen, NewestSnapshots, catalog_of, table_of
from reader.connect import connect
from reader.metadata import parse_metadata, without_history

NAME = "bronze.counted"
ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_metadata_is_as_pyiceberg_reads_it(lake_settings: Settings, commits: int) -> None:
    catalog = open_catalog(lake_settings)
    catalog.create_namespace("bronze")
    theirs = catalog.create_table(NAME, ROWS.schema, properties={"a": "b"})
    for _ in range(commits):
        theirs.append(ROWS)
    with theirs.update_schema() as update:
        update.add_column("later", StringType())
    ours = table_of(catalog_of(lake_settings), NAME)
    assert ours
    assert ours.properties == theirs.properties
    assert ours.columns == theirs.schema().column_names == ["n", "later"]
    assert Schema.model_validate_json(ours.schema) == theirs.schema()
    assert [each.snapshot_id for each in ours.snapshots] == [each.snapshot_id for each in theirs.snapshots()]
    mine, newest = ours.current_snapshot(), theirs.current_snapshot()
    assert (mine is None) == (newest is None) == (commits == 0)
    if mine and newest:
        assert (mine.timestamp_ms, mine.parent_snapshot_id) == (newest.timestamp_ms, newest.parent_snapshot_id)
        assert newest.summary
        assert {key: mine.summary[key] for key in ("total-records", "operation")} == {
            "total-records": newest.summary["total-records"],
            "operation": "append",
        }
    assert table_of(catalog_of(lake_settings), "bronze.nothing") is None


def test_a_frozen_catalog_shows_tables_as_they_were_and_engines_one_snapshot(lake_settings: Settings) -> None:
    catalog = open_catalog(lake_settings)
    catalog.create_namespace("bronze")
    table = catalog.create_table(NAME, ROWS.schema)
    for _ in range(3):
        table.append(ROWS)
    frozen = Frozen(catalog_of(lake_settings))
    seen = table_of(frozen, NAME)
    assert seen
    assert len(seen.snapshots) == 3
    table.append(ROWS)
    later = table_of(frozen, NAME)
    assert later == seen
    newest = NewestSnapshots(frozen)
    with connect(lake_settings, newest) as session, connect(lake_settings) as now:
        assert (session.count(NAME), now.count(NAME)) == (6, 8)

    found = newest.metadata(("bronze",), "counted")
    assert found
    text = json.loads(found[1])
    assert [each["snapshot-id"] for each in text["snapshots"]] == [seen.current_snapshot_id]
    assert not {"refs", "snapshot-log", "metadata-log"} & text.keys()
    assert parse_metadata(found[1]).current_snapshot() == seen.current_snapshot()


def test_metadata_without_snapshots_has_no_history() -> None:
    text = '{"format-version":2,"properties":{},"schemas":[],"current-snapshot-id":-1}'
    assert json.loads(without_history(text)) == json.loads(text) | {"snapshots": []}
    assert parse_metadata(text).current_snapshot() is None
