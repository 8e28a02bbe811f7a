"""`make start` to `make clean`, without containers, as typed by a user."""

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from pyiceberg.schema import Schema
from tests.pages import blocks
from tests.servers import free_port

from lakeproof.catalog import open_catalog
from lakeproof.settings import load_settings
from lakeproof.tables.names import KAFKA_TOPIC, LANDING_ROOT

ROOT = Path(__file__).parents[1]


@pytest.fixture
def make(tmp_path):
    # Too deep for a socket's path, and with a space.
    home = tmp_path / "a lake" / ("deep" * 20)
    environment = os.environ | {"LAKE_HOME": str(home), "LAKE_DEMO": "local", "LAKE_SPARK_UI_PORT": str(free_port())}

    def call(*targets: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["make", *targets], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
        )

    call.home = home
    call.environment = environment
    yield call
    call("clean")


def _reader(home: Path, statement: str) -> list[dict[str, int]]:
    done = subprocess.run(
        [ROOT / ".venv" / "bin" / "reader", "sql", statement, "--format", "json"],
        env=os.environ | {"LAKE_HOME": str(home)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    return json.loads(done.stdout)


def _get(address: str) -> str:
    """Return the answer of a server, also of one that failed."""
    try:
        with urllib.request.urlopen(address, timeout=180) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code}: {error.read().decode()}"


def assert_shown_by_the_readme(printed: str) -> None:
    """Check that the README shows the output of a start: same lines, tables and columns, with other numbers."""
    (block,) = blocks("README.md", "text")

    def said(text: str) -> list[str]:
        """Return lines of text, titles of tables and names of columns."""
        plain = [re.sub(r"Logs: .*", "Logs:", line) for line in text.splitlines() if not re.match(r"[│├┡└┏]", line)]
        cells = [cell.strip() for line in plain for cell in line.split("┃")]
        return [cell for cell in cells if cell and not re.match(r"and [\d,]+ more", cell)]

    shown = said(block)[1:]  # the first line says that there is no Docker engine: here, LAKE_DEMO is local
    assert len(shown) > 20
    assert [line for line in shown if line not in said(printed)] == []


@pytest.mark.all
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_demo_from_start_to_clean(make):
    start = make("start")
    assert start.returncode == 0, start.stdout + start.stderr
    assert "LAKE_DEMO is local" in start.stdout
    assert_shown_by_the_readme(start.stdout)
    assert "make duckdb" in start.stdout
    address = re.search(r"^The page of the lake, .*: (http://\S+)$", start.stdout, re.MULTILINE)[1]
    assert "bronze.events" in _get(address)

    again = make("start")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "already running" in again.stdout
    assert again.stdout.count("RUNNING") == 3

    page = make("spark")
    assert "The consumer's Spark UI: http://127.0.0.1:" in page.stdout, page.stdout + page.stderr

    address = re.search(r"http://\S+", page.stdout)[0] + "/api/v1/applications"
    (application,) = json.loads(_get(address))
    jobs = json.loads(_get(f"{address}/{application['id']}/jobs"))
    assert [job for job in jobs if re.fullmatch(r"bronze\.events: \d+ files, [\d,]+ bytes", job.get("description", ""))]

    stop = make("stop")
    assert stop.returncode == 0, stop.stdout + stop.stderr
    assert "Stopped" in stop.stdout
    assert "Nothing is running" in make("stop").stdout
    assert make("spark").returncode != 0

    rows = [
        {"n": 0},
        *_reader(make.home, "select count(*) n from bronze.events"),
        *_reader(make.home, "select count(*) n from dead_letters.events"),
    ]
    assert all(row["n"] > 0 for row in rows[1:])
    time.sleep(2)
    assert _reader(make.home, "select count(*) n from bronze.events") == [rows[1]]  # nothing is running

    later = make("start")
    assert later.returncode == 0, later.stdout + later.stderr
    assert re.search(r"Records: bronze\.events, since \d\d:\d\d:\d\d UTC", later.stdout)  # without earlier rows
    assert make("stop").returncode == 0

    clean = make("clean")
    assert clean.returncode == 0, clean.stdout + clean.stderr
    assert not make.home.exists()


@pytest.mark.long
@pytest.mark.spark
def test_the_demo_of_sensors_over_a_topic(make):
    make.environment["LAKE_KAFKA_BOOTSTRAP_SERVERS"] = f"127.0.0.1:{free_port()}"
    start = make("start", "SOURCE=kafka", "STREAM=sensors")
    assert start.returncode == 0, start.stdout + start.stderr
    assert "Starting a Kafka broker at 127.0.0.1" in start.stdout
    assert "bronze.sensors, from the topic sensors" in start.stdout
    stop = make("stop")
    assert stop.returncode == 0, stop.stdout + stop.stderr
    (found,) = _reader(make.home, "select count(*) n, count(*) filter (_source like 'sensors/%') k from bronze.sensors")
    assert found["n"] == found["k"] > 0
    assert make("clean").returncode == 0
    assert not make.home.exists()


@pytest.mark.long
@pytest.mark.spark
def test_the_demo_of_the_clickstream(make):
    make.environment["LAKE_KAFKA_BOOTSTRAP_SERVERS"] = f"127.0.0.1:{free_port()}"
    make.environment["LAKE_COLLECTOR_PORT"] = str(free_port())
    start = make("start", "STREAM=clickstream")
    assert start.returncode == 0, start.stdout + start.stderr
    assert "Started collector, producer and consumer" in start.stdout
    assert "bronze.clickstream, from the topic acme.clickstream.raw.events" in start.stdout
    stop = make("stop")
    assert stop.returncode == 0, stop.stdout + stop.stderr
    (found,) = _reader(make.home, "select count(*) n, count(correlation_id) c from silver.clickstream")
    assert found["n"] == found["c"] > 0


@pytest.mark.all
def test_a_source_that_cannot_be_used_is_refused(make):
    refused = make("start", "SOURCE=carrier-pigeon")
    assert refused.returncode != 0
    assert "expected kafka, got 'carrier-pigeon'" in refused.stderr
    refused = make("start", "STREAM=tides")
    assert refused.returncode != 0
    assert "expected events, sensors or clickstream, got 'tides'" in refused.stderr
    refused = make("start", "STREAM=clickstream", "SOURCE=files")
    assert refused.returncode != 0
    assert "SOURCE=files cannot be used with STREAM=clickstream" in refused.stderr
    make.environment["LAKE_KAFKA_BOOTSTRAP_SERVERS"] = "broker.invalid:9092"
    refused = make("start", "SOURCE=kafka")
    assert refused.returncode != 0
    assert "No Kafka broker listens at broker.invalid:9092" in refused.stderr


@pytest.mark.all
@pytest.mark.parametrize(
    ("properties", "arguments", "said"),
    [
        ({LANDING_ROOT: "file:///landing/events"}, ["SOURCE=kafka"], "were filled from files, not from Kafka"),
        ({KAFKA_TOPIC: '{"topic_id": "t", "start": "events/0=0"}'}, [], "were filled from Kafka, not from files"),
    ],
)
def test_another_source_for_the_tables_that_are_there_is_refused(make, properties, arguments, said):
    catalog = open_catalog(load_settings({}, {"LAKE_HOME": str(make.home)}))
    catalog.create_namespace_if_not_exists("ledger")
    catalog.create_table("ledger.events", Schema(), properties=properties)
    (make.home / "checkpoints").mkdir()
    refused = make("start", *arguments)
    assert refused.returncode != 0
    assert said in refused.stderr
    assert "make clean" in refused.stderr


def test_clean_refuses_a_folder_that_holds_something_else(make):
    make.home.mkdir(parents=True)
    (make.home / "thesis.tex").write_text("years of work")
    done = make("clean")
    assert done.returncode != 0
    assert "thesis.tex" in done.stderr
    assert (make.home / "thesis.tex").exists()
    (make.home / "thesis.tex").unlink()


@pytest.mark.all
def test_clean_removes_all_that_a_lake_and_the_modes_put_into_its_folder(make):
    settings = load_settings({}, {"LAKE_HOME": str(make.home)})
    groups = [settings, *(getattr(settings, name) for name in type(settings).model_fields)]
    values = [
        str(value).removeprefix("file://") for group in groups for _, value in getattr(group, "__dict__", {}).items()
    ]
    inside = {Path(value).relative_to(make.home).parts[0] for value in values if value.startswith(f"{make.home}/")}
    assert {"warehouse", "aside"} < inside
    for name in ("dedupe", "windows"):  # the folders of the sinks in docs/modes
        sink = yaml.safe_load((ROOT / "docs" / "modes" / f"{name}.yaml").read_text())["parquet"]
        inside.add(sink.removeprefix("target/lake/"))
    for name in (*inside, "modes"):
        (make.home / name).mkdir(parents=True)
    done = make("clean")
    assert done.returncode == 0, done.stderr
    assert not make.home.exists()


def test_what_does_not_run_is_said_in_one_line(make):
    assert "Nothing is running" in make("stop").stdout
    assert "make start" in make("producer-logs").stderr
    assert "make start" in make("spark").stderr
    assert "target/bin/minio" in make("minio").stdout
