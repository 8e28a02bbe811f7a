"""The output of a task for its files: every unit in one data file, the right counts, and no duplicates on a replay."""

import dataclasses
import gzip
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from consumer.iceberg.data_files import DataFile, Target
from consumer.layers.bronze import tasks
from consumer.layers.bronze.ledger import DRIFT_COUNTS, MicroBatch, ledger_rows
from consumer.layers.bronze.tasks import Task, write_group
from consumer.row_hashes import row_hashes, sums_by
from consumer.sources.files.source import FileReader
from lakeproof.contracts import DriftPolicy, load_contract
from lakeproof.landing.zone import LandingZone
from lakeproof.settings import Limits, S3Settings
from lakeproof.state.landing_log import LandedFile
from lakeproof.storage.local import local_path
from lakeproof.tables.schemas import bronze_schema, dead_letter_schema

CONTRACT = load_contract(Path(__file__).parents[4] / "contracts", "events")
GOOD = b'{"user_id":"u","event_id":"%d","event_timestamp":"2026-11-2%dT06:00:00Z","event_type":"page_view"}'
S3 = S3Settings()


@pytest.fixture
def task(tmp_path: Path) -> Task[LandedFile]:
    def target(name: str, schema: Any, day_of: str) -> Target:
        return Target((tmp_path / name).as_uri(), schema_to_pyarrow(schema), day_of, f"{day_of}_day")

    return Task(
        MicroBatch(7, "checkpoint", CONTRACT, datetime(2026, 11, 22, tzinfo=UTC)),
        target("bronze", bronze_schema(CONTRACT), "event_timestamp"),
        target("dead", dead_letter_schema(), "_ingested_at"),
        FileReader(LandingZone((tmp_path / "landing").as_uri(), S3)),
        S3,
    )


def listed(zone: LandingZone) -> list[LandedFile]:
    found = sorted((each for each in zone.list() if each[0].endswith((".json", ".gz"))), key=lambda each: each[0])
    return [LandedFile(seq, name, file.size, file.etag, file.modified_at) for seq, (name, file) in enumerate(found, 1)]


@pytest.fixture
def landed(tmp_path: Path) -> list[LandedFile]:
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "a.json").write_bytes(b"[" + GOOD % (1, 1) + b",{}," + GOOD % (2, 2) + b',{"user_id":1}]')
    (folder / "b.json.gz").write_bytes(gzip.compress(GOOD % (3, 1)))
    (folder / "c.json").write_bytes(b"[" + GOOD % (4, 1) + b",")
    (folder / "d.json").write_bytes(b"[]")
    return listed(LandingZone(folder.as_uri(), S3))


def rows(files: list[DataFile]) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.ParquetFile(local_path(file.uri)).read().to_pylist()]


def units(files: list[DataFile]) -> Counter[tuple[str, int]]:
    return Counter((Path(row["_source"]).name, row["_position"]) for row in rows(files))


def test_every_unit_is_in_one_data_file(task: Task[LandedFile], landed: list[LandedFile]) -> None:
    written = write_group(landed, task)
    assert units(written.bronze) == Counter([("a.json", 0), ("a.json", 2), ("b.json.gz", 0)])
    assert units(written.dead_letters) == Counter([("a.json", 1), ("a.json", 3), ("c.json", 0)])
    assert sorted(file.partition for file in written.bronze) == [
        "event_timestamp_day=2026-11-21",
        "event_timestamp_day=2026-11-22",
    ]
    assert {row["_micro_batch_id"] for row in rows(written.bronze + written.dead_letters)} == {7}
    assert written.changed == []


def test_outcomes_count_units_by_source_and_set_of_reasons(task: Task[LandedFile], landed: list[LandedFile]) -> None:
    outcomes = write_group(landed, task).outcomes
    assert {(Path(source).name, reasons): count for (source, reasons), count in outcomes.items()} == {
        ("a.json", None): 2,
        ("a.json", "missing_field"): 1,
        ("a.json", "missing_field+wrong_type"): 1,
        ("b.json.gz", None): 1,
        ("c.json", "corrupt_batch"): 1,
    }


@pytest.mark.parametrize("together", [(1, 1), (2, 1 << 20), (100, 50), (100, 1 << 20)])
def test_it_makes_no_difference_which_files_are_judged_together(
    task: Task[LandedFile], landed: list[LandedFile], together: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_group(landed, task)
    monkeypatch.setattr(tasks, "_TOGETHER", together[0])
    monkeypatch.setattr(tasks, "_TOGETHER_BYTES", together[1])
    written = write_group(landed, task)
    for found, expected in ((written.bronze, whole.bronze), (written.dead_letters, whole.dead_letters)):
        assert sorted(rows(found), key=str) == sorted(rows(expected), key=str)
    assert (written.outcomes, written.hashes) == (whole.outcomes, whole.hashes)
    assert (written.sums.bronze, written.sums.dead_letters) == (whole.sums.bronze, whole.sums.dead_letters)
    assert set(written.examples) == set(whole.examples)


@pytest.mark.parametrize("hashed_bytes", [0, tasks._HASHED_BYTES], ids=["file by file", "together"])
def test_sums_are_those_of_the_rows_of_each_file(
    task: Task[LandedFile], landed: list[LandedFile], hashed_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_HASHED_BYTES", hashed_bytes)
    written = write_group(landed, task)
    for files, sums in ((written.bronze, written.sums.bronze), (written.dead_letters, written.sums.dead_letters)):
        found = Counter[str]()
        for file in files:
            (batch,) = pq.ParquetFile(local_path(file.uri)).read().combine_chunks().to_batches()
            found.update(sums_by(batch["_source"], row_hashes(batch)))
        assert found
        assert {name: value % 2**64 for name, value in found.items()} == {
            name: value % 2**64 for name, value in sums.items() if value
        }


@pytest.mark.all
def test_a_warm_up_makes_a_worker_import_what_judging_takes() -> None:
    # Spark's payload is unpickled in a Python that has imported nothing yet.
    sent = cloudpickle.dumps(tasks._nothing)
    script = "import pickle, sys; pickle.load(sys.stdin.buffer); print('lakeproof.judge.batch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True, check=True)
    assert told.stdout == b"True\n"


@pytest.mark.spark
def test_a_warm_up_that_fails_is_no_failure_of_its_own(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError

    monkeypatch.setattr(tasks, "_nothing", fail)
    tasks.warm_up(spark)


@pytest.mark.parametrize("policy", [DriftPolicy.RESCUE, DriftPolicy.DISCARD])
def test_what_drifted_is_counted_by_source_and_set_of_reasons(
    task: Task[LandedFile], tmp_path: Path, policy: DriftPolicy
) -> None:
    contract = dataclasses.replace(CONTRACT, drift=policy)
    assert task.bronze
    target = dataclasses.replace(task.bronze, schema=schema_to_pyarrow(bronze_schema(contract)))
    task = dataclasses.replace(task, batch=dataclasses.replace(task.batch, contract=contract), bronze=target)
    more = (b"", b',"x": 1,"y":[ ]', b',"product_id":2', b',"x":3,"user_id":4')
    batch = b"[" + b",".join((GOOD % (n, 1))[:-1] + end + b"}" for n, end in enumerate(more)) + b"]"
    for name, content in (("a.json", batch), ("b.json", batch.replace(b"[ ]", b"0")), ("c.json", b"[{}]")):
        (tmp_path / name).write_bytes(content)
    zone = LandingZone(tmp_path.as_uri(), S3)
    task = dataclasses.replace(task, reader=FileReader(zone))
    files = listed(zone)
    written = write_group(files, task)
    kept = sorted(rows(written.bronze), key=lambda row: (row["_source"], row["_position"]))
    if policy is DriftPolicy.RESCUE:
        assert [dict(row["_rescued"] or {}) for row in kept] == [
            {}, {"$.x": "1", "$.y": "[ ]"}, {"$.product_id": "2"}, {}, {"$.x": "1", "$.y": "0"}, {"$.product_id": "2"},
        ]  # fmt: skip
    else:
        assert [row.keys() for row in kept] == [{field.name for field in bronze_schema(CONTRACT).fields}] * 6
    ledger = ledger_rows(files, written.outcomes, written.drift, written.hashes, task.batch, written.sums).to_pylist()
    counted, other = DRIFT_COUNTS[policy], ({*DRIFT_COUNTS.values()} - {DRIFT_COUNTS[policy]}).pop()
    assert [row[counted] for row in ledger] == [[("unknown_field", 2), ("wrong_type", 1)]] * 2 + [[]]
    assert [row[other] for row in ledger] == [[]] * 3
    assert [(row["units"], row["bronze"]) for row in ledger] == [(4, 3), (4, 3), (1, 0)]


def test_a_table_that_has_the_micro_batch_gets_no_data_files_again(
    task: Task[LandedFile], landed: list[LandedFile]
) -> None:
    first = write_group(landed, task)
    again = write_group(landed, dataclasses.replace(task, bronze=None))
    assert again.bronze == []
    assert units(again.dead_letters) == units(first.dead_letters)
    assert again.outcomes == first.outcomes


def test_a_changed_file_is_a_dead_letter_at_first_and_left_out_on_a_replay(
    task: Task[LandedFile], landed: list[LandedFile]
) -> None:
    assert isinstance(task.reader, FileReader)
    local_path(task.reader.zone.uri_of(landed[0].name)).write_bytes(b"[1]")
    first = write_group(landed[:1], task)
    assert first.outcomes == {(landed[0].name, "changed"): 1}
    replayed = write_group(landed[:1], dataclasses.replace(task, bronze=None))
    assert (replayed.dead_letters, replayed.outcomes, replayed.changed) == ([], {}, [landed[0].name])


def test_limits_of_the_task_are_held(task: Task[LandedFile], landed: list[LandedFile]) -> None:
    files = [file for file in landed if file.name in ("a.json", "b.json.gz")]
    limited = dataclasses.replace(task, limits=Limits(unpacked_bytes=files[0].size - 1, record_bytes=20))
    written = write_group(files, limited)
    assert written.bronze == []
    letters = rows(written.dead_letters)
    assert {row["reasons"][0]["code"] for row in letters} == {"batch_too_large", "record_too_large"}
    assert {row["raw"] for row in letters} == {None}
    assert written.outcomes == {(files[0].name, "batch_too_large"): 1, (files[1].name, "record_too_large"): 1}
