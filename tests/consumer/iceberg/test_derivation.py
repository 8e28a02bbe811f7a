"""What a writer derives from its rows is what a reader derives from the data files."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.selection import examples

from consumer.iceberg import data_files, derivation
from consumer.iceberg.data_files import DataFile, DataFileWriter, Target
from consumer.iceberg.derivation import Derivation
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage
from lakeproof.storage.local import local_path

SCHEMA = pa.schema([("number", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("texts", pa.list_(pa.string()))])
START = datetime(2026, 11, 20, tzinfo=UTC)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(0, 9),
            "at": st.none() | st.integers(0, 3).map(lambda days: START + timedelta(days=days)),
            "texts": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=2),
        }
    ),
    max_size=8,
)


def as_table(rows: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows])


WHOLE = Derivation({"n": "number", "t": "texts"}, 1, "whole", as_table)


def write(
    folder: Path, batches: list[list[dict[str, Any]]], *derivations: Derivation, most: int = 1 << 20
) -> list[DataFile]:
    target = Target(folder.as_uri(), SCHEMA, "at", "at_day", derivations=derivations, derived_bytes=most)
    writer = DataFileWriter(target, open_storage(target.folder, S3Settings()))
    for rows in batches:
        writer.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    return writer.close()


@settings(max_examples=examples(50), deadline=None)
@given(batches=st.lists(ROWS, max_size=4), flush=st.sampled_from([1, 100, 1 << 20]))
def test_each_file_has_what_a_reader_would_derive(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], flush: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "_FLUSH_BYTES", flush)
        patch.setattr(data_files, "_MAX_OPEN", 2)
        files = write(tmp_path_factory.mktemp("data"), batches, WHOLE)
    for file in files:
        read = pq.ParquetFile(local_path(file.uri)).read()
        expected = WHOLE.of(
            pa.RecordBatch.from_arrays(
                [batch.column(name) for name in WHOLE.columns.values()], names=list(WHOLE.columns)
            )
            for batch in read.to_batches()
        )
        assert list(file.derived) == [WHOLE.key]
        assert file.derived[WHOLE.key].equals(expected)


def test_a_function_that_fails_does_not_prevent_the_rows(tmp_path: Path) -> None:
    def fail(rows: pa.RecordBatch) -> pa.Table:
        raise ValueError(rows.num_rows)

    failing = Derivation({"n": "number"}, 1, "failing", fail)
    missing = Derivation({"n": "a column of a newer contract"}, 1, "missing", as_table)
    (file,) = write(tmp_path, [[{"number": 1, "at": START, "texts": None}]], failing, missing, WHOLE)
    assert list(file.derived) == [WHOLE.key]
    assert pq.ParquetFile(local_path(file.uri)).read().num_rows == 1


@pytest.mark.parametrize(("repeats", "is_derived"), [(5, True), (6, False)])
def test_a_result_that_would_be_too_large_is_left_to_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: int, is_derived: bool
) -> None:
    monkeypatch.setattr(derivation, "_ROWS", 10)
    rows = [[{"number": 1, "at": START, "texts": None}]] * 2
    (file,) = write(tmp_path, rows, Derivation({"n": "number"}, 1, "k", as_table, repeats))
    assert len(file.derived) == is_derived


@pytest.mark.parametrize(("most", "is_derived"), [(48, True), (47, False), (0, False)])
def test_a_task_returns_no_more_than_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_derived: bool
) -> None:
    """The driver gets the results of all tasks, and Spark refuses more than 1 GiB of them."""
    monkeypatch.setattr(data_files, "_FLUSH_BYTES", 1)
    monkeypatch.setattr(data_files, "_MAX_OPEN", 1)
    days = [[{"number": 1, "at": START + timedelta(days=day), "texts": None}] for day in range(3)]
    numbers = Derivation({"n": "number"}, 1, "k", as_table)
    twice = Derivation({"n": "number"}, 1, "twice", as_table)
    files = write(tmp_path, days, numbers, twice, most=most)
    assert [len(file.derived) for file in files] == [2 * is_derived] * 3


def test_the_key_tells_functions_columns_and_schemas_apart() -> None:
    same = Derivation({"n": "number", "t": "texts"}, 1, "whole", as_table)
    others = [
        Derivation({"n": "number", "t": "texts"}, 2, "whole", as_table),
        Derivation({"n": "renamed", "t": "texts"}, 1, "whole", as_table),
        Derivation({"n": "number", "t": "texts"}, 1, "another", as_table),
    ]
    assert same.key == WHOLE.key
    assert WHOLE.key not in [each.key for each in others]
