"""docs/originals.md: events of the original projects, and commands that do the same as they show."""

import json
import re
from pathlib import Path

import pytest
from tests.collector.running import Collector
from tests.pages import blocks
from tests.servers import KafkaServer
from tests.test_docs import facts, shell

from lakeproof.contracts import load_contract
from lakeproof.judge.batch import Judge

ROOT = Path(__file__).parents[1]
PAGE = "docs/originals.md"
PROGRAMS = ("producer", "consumer", "reader", "collector", "lakeproof", "python", "duckdb", "curl", "make")
TEXTS = {
    "377412": "377412",
    '"377412"': "377412",
    "1.50": "1.50",
    "9007199254740993": "9007199254740993",
    '"007"': "007",
}


@pytest.mark.parametrize("token", TEXTS)
def test_both_judges_keep_a_number_or_a_string_exactly(token: str) -> None:
    """Events as in the originals: the sensor's from the article, the clickstream's by its schema."""
    sensor = '{"device_id": %s, "sensor_freq": 44.491581725355466, "event_time": "2023-04-08T05:26:00Z"}'
    click = '{"id": 1, "type": "click", "event": {"timestamp": "2023-04-08T05:26:00Z", "page": "/", "product": %s}}'
    for stream, record in {"sensors": sensor, "clickstream": click}.items():
        contract = Judge(load_contract(ROOT / "contracts", stream)).contract  # without derived fields
        unit = (record % token).encode()
        for choice in ("auto", "python"):
            (found,) = Judge(contract, choice=choice).judge(unit)
            (row,) = found.good.values.to_pylist()
            value = row["device_id"] if stream == "sensors" else row["event"]["product"]
            assert value == TEXTS[token]


@pytest.mark.long
@pytest.mark.spark
def test_the_page_lands_their_events(kafka: KafkaServer, tmp_path: Path) -> None:
    files, producer = blocks(PAGE, "sh")
    (printed,) = blocks(PAGE, "csv")
    place = {"LAKE_SPARK_UI_PORT": "0"}
    said = shell((files + producer).replace("target/", f"{tmp_path}/"), place)
    assert said.startswith(printed)
    assert all(column in said.removeprefix(printed) for column in ("event_timestamp", "reasons"))
    verified = (tmp_path / "originals" / "verified.txt").read_text()
    assert verified.count("Clean: each landed unit is in exactly one table, once.") == 2
    (console,) = blocks(PAGE, "console")
    commands = [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]
    topics = {"LAKE_COLLECTOR_TOPIC": "original.events", "LAKE_COLLECTOR_PROBE_TOPIC": "original.probes"}
    environment = place | topics | {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    with Collector(tmp_path / "collector", environment) as running:
        running.ready()
        script = "\n".join(commands).replace("127.0.0.1:8080", f"127.0.0.1:{running.port}")
        said = shell(script.replace("target/", f"{tmp_path}/"), environment)
    printed = "\n".join(line for line in console.splitlines() if not line.startswith("$ "))
    assert facts(printed) - facts(said) == {}
    assert len(json.loads((tmp_path / "receipts.jsonl").read_text())["receipts"]) == 1
    assert "Each receipt is in one table, once." in " ".join((tmp_path / "verified.txt").read_text().split())


def test_each_command_of_the_tables_is_run_on_the_page_that_is_linked() -> None:
    """tests/blocks.csv names each block's test."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \|$", (ROOT / PAGE).read_text(), re.MULTILINE)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing, commands = [], 0
    for _, here, _ in rows:
        pages = [(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)", here)] or [ROOT / PAGE]
        scripts = "\n".join(
            block for page in pages for kind in ("sh", "console") for block in blocks(str(page.relative_to(ROOT)), kind)
        )
        for command in re.findall(r"`([^`]+)`", here):
            if command.split()[0] in PROGRAMS:
                commands += 1
                if command.split()[0] == "make":
                    missing += [command] if command.split()[1] not in targets else []
                elif command not in scripts:
                    missing.append(command)
    assert missing == []
    assert commands > 40
