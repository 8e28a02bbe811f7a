"""Plots of a device's readings, samples and anomalies, in the terminal and in a file."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.gold.samples_file import load_samples
from lakeproof.settings import Settings
from lakeproof.tables.names import samples_tables, silver_tables
from lakeproof.tables.schemas import ensure_samples_tables, ensure_silver_tables
from reader.cli import app
from reader.plot.device import read_device

ROOT = Path(__file__).parents[3]
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def reading(second: int, value: float, device: str = "d'1") -> dict[str, Any]:
    return {"device_id": device, "sensor_freq": value, "event_time": NOON + timedelta(seconds=second)}


@pytest.fixture
def lake(lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A lake with readings of two devices; of one, two are samples, each in two windows, and one is an anomaly."""
    catalog = open_catalog(lake_settings)
    contract = load_contract(lake_settings.contracts, "sensors")
    samples = load_samples(ROOT / "gold", "sensor_samples", lambda _: contract)
    ensure_silver_tables(catalog, contract, silver_tables("sensors"))
    ensure_samples_tables(catalog, samples, samples_tables(samples.name, samples.anomalies))
    made = [reading(number, 50.0 + number) for number in range(20)]
    for table, rows in (
        ("silver.sensors", [*made, reading(20, -5.0), reading(3, 99.0, "other")]),
        ("gold.sensor_samples", [made[0], made[0], made[19], made[19]]),
        ("gold.sensor_anomalies", [reading(20, -5.0), reading(3, 99.0, "other")]),
    ):
        found = catalog.load_table(table)
        found.append(pa.Table.from_pylist(rows, schema=found.schema().as_arrow()))
    monkeypatch.setenv("LAKE_HOME", str(lake_settings.home))
    monkeypatch.setenv("LAKE_CONTRACTS", str(lake_settings.contracts))
    monkeypatch.setenv("LAKE_GOLD", str(ROOT / "gold"))
    return lake_settings


def plot(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plot", *map(str, arguments)])


@pytest.mark.parametrize("name", ["sensors", "sensor_samples"])
def test_a_device_has_lines_of_readings_and_points_of_samples_and_anomalies(lake: Settings, name: str) -> None:
    found = read_device(lake.model_copy(update={"gold": ROOT / "gold"}), name, "d'1")
    (panel,) = found.panels
    assert [(line.label, len(line.times), line.is_points) for line in panel.lines] == [
        ("readings", 21, False),
        ("samples", 2, True),
        ("anomalies", 1, True),
    ]
    assert panel.lines[1].values == (50.0, 69.0)
    assert (found.first, found.last) == (NOON, NOON + timedelta(seconds=20))
    assert (panel.measure, found.time, found.title) == ("sensor_freq", "event_time", "sensors: d'1")


@pytest.mark.all
def test_it_is_drawn_in_the_terminal_and_to_a_file(lake: Settings, tmp_path: Path) -> None:
    shown = plot("sensors", "--device", "d'1")
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in ("sensors: d'1", "a: readings", "b: samples", "c: anomalies"))
    assert plot("sensors", "--device", "d'1", "--output", tmp_path / "device.svg").exit_code == 0
    assert "event_time (UTC)" in (tmp_path / "device.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sensors", "--device", "nobody"], "silver.sensors has no readings of the device 'nobody'"),
        (["user_activity", "--device", "d"], "No product of samples"),
        (["sensors", "--device", "d", "--key", "a=b"], "--device cannot be used with"),
        (["sensor_samples"], "is of the kind samples"),
    ],
)
def test_what_cannot_be_drawn(lake: Settings, arguments: list[str], message: str) -> None:
    done = plot(*arguments)
    assert done.exit_code != 0
    assert message in str(done.exception) + done.output


def test_tables_that_are_missing(lake: Settings) -> None:
    open_catalog(lake).drop_table("gold.sensor_anomalies")
    assert "gold.sensor_anomalies does not exist yet" in str(plot("sensors", "--device", "d'1").exception)
