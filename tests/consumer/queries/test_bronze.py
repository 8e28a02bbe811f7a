"""The main job: each landed unit is in bronze or in the dead letters, once."""

import gzip
import json
import os
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from structlog.testing import capture_logs
from tests.consumer.lake import Drain, rows
from tests.lakeproof.judge.test_batch import BAD_INPUT, KEPT
from tests.lakes import changed
from typer.testing import CliRunner

from consumer.iceberg.jvm import first_cause
from consumer.maintenance import landing_logs
from consumer.maintenance.landing_logs import shorten_logs
from consumer.monitoring.status import status as status_of
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import checkpoint_folder
from lakeproof.errors import UnavailableError
from lakeproof.install.judges import judge_choice
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state import landing_log
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage import open_storage
from lakeproof.storage.local import local_path
from producer.cli import app as producer
from reader.connect import connect
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

EVENT = {
    "user_id": "u1",
    "event_id": "e1",
    "event_timestamp": "2026-11-21T06:00:00.123456Z",
    "event_type": "page_view",
    "properties": {"url": "https://example.com", "n": 1},
}


def event(**changes: Any) -> bytes:
    return json.dumps(EVENT | changes).encode()


def units(settings: Settings) -> dict[str, list[tuple[int, str | None]]]:
    """Return every unit of both tables by source: (position, reasons or None)."""
    found: dict[str, list[tuple[int, str | None]]] = {}
    for row in rows(settings, "bronze.events"):
        found.setdefault(row["_source"], []).append((row["_position"], None))
    for row in rows(settings, "dead_letters.events"):
        codes = "+".join(sorted({reason["code"] for reason in row["reasons"]}))
        found.setdefault(row["_source"], []).append((row["_position"], codes))
    return {source: sorted(listed) for source, listed in found.items()}


def produce_seeds(target: str, environment: dict[str, str], folder: Path, seeds: int = 20) -> dict[int, Any]:
    """Run the producer with seeds from 1, each into its own folder of the landing zone; return the reports."""
    reports = {}
    for seed in range(1, seeds + 1):
        report = folder / f"report-{seed}.json"
        arguments = ["events", "--batches", "30", "--batch-size", "100", "--seed", str(seed)]
        arguments += ["--start", "2026-11-21T00:00:00Z", "--target", f"{target}/seed-{seed}", "--report", str(report)]
        arguments += ["--data-sink", "s3" if target.startswith("s3://") else "local"]
        for kind in ("corruption", "invalid-schema", "extra-field", "duplicate"):
            arguments += [f"--{kind}-chance", "0.1"]
        result = CliRunner().invoke(producer, arguments, env=environment, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        reports[seed] = json.loads(report.read_text())
    return reports


def check_seeds(settings: Settings, reports: dict[int, Any]) -> None:
    """Compare the tables with the reports, and each dead letter with the landed bytes."""
    zone = landing_zone(settings, "events")
    landed = {name: zone.storage.read(file.uri) for name, file in zone.list()}
    seed_of = {uri: int(uri.split("seed-")[1].split("/")[0]) for uri in landed}
    bronze, dead = Counter[int](), {seed: Counter[str]() for seed in reports}
    seen = set()
    for row in rows(settings, "bronze.events"):
        bronze[seed_of[row["_source"]]] += 1
        seen.add((row["_source"], row["_position"]))
    for row in rows(settings, "dead_letters.events"):
        codes = "+".join(sorted({reason["code"] for reason in row["reasons"]}))
        dead[seed_of[row["_source"]]][codes] += 1
        seen.add((row["_source"], row["_position"]))
        assert row["raw"] == unit_bytes(landed[row["_source"]], row["_position"], codes)
    assert len(seen) == bronze.total() + sum(counts.total() for counts in dead.values()), "a position comes twice"
    for seed, report in reports.items():
        assert bronze[seed] == report["expected"]["bronze"], seed
        assert dict(dead[seed]) == report["expected"]["dead_letters"], seed


def named(name: str) -> str:
    """Return a file's name as the tables record it."""
    return name.replace("%", "%25")


def unit_bytes(landed: bytes, position: int, codes: str) -> bytes:
    """Return the bytes of a unit, found without the consumer's code."""
    if codes == "corrupt_batch":
        return landed
    text, decoder = landed.decode(), json.JSONDecoder()
    start = 1
    for _ in range(position):
        start = decoder.raw_decode(text, start)[1] + 1
    return text[start : decoder.raw_decode(text, start)[1]].encode()


@pytest.mark.long
def test_seeds_1_to_20_come_out_as_the_producer_reports(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path
) -> None:
    reports = produce_seeds(landing.as_uri(), {}, tmp_path)
    drain(lake_settings)
    check_seeds(lake_settings, reports)


@pytest.mark.all
@pytest.mark.s3
def test_seeds_1_to_3_come_out_as_the_producer_reports_through_minio(
    s3_lake_settings: Settings, minio: Any, drain: Drain, tmp_path: Path
) -> None:
    reports = produce_seeds(f"{s3_lake_settings.landing.uri}/events", minio.environment(), tmp_path, seeds=3)
    drain(s3_lake_settings)
    check_seeds(s3_lake_settings, reports)


@pytest.mark.all
@pytest.mark.s3
@pytest.mark.parametrize("local", ["LAKE_LANDING", "LAKE_WAREHOUSE", "LAKE_CHECKPOINTS"])
def test_a_part_of_the_lake_may_lie_elsewhere(s3_lake_settings: Settings, drain: Drain, local: str) -> None:
    settings = changed(s3_lake_settings, **{local: None})
    open_storage(settings.landing.uri, settings.s3).write_new(f"{settings.landing.uri}/events/a.json", event())
    drain(settings)
    assert [row["_position"] for row in rows(settings, "bronze.events")] == [0]


def test_every_file_is_taken_once_whatever_its_age_folder_or_form(
    lake_settings: Settings, landing: Path, drain: Drain
) -> None:
    good, bad = event(), event(user_id=1)
    files = {
        "a_name.json": b"[%s]" % good,
        "old.json": b"[%s, %s]" % (good, bad),
        "deep/er/sub.json": good + b"\n" + bad + b"\n",
        "single.json": json.dumps(EVENT, indent=2).encode(),
        "packed.json.gz": gzip.compress(b"[%s,%s]" % (bad, good)),
        "cut.json.gz": gzip.compress(b"[%s]" % good)[:-9],
        "ü 🎉 'quoted' %41 #.json": b"[%s]" % good,
        "empty.json": b"",
        "none.json": b"[]",
    }
    for name, content in files.items():
        path = landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (landing / "half.json.tmp").write_bytes(b"[")
    os.utime(landing / "old.json", (0, 0))

    drain(lake_settings)
    drain(lake_settings)
    expected = {
        "a_name.json": [(0, None)],
        "old.json": [(0, None), (1, "wrong_type")],
        "deep/er/sub.json": [(0, None), (1, "wrong_type")],
        "single.json": [(0, None)],
        "packed.json.gz": [(0, "wrong_type"), (1, None)],
        "cut.json.gz": [(0, "undecodable")],
        "ü 🎉 'quoted' %41 #.json": [(0, None)],
        "empty.json": [(0, "empty_batch")],
    }
    assert units(lake_settings) == {named(name): listed for name, listed in expected.items()}
    ledger = {row["source"]: row for row in rows(lake_settings, "ledger.events")}
    assert set(ledger) == {named(name) for name in files}
    for name, listed in expected.items():
        row = ledger[named(name)]
        assert row["units"] == len(listed)
        assert row["bronze"] == sum(codes is None for _, codes in listed)
        assert dict(row["dead_letters"]) == Counter(codes for _, codes in listed if codes)
        assert row["size"] == len(files[name])


def test_bad_input_ends_in_exactly_one_table_and_everybody_can_read_it(
    lake_settings: Settings, landing: Path, drain: Drain
) -> None:
    landed = {
        f"{number:03} {name.replace('/', ' ')}.json": case for number, (name, case) in enumerate(BAD_INPUT.items())
    }
    for name, (content, _) in landed.items():
        (landing / name).write_bytes(content)
    many = b"[%s]" % b",".join([event()] * 100_000)
    (landing / "100,000 records.json").write_bytes(many)
    drain(lake_settings)

    expected = {
        named(name): [
            (position, None if reasons == KEPT else "+".join(sorted({reason.split()[0] for reason in reasons})))
            for position, reasons in enumerate(units_of_case)
        ]
        for name, (_, units_of_case) in landed.items()
        if units_of_case
    }
    found = units(lake_settings)
    assert found.pop("100,000 records.json") == [(n, None) for n in range(100_000)]
    assert found == expected
    with connect(lake_settings) as session:
        # Read every column of every row, so that text that is not UTF-8 is noticed.
        for table in ("bronze.events", "dead_letters.events", "dead_letters_text.events", "ledger.events"):
            relation = session.sql(f"select * from {table}")
            assert relation is not None
            with session.errors():
                assert relation.fetchall()


def test_values_land_as_they_were(lake_settings: Settings, landing: Path, drain: Drain) -> None:
    text = event(event_timestamp="0001-01-01T00:00:00Z", product_id="p\u0000\U0001f389")
    text = text.replace(b'"n": 1', b'"n": 12.50, "big": 123456789012345678901234567890, "exp": 1e400, "nil": null')
    (landing / "a.json").write_bytes(b"[%s]" % text)
    (landing / "b.json").write_bytes(b"[%s]" % event(event_timestamp="9999-12-31T23:59:59.999999+00:00"))
    (landing / "c.json").write_bytes(b"[%s]" % event(event_timestamp="2026-11-21T06:00:00.5-03:30"))
    drain(lake_settings)
    found = {row["_source"][-6]: row for row in rows(lake_settings, "bronze.events")}
    assert found["a"]["product_id"] == "p\u0000\U0001f389"
    assert dict(found["a"]["properties"]) == {
        "url": "https://example.com",
        "n": "12.50",
        "big": "123456789012345678901234567890",
        "exp": "1e400",
        "nil": None,
    }
    assert found["a"]["event_timestamp"] == datetime(1, 1, 1, tzinfo=UTC)
    assert found["b"]["event_timestamp"] == datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert found["c"]["event_timestamp"] == datetime(2026, 11, 21, 9, 30, 0, 500000, tzinfo=UTC)
    assert {row["_contract_version"] for row in found.values()} == {"1.1.0"}
    assert {row["_micro_batch_id"] for row in found.values()} == {0}


def test_bytes_that_are_not_utf8_are_kept_and_cost_nobody_else(
    lake_settings: Settings, landing: Path, drain: Drain
) -> None:
    bad = event().replace(b"u1", b"u\xff\xfe")
    (landing / "a.json").write_bytes(b"[%s,%s]" % (event(), bad))
    drain(lake_settings)
    assert units(lake_settings) == {"a.json": [(0, None), (1, "invalid_utf8")]}
    (dead,) = rows(lake_settings, "dead_letters.events")
    assert dead["raw"] == bad


def test_a_file_that_changes_between_listing_and_reading_is_a_dead_letter(
    lake_settings: Settings, landing: Path, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    from consumer.layers.bronze import land

    (landing / "a.json").write_bytes(b"[%s]" % event())
    (landing / "b.json").write_bytes(b"[%s]" % event())
    real = land.write_judged

    def change_then_judge(*arguments: Any) -> Any:
        (landing / "a.json").write_bytes(b"[%s,%s]" % (event(), event()))
        return real(*arguments)

    monkeypatch.setattr(land, "write_judged", change_then_judge)
    drain(lake_settings)
    assert units(lake_settings) == {
        "a.json": [(0, "changed")],
        "b.json": [(0, None)],
    }


def test_later_runs_go_on_where_the_first_ended(lake_settings: Settings, landing: Path, drain: Drain) -> None:
    for number in range(3):
        (landing / f"{number}.json").write_bytes(b"[%s]" % event(event_id=str(number)))
        drain(lake_settings)
    found = rows(lake_settings, "bronze.events")
    assert sorted((row["event_id"], row["_micro_batch_id"]) for row in found) == [("0", 0), ("1", 1), ("2", 2)]


@pytest.mark.all
def test_a_file_whose_name_was_shortened_is_not_read_again(
    lake_settings: Settings, landing: Path, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not read by a run that resumes, nor after the loss of the checkpoint or the landing log."""
    names = [f"{number}.json" for number in range(5)]
    settings = changed(lake_settings, LAKE_MAX_FILES_PER_MICRO_BATCH=1)
    monkeypatch.setattr(landing_log, "SHORTENED_AT_ONCE", 1)
    monkeypatch.setattr(landing_log, "_KEPT_WHOLE", 1)
    for name in names:
        (landing / name).write_bytes(b"[%s]" % event())
    shorten_logs(settings, ["events"])  # before there are tables
    drain(settings)
    log = LandingLog(settings.state.database, "events")
    shorten_logs(settings, is_ending=lambda: True)
    shorten_logs(settings)  # the entries are too recent
    assert len(log.files(0, 9)) == 5
    monkeypatch.setattr(landing_logs, "KEPT_WHOLE", timedelta(0))
    shorten_logs(settings)
    # The newest micro-batch began at 4, and one before it may be as large as the limit.
    assert [file.name for file in log.files(0, 9)] == names[3:]
    [status] = status_of(settings, ["events"])
    assert status.lag == 0
    for lost in (None, checkpoint_folder(settings, "bronze-events"), settings.state.database):
        if lost and lost.startswith("file:"):
            shutil.rmtree(local_path(lost))
        elif lost:
            shutil.rmtree(local_path(checkpoint_folder(settings, "bronze-events")))
            for file in settings.home.glob("landing-log.db*"):
                file.unlink()
        (landing / f"new-{bool(lost)}-{len(str(lost))}.json").write_bytes(b"[%s]" % event())
        (landing / names[0]).unlink()
        (landing / names[0]).write_bytes(b"[%s]" % event())  # the file returns
        drain(settings)
    assert [len(found) for found in units(settings).values()] == [1] * 8
    assert not any(each.faults for each in verify(settings, "events"))


def test_a_start_before_anything_has_landed(lake_settings: Settings, landing: Path, drain: Drain) -> None:
    with capture_logs() as logs:
        drain(lake_settings)
        drain(lake_settings)
        (landing / "1.json").write_bytes(b"[%s]" % event())
        drain(changed(lake_settings, LAKE_JUDGE="python"))
    assert units(lake_settings) == {"1.json": [(0, None)]}
    # The display in a terminal is computed from these.
    counts = {"started": "waiting", "micro-batch": "files"}
    told = [log[counts[log["event"]]] for log in logs if log["event"] in counts]
    assert told == [{"files": 0}, {"files": 0}, {"files": 1}, 1]
    assert [log["judge"] for log in logs if log["event"] == "started"] == [*[str(judge_choice())] * 2, "python"]


WORKER_FAILED = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/somewhere/write.py", line 1, in write_group
    raise UnavailableError("x: y")
lakeproof.errors.UnavailableError: Cannot read s3://b/a.json: it is away.
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WORKER_FAILED, "UnavailableError: Cannot read s3://b/a.json: it is away."),
        ("one line\nand more", "one line"),
        ("", "RuntimeError"),
    ],
)
def test_what_failed_is_said_in_one_line(text: str, line: str) -> None:
    assert first_cause(RuntimeError(text)) == line


def test_what_failed_in_the_jvm_is_its_first_cause(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    with pytest.raises(Py4JJavaError) as caught:
        jvm.java.util.ArrayList().get(3)
    assert first_cause(caught.value) == "IndexOutOfBoundsException: Index 3 out of bounds for length 0"


def test_what_failed_in_a_task_is_what_it_raised(spark: SparkSession) -> None:
    def fail(_: int) -> None:
        raise UnavailableError("s3://landing does not exist.")

    with pytest.raises(Py4JJavaError) as caught:
        spark.sparkContext.parallelize([0], 1).foreach(fail)
    assert first_cause(caught.value) == "UnavailableError: s3://landing does not exist."


def test_the_ledger_can_be_pruned_by_the_whole_name_of_a_source(
    lake_settings: Settings, landing: Path, drain: Drain
) -> None:
    for name in ("a.json", "b.json"):
        (landing / name).write_bytes(b"[%s]" % event())
    drain(lake_settings)
    ledger = open_catalog(lake_settings).load_table("ledger.events")
    source = ledger.schema().find_field("source").field_id
    [file] = [task.file for task in ledger.scan().plan_files()]
    bounds = (file.lower_bounds[source].decode(), file.upper_bounds[source].decode())
    assert bounds == ("a.json", "b.json")
