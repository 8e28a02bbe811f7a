"""Facts of each table, from metadata alone."""

import csv
import io
import json
from datetime import UTC, datetime

from msgspec.structs import replace
from tests.reader.lake import Append, Run

from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings
from reader.metadata import Snapshot, TableMetadata
from reader.page.layers import growth_of
from reader.tables import list_tables, table_facts


def test_facts_follow_each_commit(lake: Settings, append: Append) -> None:
    before = {fact.name: fact for fact in list_tables(lake)}
    assert list(before) == ["bronze.events", "dead_letters.events", "ledger.events"]
    append(lake, 5, start=300)
    after = {fact.name: fact for fact in list_tables(lake)}
    was, now = before["bronze.events"], after["bronze.events"]
    assert (now.rows, now.snapshots) == (was.rows + 5, was.snapshots + 1)
    assert now.data_files > was.data_files
    assert now.bytes > was.bytes
    assert now.last_commit is not None
    assert abs((datetime.now(UTC) - now.last_commit).total_seconds()) < 60
    assert after["dead_letters.events"] == before["dead_letters.events"]
    assert after["dead_letters.events"].rows == 3
    assert (after["ledger.events"].rows, after["ledger.events"].snapshots, after["ledger.events"].last_commit) == (
        0,
        0,
        None,
    )


def test_bytes_are_those_of_the_data_files(local_lake: Settings) -> None:
    table = open_catalog(local_lake).load_table("dead_letters.events")
    sizes = table.inspect.files()["file_size_in_bytes"].to_pylist()
    facts = {fact.name: fact for fact in list_tables(local_lake)}
    assert facts["dead_letters.events"].bytes == sum(sizes)


def test_formats(local_lake: Settings, reader: Run) -> None:
    facts = list_tables(local_lake)
    rows = json.loads(reader(local_lake, "tables", "--format", "json").stdout)
    assert [row["name"] for row in rows] == [fact.name for fact in facts]
    assert [row["bytes"] for row in rows] == [fact.bytes for fact in facts]
    assert datetime.fromisoformat(rows[0]["last_commit"]) == facts[0].last_commit
    assert rows[2]["last_commit"] is None
    header, *lines = csv.reader(io.StringIO(reader(local_lake, "tables", "--format", "csv").stdout))
    assert header == ["name", "rows", "data_files", "bytes", "snapshots", "last_commit"]
    assert [int(line[1]) for line in lines] == [fact.rows for fact in facts]
    table = reader(local_lake, "tables").stdout
    assert "dead_letters.events" in table
    assert "never" in table


def test_replaced_rows_do_not_count() -> None:
    """An upsert deletes the old row by its position, and appends the new one."""
    day = 24 * 3600 * 1000
    totals = [
        {"total-records": "10", "total-position-deletes": "0", "added-records": "10"},
        {
            "total-records": "14",
            "total-position-deletes": "3",
            "added-records": "4",
            "added-position-deletes": "3",
        },
        {
            "total-records": "12",
            "total-position-deletes": "1",
            "added-records": "3",
            "deleted-records": "5",
            "removed-position-deletes": "2",
        },
    ]
    snapshots = [Snapshot(number, day * (1 + number) // 2, summary=each) for number, each in enumerate(totals)]
    table = TableMetadata(current_snapshot_id=2, snapshots=snapshots)
    assert table_facts("silver.events", table).rows == 11
    assert growth_of("silver.events", table).rows == 11
    later = replace(snapshots[0], timestamp_ms=-day)
    assert growth_of("silver.events", replace(table, snapshots=[later, *snapshots[1:]])).rows == 1
