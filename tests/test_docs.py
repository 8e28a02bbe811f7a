"""The commands in the docs do what the docs say."""

import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.collector.running import Collector
from tests.messages import event, received, send
from tests.servers import KafkaServer

from lakeproof.settings_help import as_markdown
from lakeproof.storage.s3 import s3_client

ROOT = Path(__file__).parents[1]


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of a language in a document."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def shell(script: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def walk(document: str, languages: str) -> tuple[str, list[str]]:
    """What a document runs, and the lines which that prints: in `console` blocks, what stands behind $ is run."""
    script, printed = [], []
    for language, block in re.findall(
        rf"^```({languages})\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL
    ):
        for line in block.splitlines():
            if language == "console" and not line.startswith("$ "):
                printed.append(line)
            else:
                script.append(line.removeprefix("$ "))
    assert len(printed) > 5
    return "\n".join(script), printed


def lines(output: str) -> list[str]:
    return [line.rstrip() for line in output.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], str]:
    """The environment and the output of the README's walk-through."""
    environment = {"LAKE_HOME": str(tmp_path_factory.mktemp("walk") / "lake"), "LAKE_SPARK_UI_PORT": "0"}
    script, _ = walk("README.md", "console")
    return environment, shell(script, environment)


@pytest.mark.spark
def test_the_walk_through_of_the_readme_prints_what_it_says(walked: tuple[dict[str, str], str]) -> None:
    _, printed = walk("README.md", "console")
    assert lines(walked[1]) == printed


@pytest.mark.spark
def test_the_tutorial_makes_a_stream_of_a_contract_of_under_30_lines(tmp_path: Path) -> None:
    script, printed = walk("docs/tutorial.md", "sh|console")
    (contract,) = re.findall(r"\.yaml <<'END'\n(.*?)^END$", script, re.MULTILINE | re.DOTALL)
    assert 10 < len(contract.splitlines()) < 30
    environment = {"LAKE_SPARK_UI_PORT": "0"}
    assert lines(shell(script.replace("target/tutorial", str(tmp_path)), environment)) == printed


@pytest.mark.spark
def test_the_guide_asks_what_can_be_asked(walked: tuple[dict[str, str], str]) -> None:
    ask = next(block for block in blocks("docs/guide.md", "sh") if "reader tables" in block)
    output = shell(ask, walked[0])
    assert "page_view" in output
    assert "$.event" in output
    assert "ledger.events" in output
    assert output.count("668") >= 1  # the rows that the README's walk-through left in bronze


@pytest.mark.spark
def test_the_guide_runs_several_streams(walked: tuple[dict[str, str], str]) -> None:
    (block,) = [block for block in blocks("docs/guide.md", "sh") if "events sensors" in block]
    shell(block, walked[0])
    assert "ledger.sensors" in shell("reader tables", walked[0])


@pytest.mark.spark
def test_the_commands_of_operations_do_what_the_page_says(walked: tuple[dict[str, str], str]) -> None:
    said = shell("\n".join(blocks("docs/operations.md", "sh")), walked[0])
    assert "The next run resumes from the position in the tables." in said
    assert "Found 20 of 20 files" in said
    assert "not all queries run: exit code 4" in said
    again = shell("consumer run events --available-now && reader verify", walked[0])
    assert "Clean: each landed unit is in exactly one table, once." in again


@pytest.mark.spark
def test_the_commands_of_gold_do_what_the_page_says(walked: tuple[dict[str, str], str], tmp_path: Path) -> None:
    said = shell("\n".join(blocks("docs/gold.md", "sh")).replace("target/", f"{tmp_path}/"), walked[0])
    assert "Rebuilt gold.user_activity from silver.events." in said
    assert "Each window of gold agrees with silver." in said
    assert re.search(r"gold\.user_activity, windows of 1 hour: 3 of \d+ keys, with the greatest event_count", said)
    assert (tmp_path / "user_activity.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
def test_the_commands_of_sensors_do_what_the_page_says(tmp_path: Path) -> None:
    (script,) = blocks("docs/sensors.md", "sh")
    report = tmp_path / "report.json"
    home = {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0"}
    output = shell(script.replace("target/sensors.json", str(report)), home)
    assert "out_of_range" in output
    assert "sensors: device-00001; 2026-11-21" in output
    assert "Clean: each landed unit is in exactly one table, once." in output
    assert "Each window of gold agrees with silver." in output
    made = json.loads(report.read_text())
    landed = shell('reader sql "select count(*) n from silver.sensors" --format json', home)
    assert json.loads(landed) == [{"n": made["expected"]["bronze"]}]
    (product,) = blocks("docs/sensors.md", "yaml")
    assert product == (ROOT / "gold" / "sensor_samples.yaml").read_text()
    (alert,) = blocks("docs/sensors.md", "json")
    assert json.loads(alert)["id"] == f"{json.loads(alert)['_source']}/0"


@pytest.mark.spark
@pytest.mark.s3
def test_the_guide_runs_on_s3(minio: Any, tmp_path: Path) -> None:
    (block,) = [block for block in blocks("docs/guide.md", "sh") if "AWS_ENDPOINT_URL" in block]
    client = s3_client(minio.settings())
    for bucket in re.findall(r"s3://([a-z]+)", block):
        if bucket not in {found["Name"] for found in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=bucket)
    for name, value in minio.environment().items():
        block = re.sub(rf"^export {name}=.*$", f"export {name}={value}", block, flags=re.MULTILINE)
    output = shell(block, {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0"})
    assert "1000" in output


def test_the_collector_page_sends_events_as_it_says(kafka: KafkaServer, tmp_path: Path) -> None:
    page = "docs/collector.md"
    topics, run, new_key = blocks(page, "sh")
    assert run == "collector run\n"
    environment = {"LAKE_COLLECTOR_ORIGINS": "https://shop.example"}
    assert shell(topics.replace("127.0.0.1:9092", kafka.bootstrap_servers), environment) == ""
    servers = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    with Collector(tmp_path, environment | servers) as running:
        running.ready()
        here = f"127.0.0.1:{running.port}"
        said = []
        for block in blocks(page, "console"):
            command, expected = block.removeprefix("$ ").splitlines()
            said.append((shell(command.replace("127.0.0.1:8080", here), {}), expected))
        # Another test may have sent something before.
        numbers = re.compile(r'("partition"|"offset"):\d+')
        assert [numbers.sub("", found) for found, _ in said] == [numbers.sub("", expected) for _, expected in said]
        (python,) = blocks(page, "python")
        (tmp_path / "send.py").write_text(python.replace("127.0.0.1:8080", here))
        receipts = ast.literal_eval(shell(f"python {tmp_path}/send.py", {}))
        assert [receipt["topic"] for receipt in receipts] == ["acme.clickstream.raw.events"]
        # What a browser sends for the beacon of the page.
        (html,) = blocks(page, "html")
        assert (
            'sendBeacon("http://127.0.0.1:8080/collect", new Blob([JSON.stringify(post)], { type: "text/plain" })'
            in html
        )
        post = [{"id": 4_294_967_295, "type": "page_view", "event": {"page": "/", "referrer": "", "timestamp": ""}}]
        beacon = running.post(post, content_type="text/plain", origin="https://shop.example")
        assert beacon.status == 202
        for status in re.findall(r"^\| (\d{3}) \|", (ROOT / page).read_text(), re.MULTILINE):
            responses = running.get("/openapi.json").json["paths"]["/collect"]["post"]["responses"]
            assert status in responses or status == "401"  # which is described when keys are required
    assert re.fullmatch(r"key:  \S+\nline: shop \S+\n", shell(new_key, {}))


@pytest.mark.spark
def test_the_page_about_kafka_reads_a_topic(kafka: KafkaServer, tmp_path: Path) -> None:
    kafka.new_topic(name="incoming")
    send(kafka, "incoming", [event(1), b"[%b, {}]" % event(2)], key=b"k")
    script = "\n".join(blocks("docs/kafka.md", "sh")).replace("localhost:9092", kafka.bootstrap_servers)
    script = script.replace("target/", f"{tmp_path}/") + "\n".join(blocks("docs/sinks.md", "sh"))
    output = shell(script, {"LAKE_HOME": str(tmp_path / "lake"), "LAKE_SPARK_UI_PORT": "0"})
    assert f"incoming/0/{1:019}" in output
    assert json.loads((tmp_path / "report.json").read_bytes())["kafka"]["partitions"]["0"]["last"] > "incoming/0/"
    assert "Clean: each landed unit is in exactly one table, once." in output
    kept = {message.key() for message in received(kafka, "events.silver")}
    assert {b"e1", b"e2"} < kept
    assert {b"lakeproof-reasons"} < {name.encode() for name, _ in received(kafka, "events.dead")[0].headers() or []}


def test_the_guide_has_the_settings_as_the_model_describes_them() -> None:
    marked = re.search(
        r"^<!-- settings: made by scripts/settings.sh -->\n(.*?)^<!-- settings: end -->$",
        (ROOT / "docs/guide.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert marked, "no marks"
    assert marked[1] == as_markdown(), "run scripts/settings.sh"


def test_every_link_in_the_docs_leads_somewhere() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert broken == []
    tests = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "docs/guarantees.md").read_text())
    assert tests
    assert [path for path in tests if not (ROOT / path).exists()] == []


def test_the_architecture_names_modules_that_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:collector|consumer|lakeproof|producer|reader|tests)/[\w/.]*)`", page))
    assert len(named) > 20
    assert [path for path in sorted(named) if not ((ROOT / "src" / path).exists() or (ROOT / path).exists())] == []
    rooms = {path.name for path in (ROOT / "src/consumer").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {room for room in rooms if f"`consumer/{room}/`" not in page} == set()


def test_no_folder_of_the_sources_has_more_modules_than_a_newcomer_can_take_in() -> None:
    counts = {
        folder: len([path for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")])
        for folder in (ROOT / "src").rglob("*")
        if folder.is_dir() and folder.name != "__pycache__"
    }
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > 14} == {}
    packages = {folder for folder, count in counts.items() if count}
    assert [folder for folder in packages if not (folder / "__init__.py").exists()] == []
