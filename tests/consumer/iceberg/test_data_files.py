"""Data files hold every row that their writer got, once, each day in separate files."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyiceberg.types import ListType as IcebergList
from pyiceberg.types import MapType as IcebergMap
from tests.selection import examples

from consumer.iceberg import data_files
from consumer.iceberg.data_files import NO_DAY, DataFileWriter, Target
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage
from lakeproof.storage.local import LocalStorage, local_path
from lakeproof.tables.schemas import bronze_schema, dead_letter_schema

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("at", pa.timestamp("us", "UTC"), metadata={"PARQUET:field_id": "2"}),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


def writer(folder: Path) -> DataFileWriter:
    target = Target(folder.as_uri(), SCHEMA, "at", "at_day")
    return DataFileWriter(target, open_storage(target.folder, S3Settings()))


def batch(rows: list[tuple[int, datetime | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": number, "at": at} for number, at in rows], schema=SCHEMA)


@settings(max_examples=examples(50), deadline=None)
@given(batches=st.lists(st.lists(MOMENTS, max_size=8), max_size=5), flush=st.sampled_from([1, 100, 1 << 20]))
def test_every_row_is_in_the_files_of_its_day(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[datetime | None]], flush: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "_FLUSH_BYTES", flush)
        patch.setattr(data_files, "_MAX_OPEN", 2)
        out = writer(tmp_path_factory.mktemp("data"))
        landed, number = [], 0
        for moments in batches:
            rows = [(number + index, at) for index, at in enumerate(moments)]
            number += len(rows)
            landed += rows
            out.write(batch(rows))
        files = out.close()
    found: Counter[tuple[int, datetime | None]] = Counter()
    for file in files:
        path = local_path(file.uri)
        assert path.stat().st_size == file.size
        rows = [(row["id"], row["at"]) for row in pq.ParquetFile(path).read().to_pylist()]
        assert rows
        days = {NO_DAY if at is None else at.date().isoformat() for _, at in rows}
        assert [file.partition] == [f"at_day={day}" for day in days]
        found.update(rows)
    assert found == Counter(landed)


def test_rows_of_one_day_that_came_in_small_batches_are_one_file(tmp_path: Path) -> None:
    out = writer(tmp_path)
    for number in range(100):
        out.write(batch([(number, EPOCH + timedelta(seconds=number))]))
    [file] = out.close()
    assert pq.ParquetFile(local_path(file.uri)).metadata.num_row_groups == 1


@pytest.mark.parametrize("run", [1, 64, 100])
def test_each_day_is_one_file_with_its_rows_in_order(tmp_path: Path, run: int) -> None:
    moments = [None, EPOCH, EPOCH - timedelta(days=1)]
    rows = [(number, moments[number // run % len(moments)]) for number in range(700)]
    out = writer(tmp_path)
    for start in range(0, len(rows), 90):
        out.write(batch(rows[start : start + 90]))
    files = out.close()
    assert len(files) == len(moments)
    for file in files:
        found = [(row["id"], row["at"]) for row in pq.ParquetFile(local_path(file.uri)).read().to_pylist()]
        assert found == [row for row in rows if row[1] == found[0][1]]


def test_files_are_written_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file waits for the disk or the network, and a task has one for each day."""
    both = Barrier(2, timeout=30)
    write_new = LocalStorage.write_new

    def write_together(storage: LocalStorage, uri: str, data: bytes) -> None:
        both.wait()
        write_new(storage, uri, data)

    monkeypatch.setattr(LocalStorage, "write_new", write_together)
    out = writer(tmp_path)
    out.write(batch([(1, EPOCH), (2, None)]))
    assert [pq.ParquetFile(local_path(file.uri)).metadata.num_rows for file in out.close()] == [1, 1]


def test_a_file_that_cannot_be_written_is_an_error_although_others_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_new = LocalStorage.write_new

    def fail_for_nulls(storage: LocalStorage, uri: str, data: bytes) -> None:
        if NO_DAY in uri:
            raise UnavailableError("Cannot write: No space left on device.", "Free some.")
        write_new(storage, uri, data)

    monkeypatch.setattr(LocalStorage, "write_new", fail_for_nulls)
    out = writer(tmp_path)
    out.write(batch([(1, EPOCH), (2, None), (3, EPOCH + timedelta(days=1))]))
    with pytest.raises(UnavailableError, match="No space left"):
        out.close()


def test_storage_that_fails_is_not_asked_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fail(_storage: LocalStorage, uri: str, _data: bytes) -> None:
        asked.append(uri)
        raise UnavailableError("Cannot write.", "Wait.")

    monkeypatch.setattr(LocalStorage, "write_new", fail)
    out = writer(tmp_path)
    out.write(batch([(day, EPOCH + timedelta(days=day)) for day in range(30)]))
    with pytest.raises(UnavailableError):
        out.close()
    assert len(asked) <= 8


def test_no_rows_make_no_files(tmp_path: Path) -> None:
    out = writer(tmp_path)
    out.write(batch([]))
    assert out.close() == []
    assert list(tmp_path.iterdir()) == []


def test_a_column_names_the_field_id_that_iceberg_reads_it_by(tmp_path: Path) -> None:
    out = writer(tmp_path)
    out.write(batch([(1, datetime.combine(date(1969, 12, 31), datetime.min.time(), UTC))]))
    [file] = out.close()
    schema = pq.ParquetFile(local_path(file.uri)).schema_arrow
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"1", b"2"]


def table_with(*kinds: tuple[str, IcebergType]) -> pa.Schema:
    fields = [NestedField(0, name, kind) for name, kind in (*kinds, ("at", TimestamptzType()))]
    return schema_to_pyarrow(assign_fresh_schema_ids(Schema(*fields)))


def struct(*kinds: tuple[str, IcebergType]) -> StructType:
    return StructType(*(NestedField(0, name, kind) for name, kind in kinds))


ROW = {
    "o": {"n": 1},
    "l": [{"n": 2}, None],
    "m": [("k", {"n": 3}), ("none", None)],
    "n": 4,
    "f": 0.5,
    "d": Decimal("1.25"),
    "at": EPOCH,
}
JUDGED = pa.struct([("n", pa.int32())])
ROWS = pa.schema(
    [
        ("o", JUDGED),
        ("l", pa.list_(JUDGED)),
        ("m", pa.map_(pa.string(), JUDGED)),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def test_rows_of_an_earlier_contract_fit_a_table_that_evolved(tmp_path: Path) -> None:
    inner = struct(("added", StringType()), ("n", LongType()), ("deep", struct(("x", LongType()))))
    schema = table_with(
        ("added", IcebergMap(0, StringType(), 0, inner, value_required=False)),
        ("m", IcebergMap(0, StringType(), 0, inner, value_required=False)),
        ("l", IcebergList(0, inner, element_required=False)),
        ("d", DecimalType(20, 2)),
        ("n", LongType()),
        ("o", inner),
        ("f", DoubleType()),
    )
    target = Target(tmp_path.as_uri(), schema, "at", "at_day")
    out = DataFileWriter(target, open_storage(target.folder, S3Settings()))
    out.write(pa.RecordBatch.from_pylist([ROW, {"at": EPOCH}], schema=ROWS))
    [file] = out.close()
    written = pq.ParquetFile(local_path(file.uri))
    wide = {"added": None, "deep": None}
    first, second = written.read().to_pylist()
    assert first == ROW | {
        "added": None,
        "o": wide | {"n": 1},
        "l": [wide | {"n": 2}, None],
        "m": [("k", wide | {"n": 3}), ("none", None)],
    }
    assert second == dict.fromkeys(schema.names) | {"at": EPOCH}
    found = written.schema_arrow
    assert [field.metadata for field in found] == [field.metadata for field in schema]
    assert [field.metadata for field in found.field("o").type] == [field.metadata for field in schema.field("o").type]


@pytest.mark.parametrize(
    ("missing", "kind"),
    [
        ("o.n", struct(("x", LongType()))),
        ("l.n", IcebergList(0, struct(("x", LongType())))),
        ("m.n", IcebergMap(0, StringType(), 0, struct(("x", LongType())))),
        ("n", None),
    ],
)
def test_what_the_table_lacks_is_not_left_out_without_a_word(
    tmp_path: Path, missing: str, kind: IcebergType | None
) -> None:
    name = missing[0]
    schema = table_with((name, kind)) if kind else table_with()
    target = Target(tmp_path.as_uri(), schema, "at", "at_day")
    out = DataFileWriter(target, open_storage(target.folder, S3Settings()))
    out.write(pa.RecordBatch.from_pylist([ROW], schema=ROWS).select([name, "at"]))
    with pytest.raises(
        LakeproofError,
        match=rf"does not have all fields of its contract: {missing}\.\n  Run `lakeproof contract apply`",
    ):
        out.close()
    assert list(tmp_path.iterdir()) == []


def test_only_columns_whose_values_repeat_have_a_dictionary(tmp_path: Path) -> None:
    """A dictionary of distinct values takes time, and makes a file larger."""
    out = writer(tmp_path)
    out.write(batch([(number, datetime(2026, 11, 20, number % 3, tzinfo=UTC)) for number in range(100)]))
    (file,) = out.close()
    group = pq.ParquetFile(local_path(file.uri)).metadata.row_group(0)
    assert {group.column(index).path_in_schema: group.column(index).has_dictionary_page for index in range(2)} == {
        "id": False,
        "at": True,
    }


def without_statistics(folder: Path, columns: Schema, day_of: str, row: dict[str, Any]) -> set[str]:
    """Write a row; return the paths of the columns without statistics in Parquet."""
    schema = schema_to_pyarrow(columns)
    out = DataFileWriter(Target(folder.as_uri(), schema, day_of, "day"), open_storage(folder.as_uri(), S3Settings()))
    out.write(pa.RecordBatch.from_pylist([row], schema))
    (file,) = out.close()
    group = pq.ParquetFile(local_path(file.uri)).metadata.row_group(0)
    found = [group.column(index) for index in range(group.num_columns)]
    return {each.path_in_schema for each in found if each.statistics is None}


def test_lists_and_maps_have_no_statistics(tmp_path: Path) -> None:
    """No reader has a use for them, and they take a tenth of the time to write a file of events."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    contract = load_contract(Path(__file__).parents[3] / "contracts", "events")
    event = {"event_id": "1", "event_timestamp": now, "properties": [("url", "a")]}
    assert without_statistics(tmp_path, bronze_schema(contract), "event_timestamp", event) == {
        "properties.key_value.key",
        "properties.key_value.value",
    }
    letter = {"reasons": [{"code": "a", "path": "$", "detail": "b"}], "raw": b"{", "_ingested_at": now}
    found = without_statistics(tmp_path, dead_letter_schema(), "_ingested_at", letter)
    assert {path for path in found if path.startswith("reasons.")} == found >= {"reasons.list.element.code"}


@pytest.mark.parametrize(
    ("day", "name"),
    [
        (None, NO_DAY),
        (-5_000_000, "-11720-06-19"),
        (-1_084_772, "-1001-12-30"),
        (-719_780, "-0001-04-24"),
        (-719_528, "0000-01-01"),
        (0, "1970-01-01"),
    ],
)
def test_the_year_of_a_day_has_four_digits(day: int | None, name: str) -> None:
    """Windows of some years may begin before the year 0."""
    rows = pa.table({"at": pa.array([day], pa.int32()).cast(pa.date32())})
    assert [found for found, _ in data_files._by_day(rows, "at")] == [name]
