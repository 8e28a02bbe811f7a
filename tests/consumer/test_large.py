"""Large input with a heap of 2 GB. Takes minutes, so only on demand: pytest -m long."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.long]
ROOT = Path(__file__).parents[2]


def run(settings: Settings, *arguments: str) -> None:
    environment = os.environ | {
        "LAKE_HOME": str(settings.home),
        "LAKE_CONTRACTS": str(settings.contracts),
        "LAKE_JARS": str(settings.spark.jars),
        "LAKE_SPARK_UI_PORT": "0",
        "LAKE_DRIVER_MEMORY": "2g",
    }
    subprocess.run([sys.executable, "-m", *arguments], env=environment, check=True, timeout=850)


def counts(settings: Settings) -> tuple[int, dict[str, int]]:
    """Count the rows of bronze, and the dead letters by their set of reasons."""
    catalog = open_catalog(settings)
    bronze = catalog.load_table("bronze.events").scan().count()
    reasons = catalog.load_table("dead_letters.events").scan(selected_fields=("reasons",)).to_arrow()["reasons"]
    sets = ("+".join(sorted({reason["code"] for reason in unit})) for unit in reasons.to_pylist())
    return bronze, dict(Counter(sets))


def produce(settings: Settings, report: Path) -> None:
    faults = ["--corruption-chance", "0.1", "--invalid-schema-chance", "0.05"]
    sizes = ["--batches", "1000", "--batch-size", "1000", "--seed", "1", "--start", "2026-11-21T00:00:00Z"]
    run(settings, "producer", "events", *sizes, *faults, "--report", str(report))


def test_a_thousand_files_of_a_thousand_records(lake_settings: Settings, tmp_path: Path) -> None:
    produce(lake_settings, tmp_path / "report.json")
    run(lake_settings, "consumer", "run", "events", "--available-now")
    expected = json.loads((tmp_path / "report.json").read_text())["expected"]
    assert counts(lake_settings) == (expected["bronze"], expected["dead_letters"])


def test_one_file_of_200_mb(lake_settings: Settings, tmp_path: Path) -> None:
    produce(lake_settings, tmp_path / "report.json")
    landing = lake_settings.home / "landing" / "events"
    records = 0
    with (lake_settings.home / "one.json").open("wb") as one:
        for file in sorted(landing.rglob("*.json")):
            batch = file.read_bytes()
            if one.tell() < 200_000_000 and batch.endswith(b"]"):  # a batch that was not cut short
                one.write((b"," if records else b"[") + batch[1:-1])
                records += 1000
            file.unlink()
        one.write(b"]")
    (lake_settings.home / "one.json").rename(landing / "one.json")
    run(lake_settings, "consumer", "run", "events", "--available-now")
    bronze, dead = counts(lake_settings)
    assert bronze + sum(dead.values()) == records
    assert records > 600_000
    assert set(dead) == {"missing_field", "null_field", "wrong_format", "wrong_type"}
