"""Large data files are read a few rows at a time, with the same rows as in PyIceberg."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakeproof.whatif.lakes import LANDED, Lake
from tests.lakeproof.whatif.test_forecast import batch, changed, contract_text

from lakeproof.judge.batch import MAX_BYTES
from lakeproof.settings import Settings
from lakeproof.tables.names import RAW, SOURCE
from lakeproof.whatif import large_files
from lakeproof.whatif.landed import read
from lakeproof.whatif.large_files import read_large


@pytest.fixture
def lake(lake_settings: Settings, tmp_path: Path) -> Lake:
    made = Lake(lake_settings, tmp_path, contract_text())
    made.apply()
    return made


RECORD = {
    "count": 3,
    "ratio": 0.5,
    "total": 1.25,
    "ok": True,
    "day": "2026-11-21",
    "any": "x",
    "place": {"a": 1, "t": "2026-11-21T06:00:00Z"},
    "lines": [{"n": "x"}, {}],
    "named": {"a": 1},
    "numbers": [1, 2],
}


def test_rows_are_those_that_pyiceberg_reads(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.land(batch(RECORD, {}, {"kind": "z"}, RECORD), b"[{")
    other = "{name: other, logicalType: string, physicalType: scalar, "
    renamed = f"{other}customProperties: [{{property: renamedFrom, value: any}}]}}"
    lake.apply(
        changed(
            ("{name: any, logicalType: string, physicalType: scalar}", renamed),
            ("physicalType: int}", "physicalType: long}"),
            more="      - {name: note, logicalType: string}\n",
        )
    )
    lake.land(batch({"note": "hello"}))
    for name in (lake.tables.bronze, lake.tables.dead_letters):
        table = lake.catalog.load_table(name)
        columns = table.schema().as_arrow().names
        expected = [row for rows in read(table, columns) for row in rows.to_pylist()]
        sampled = [row for rows in read(table, columns, sample=2) for row in rows.to_pylist()]
        with monkeypatch.context() as patch:
            patch.setattr(large_files, "LARGE_BYTES", 0)
            patch.setattr("lakeproof.whatif.landed._FILES_AT_ONCE", 1)
            assert all(read_large(table, task, columns) for task in table.scan().plan_files())
            assert [row for rows in read(table, columns) for row in rows.to_pylist()] == expected
            assert [row for rows in read(table, columns, sample=2) for row in rows.to_pylist()] == sampled


def test_fields_that_changed_within_an_object_are_left_to_pyiceberg(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(batch(RECORD))
    lake.apply(
        changed(
            ("{name: t, logicalType: timestamp}", "{name: t, logicalType: timestamp}, {name: z, logicalType: string}")
        )
    )
    table = lake.catalog.load_table(lake.tables.bronze)
    monkeypatch.setattr(large_files, "LARGE_BYTES", 0)
    (task,) = table.scan().plan_files()
    assert read_large(table, task, ["id"]) is not None
    assert read_large(table, task, ["place"]) is None
    (rows,) = read(table, ["place"])
    assert rows.to_pylist()[0]["place"]["z"] is None


@pytest.mark.all
def test_the_rows_of_a_large_file_are_not_held_at_once(lake: Lake) -> None:
    table = lake.catalog.load_table(lake.tables.dead_letters)
    rows, size = 300_000, 400  # PyIceberg writes pages of 20,000 rows
    raw = [os.urandom(size) for _ in range(rows)]
    columns = {RAW: pa.array(raw, pa.binary()), SOURCE: ["a"] * rows, "_ingested_at": [LANDED] * rows}
    schema = table.schema().as_arrow()
    table.append(
        pa.table({field.name: columns.get(field.name, pa.nulls(rows, field.type)) for field in schema}).cast(schema)
    )
    del raw, columns
    before = pa.total_allocated_bytes()
    found, most = 0, 0
    for each in read(table, [RAW, SOURCE]):
        found += len(each)
        most = max(most, pa.total_allocated_bytes() - before)
    assert found == rows
    assert most < 2 * MAX_BYTES + (32 << 20)
