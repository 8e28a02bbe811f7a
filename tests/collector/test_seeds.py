"""The producer's reports on the clickstream match the lake and the topics, for 20 seeds."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.collector.running import Collector, messages
from tests.collector.test_lake import Consumer
from tests.consumer.lake import rows
from tests.lakes import changed, variables
from tests.producer.conftest import CONTRACTS
from tests.servers import KafkaServer
from typer.testing import CliRunner

from lakeproof.settings import Settings
from producer.cli import app

SEEDS = range(1, 21)
FAULTS = [
    argument for fault in ("invalid-schema", "extra-field", "duplicate") for argument in (f"--{fault}-chance", "0.1")
]
Place = tuple[int, int]


def post(folder: Path, running: Collector, seed: int) -> tuple[dict[str, Any], set[Place]]:
    """Post the events of a seed; return the report, and the places of the events in the topic."""
    report, receipts = folder / f"{seed}.json", folder / f"{seed}.jsonl"
    arguments = ["clickstream", "--data-sink", "http", "--seed", str(seed), "--batches", "20", "--batch-size", "100"]
    arguments += ["--start", "2026-11-01T00:00:00Z", "--target", f"http://127.0.0.1:{running.port}/collect", *FAULTS]
    done = CliRunner().invoke(app, [*arguments, "--report", str(report), "--receipts", str(receipts)])
    assert done.exit_code == 0, done.output
    answers = [json.loads(line)["receipts"] for line in receipts.read_text().splitlines()]
    return json.loads(report.read_text()), {
        (each["partition"], each["offset"]) for answer in answers for each in answer
    }


def place_of(source: str) -> Place:
    _, partition, offset = source.rsplit("/", 2)
    return int(partition), int(offset)


@pytest.mark.spark
@pytest.mark.long
def test_tables_and_topics_equal_the_report_of_each_seed(
    start_collector: Any, kafka: KafkaServer, lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_CONTRACTS", str(CONTRACTS))
    running: Collector = start_collector().ready()
    made = {seed: post(tmp_path, running, seed) for seed in SEEDS}
    seed_of = {place: seed for seed, (_, places) in made.items() for place in places}
    assert len(seed_of) == sum(report["events"] for report, _ in made.values()) > 20_000

    latest, dead_events = f"{tmp_path.name}.latest", f"{tmp_path.name}.dead"
    settings = changed(
        lake_settings,
        LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        LAKE_KAFKA_TOPIC=running.settings["LAKE_COLLECTOR_TOPIC"],
        LAKE_GOLD=str(tmp_path / "gold"),
        LAKE_SPARK_UI_PORT=0,
    )
    environment = {name: str(value) for name, value in variables(settings).items()}
    sinks = ["--silver-topic", latest, "--dead-letter-topic", dead_events]
    consumer = Consumer(tmp_path, environment, "--available-now", *sinks)
    assert consumer.end() == 0, consumer.log.read_text()

    bronze = Counter(seed_of[place_of(row["_source"])] for row in rows(settings, "bronze.clickstream"))
    kept = {row["correlation_id"]: seed_of[place_of(row["_source"])] for row in rows(settings, "silver.clickstream")}
    silver = Counter(kept.values())
    dead = {seed: Counter[str]() for seed in SEEDS}
    for row in rows(settings, "dead_letters.clickstream"):
        codes = "+".join(sorted({reason["code"] for reason in row["reasons"]}))
        dead[seed_of[place_of(row["_source"])]][codes] += 1
    published = Counter(kept[message.key.decode()] for message in messages(kafka.bootstrap_servers, latest))
    refused = Counter(
        seed_of[place_of(dict(message.headers)["lakeproof-source"].decode())]
        for message in messages(kafka.bootstrap_servers, dead_events)
    )
    assert len(rows(settings, "silver.clickstream")) == len(kept)
    assert rows(settings, "silver.clickstream_conflicts") == rows(settings, "silver.clickstream_late") == []
    for seed, (report, _) in made.items():
        originals = report["combinations"]["sound"]  # an extra field makes a record a dead letter
        assert bronze[seed] == report["expected"]["bronze"], seed
        assert dict(dead[seed]) == report["expected"]["dead_letters"], seed
        assert silver[seed] == published[seed] == originals < bronze[seed], seed
        assert refused[seed] == sum(report["expected"]["dead_letters"].values()) > 0, seed
