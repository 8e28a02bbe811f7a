"""Data files hold every row that their writer took, once, each day in files of its own."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.bronze import data_files
from consumer.bronze.data_files import NO_DAY, DataFileWriter, Target
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage
from lakeproof.storage.local import local_path

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
    return DataFileWriter(target, open_storage(target.folder, S3Settings(_env_file=None)))


def batch(rows: list[tuple[int, datetime | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": number, "at": at} for number, at in rows], schema=SCHEMA)


@settings(max_examples=50, deadline=None)
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
