"""Scans of tables by PyIceberg: what the driver remembers of their files. No Spark."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cachetools import LRUCache
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BooleanExpression, GreaterThanOrEqual, IsNull, Or
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform

from consumer.iceberg import scan as scans
from consumer.iceberg.nulls import keep_nulls
from consumer.iceberg.scan import (
    Scan,
    derivation_of,
    derived,
    derived_once,
    of_micro_batches,
    plan,
    positions,
    read,
    whole_files,
)
from lakeproof.errors import UnavailableError

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
COLUMNS = {name: name for name in ("_micro_batch_id", "n")}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Create a table of three small files: micro-batches 0, 1 and 2 to 3."""
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("silver")
    schema = pa.schema([("_micro_batch_id", pa.int64()), ("n", pa.int64())])
    made = catalog.create_table("silver.events", schema)
    for numbers in ([0, 0], [1], [2, 3]):
        made.append(rows_of(numbers))
    return made


def rows_of(numbers: list[int]) -> pa.Table:
    return pa.table({"_micro_batch_id": pa.array(numbers, pa.int64()), "n": pa.array(range(len(numbers)), pa.int64())})


def planned(table: Table, start: int = 0, end: int = 100) -> Scan:
    return plan(table.refresh(), "silver.events", COLUMNS, of_micro_batches(start, end))


def test_a_snapshot_that_the_catalog_does_not_show_yet_is_not_taken_for_no_rows(table: Table) -> None:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert len(plan(table, "silver.events", COLUMNS, snapshot_id=snapshot.snapshot_id).files) == 3
    with pytest.raises(UnavailableError, match=r"does not show the newest state of silver\.events yet"):
        plan(table, "silver.events", COLUMNS, snapshot_id=1)


def numbers_of(tables: list[pa.Table]) -> list[int]:
    return sorted(number for each in tables for number in each["_micro_batch_id"].to_pylist())


def test_each_file_is_asked_for_once(table: Table) -> None:
    asked: list[list[int]] = []

    def derive(rows: pa.RecordBatch) -> pa.Table:
        asked.append(rows.column("_micro_batch_id").to_pylist())
        return pa.Table.from_batches([rows])

    fits, rest = whole_files(planned(table))
    assert not rest.files
    assert numbers_of(derived(SPARK, fits, derive, "kind")) == [0, 0, 1, 2, 3]
    table.append(rows_of([4]))
    fits, _ = whole_files(planned(table))
    assert numbers_of(derived(SPARK, fits, derive, "kind")) == [0, 0, 1, 2, 3, 4]
    assert sorted(asked) == [[0, 0], [1], [2, 3], [4]]
    assert numbers_of(derived(SPARK, fits, derive, "another kind")) == [0, 0, 1, 2, 3, 4]
    assert len(asked) == 8


@pytest.mark.parametrize(("files", "asked_again"), [(3, 0), (1, 2), (0, 3)])
def test_what_does_not_fit_is_asked_for_again(
    table: Table, monkeypatch: pytest.MonkeyPatch, files: int, asked_again: int
) -> None:
    asked: list[int] = []

    def derive(rows: pa.RecordBatch) -> pa.Table:
        asked.append(rows.num_rows)
        return pa.Table.from_batches([rows])

    # A file of two rows has 34 bytes with its validity, a file of one row 18. None of them fits into 8.
    monkeypatch.setattr(
        scans.MEMORY, "_tables", LRUCache[Any, Any]({3: 100, 1: 40, 0: 8}[files], getsizeof=lambda table: table.nbytes)
    )
    fits, _ = whole_files(planned(table))
    assert numbers_of(derived(SPARK, fits, derive, "kind")) == [0, 0, 1, 2, 3]
    asked.clear()
    assert numbers_of(derived(SPARK, fits, derive, "kind")) == [0, 0, 1, 2, 3]
    assert len(asked) == asked_again


def test_rows_that_are_read_once_are_those_of_the_writer_or_of_the_files(table: Table) -> None:
    asked: list[list[int]] = []

    def derive(rows: pa.RecordBatch) -> pa.Table:
        asked.append(rows.column("_micro_batch_id").to_pylist())
        return pa.Table.from_batches([rows])

    whole = planned(table)
    parts = [replace(whole, files=[file]) for file in whole.files] + [whole]
    derivation = derivation_of(whole, derive, "kind")
    numbers = {file.file.file_path: next(read(part)) for file, part in zip(whole.files, parts, strict=False)}
    schema = pa.schema([("_micro_batch_id", pa.int64()), ("n", pa.int64())])
    for path in list(numbers)[:2]:
        scans.MEMORY.keep(path, {derivation.key: pa.Table.from_batches([numbers[path]])})
    found = derived_once(SPARK, whole, parts[:3], derivation, schema)
    expected = [rows.column("_micro_batch_id").to_pylist() for rows in numbers.values()]
    assert [each["_micro_batch_id"].to_pylist() for each in found] == expected
    assert asked == [expected[2]]
    # A result is used once, and none is kept that was not derived by the writer.
    again = derived_once(SPARK, whole, parts[3:], derivation, schema)
    assert sorted(again[0]["_micro_batch_id"].to_pylist()) == [0, 0, 1, 2, 3]
    assert sorted(asked[1:]) == sorted(expected)
    assert derivation in scans.MEMORY.wanted("silver.events", derivation.schema_id)


def test_rows_that_were_deleted_since_are_not_those_of_the_writer(table: Table) -> None:
    whole = planned(table, end=3)  # leaves out a row of the last file
    derivation = derivation_of(whole, lambda rows: pa.Table.from_batches([rows]), "kind")
    for file in whole.files:
        scans.MEMORY.keep(file.file.file_path, {derivation.key: rows_of([9, 9])})
    found = derived_once(SPARK, whole, [whole], derivation, rows_of([]).schema)
    assert sorted(found[0]["_micro_batch_id"].to_pylist()) == [0, 0, 1, 2]


def test_a_part_without_rows_has_a_result_without_rows(table: Table) -> None:
    whole = planned(table, start=5)
    derivation = derivation_of(whole, lambda rows: pa.Table.from_batches([rows]), "kind")
    (found,) = derived_once(SPARK, whole, [whole], derivation, rows_of([]).schema)
    assert (found.num_rows, found.schema) == (0, rows_of([]).schema)


def test_a_file_of_which_rows_are_left_out_is_not_remembered(table: Table) -> None:
    fits, rest = whole_files(planned(table, end=3))
    assert numbers_of(derived(SPARK, fits, lambda rows: pa.Table.from_batches([rows]), "kind")) == [0, 0, 1]
    assert [rows.column("_micro_batch_id").to_pylist() for rows in read(rest)] == [[2]]


def test_rows_that_another_tool_deleted_are_gone(table: Table) -> None:
    def whole() -> list[int]:
        fits, rest = whole_files(planned(table))
        found = derived(SPARK, fits, lambda rows: pa.Table.from_batches([rows]), "kind")
        return numbers_of([*found, *(pa.Table.from_batches([rows]) for rows in read(rest))])

    assert whole() == [0, 0, 1, 2, 3]
    table.delete("_micro_batch_id == 3")
    assert whole() == [0, 0, 1, 2]


def test_no_more_rows_than_allowed_are_remembered(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "ROWS", 3)
    fits, rest = whole_files(planned(table))
    assert sorted(file.file.record_count for file in fits.files) == [1, 2]
    assert [file.file.record_count for file in rest.files] == [2]


def test_each_manifest_is_read_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    fetch = ManifestFile.fetch_manifest_entry

    def noted(self: ManifestFile, *arguments: Any) -> Any:
        asked.append(self.manifest_path)
        return fetch(self, *arguments)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", noted)
    assert len(planned(table).files) == 3
    assert len(planned(table, 1, 2).files) == 1
    table.append(rows_of([4]))
    assert len(planned(table).files) == 4
    assert len(asked) == len(set(asked)) == 4


def test_positions_are_found_in_files_that_were_read_before(table: Table) -> None:
    def found() -> dict[int, list[int]]:
        scan = plan(table.refresh(), "silver.events", COLUMNS)
        numbers = positions(SPARK, scan, lambda rows: rows.filter(pc.greater_equal(rows["_micro_batch_id"], wanted)))
        counts = {file.file.file_path: file.file.record_count for file in scan.files}
        return {counts[path]: each.tolist() for path, each in numbers.items()}

    wanted = 1
    table.append(rows_of([0, 5, 0, 6, 7]))
    assert found() == {1: [0], 2: [0, 1], 5: [1, 3, 4]}
    for file in table.scan().plan_files():
        Path(urlsplit(file.file.file_path).path).unlink()
    wanted = 3
    assert found() == {2: [1], 5: [1, 3, 4]}


def test_positions_in_files_that_are_too_many_are_the_same(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = plan(table, "silver.events", COLUMNS)

    def found() -> dict[str, list[int]]:
        numbers = positions(SPARK, scan, lambda rows: rows.filter(pc.greater(rows["_micro_batch_id"], 0)))
        return {path: each.tolist() for path, each in numbers.items()}

    remembered = found()
    assert sorted(remembered.values()) == [[0], [0, 1]]
    monkeypatch.setattr(scans, "ROWS", 0)
    assert found() == remembered


def test_rows_without_the_time_that_a_table_is_partitioned_by_are_found(tmp_path: Path) -> None:
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("silver")
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    made = catalog.create_table("silver.events", schema)
    with made.update_spec() as spec:
        spec.add_field("at", DayTransform())
    days = [None, *(datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))]
    made.append(pa.table({"at": pa.array(days, schema.field("at").type), "n": [0, 1, 2, 3]}))

    def found(within: BooleanExpression) -> list[int]:
        scan = plan(made.refresh(), "silver.events", {"n": "n"}, within=within)
        return sorted(number for rows in read(scan) for number in rows.column("n").to_pylist())

    since = GreaterThanOrEqual("at", "2026-01-02T00:00:00+00:00")
    assert found(since) == [2, 3]
    assert found(Or(since, IsNull("at"))) == [0, 2, 3]


def test_null_lists_and_maps_of_objects_are_null(tmp_path: Path) -> None:
    """PyIceberg itself reads them as empty."""
    objects = pa.struct([("x", pa.int64())])
    schema = pa.schema(
        [("l", pa.list_(objects)), ("m", pa.map_(pa.string(), objects)), ("o", pa.struct([("l", pa.list_(objects))]))]
    )
    rows: list[dict[str, Any]] = [
        {"l": None, "m": None, "o": None},
        {"l": [], "m": [], "o": {"l": None}},
        {"l": [{"x": 1}, None], "m": [("a", {"x": 1}), ("b", None)], "o": {"l": []}},
        {"l": None, "m": None, "o": {"l": [{"x": 2}]}},
    ]
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    made = catalog.create_table("n.t", schema)
    keep_nulls()  # for writing, too
    made.append(pa.Table.from_pylist(rows, schema=schema))
    found = pa.Table.from_batches(read(plan(made, "n.t", {name: name for name in schema.names})))
    assert found.to_pylist() == rows
    assert found.slice(3).to_pylist() == rows[3:]
