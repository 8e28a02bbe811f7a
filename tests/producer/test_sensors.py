"""Readings: they meet their contract, the report counts them, and a seed fixes every byte."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.judging import units_of
from tests.producer.conftest import CONTRACTS
from typer.testing import CliRunner, Result

from lakeproof.contracts import load_contract
from lakeproof.judge.batch import Judge
from producer.cli import app
from producer.encoding import JsonStyle
from producer.sensors import ReadingsPlan, make_readings

START = datetime(2026, 11, 21, 6, tzinfo=UTC)


def plan(**changes: Any) -> ReadingsPlan:
    made: dict[str, Any] = {
        "seed": 1,
        "devices": 7,
        "batch_size": 50,
        "max_delay": timedelta(seconds=30),
        "style": JsonStyle.COMPACT,
        "anomaly": 0.1,
        "duplicate": 0.0,
    }
    return ReadingsPlan(**made | changes)


def records(made: ReadingsPlan, batches: int = 20) -> list[dict[str, Any]]:
    times = [START + timedelta(seconds=number) for number in range(batches)]
    return [record for batch in make_readings(made, times) for record in json.loads(batch.data)]


@pytest.fixture
def produce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKE_CONTRACTS", str(CONTRACTS))

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, ["sensors", *map(str, arguments)])

    return run


def test_readings_meet_the_contract_and_come_out_of_order() -> None:
    contract = load_contract(CONTRACTS, "sensors")
    made = records(plan())
    (batch, *_) = make_readings(plan(), [START])
    assert [unit["reasons"] for unit in units_of(Judge(contract).judge(batch.data)) if unit["reasons"]] == []
    assert [record.key for record in batch.records] == [each["device_id"] for each in json.loads(batch.data)]
    assert {record["device_id"] for record in made} == {f"device-{number:05d}" for number in range(7)}
    times = [record["event_time"] for record in made]
    assert times != sorted(times)
    landed = [START + timedelta(seconds=number // 50) for number in range(len(made))]
    delays = [at - datetime.fromisoformat(time) for at, time in zip(landed, times, strict=True)]
    assert timedelta(0) <= min(delays)
    assert timedelta(seconds=20) < max(delays) <= timedelta(seconds=30)
    normal = [record["sensor_freq"] for record in made if record["sensor_freq"] >= 0]
    assert 40 < min(normal) < max(normal) < 60
    assert 0.05 < 1 - len(normal) / len(made) < 0.15


def test_a_device_drifts_and_has_noise() -> None:
    made = records(plan(devices=1, anomaly=0.0, batch_size=1, max_delay=timedelta(0)), 600)
    values = [record["sensor_freq"] for record in made]
    assert 3 < max(values) - min(values) < 8  # the drift, over ten minutes
    steps = sorted(abs(after - before) for before, after in pairwise(values))
    assert 0 < steps[300] < 1  # the noise


def test_a_seed_fixes_every_byte() -> None:
    assert records(plan()) == records(plan())
    assert records(plan(seed=2)) != records(plan())
    before, after = (records(plan(anomaly=chance)) for chance in (0.0, 1.0))
    assert [record["event_time"] for record in before] == [record["event_time"] for record in after]
    assert all(record["sensor_freq"] < 0 for record in after)


def test_the_report_counts_what_landed(produce: Any, tmp_path: Path) -> None:
    landing, report = tmp_path / "landing", tmp_path / "report.json"
    arguments = ("--seed", 5, "--start", "2026-11-21T06:00:00Z", "--batches", 8, "--anomaly-chance", 0.2)
    result = produce(*arguments, "--duplicate-chance", 0.1, "--target", landing, "--report", report)
    assert result.exit_code == 0, result.output
    made = [record for path in sorted(landing.rglob("*.json")) for record in json.loads(path.read_bytes())]
    unique = {json.dumps(record) for record in made}
    found = json.loads(report.read_text())
    assert (found["batches"], found["events"], found["expected"]["bronze"]) == (8, len(made), len(made))
    assert (len(made), found["duplicates"]) == (800, 800 - len(unique))
    assert found["anomalies"] == sum(json.loads(record)["sensor_freq"] < 0 for record in unique) > 50
    assert "anomalies" in result.output
    assert found["expected"]["dead_letters"] == {}


def test_batches_land_in_the_landing_zone_by_default(produce: Any, tmp_path: Path) -> None:
    assert produce("--batches", 1, "--devices", 3).exit_code == 0
    assert len(list(tmp_path.glob("target/lake/landing/sensors/**/*.json"))) == 1
