"""The commands of docker-compose.yml's profile `cluster` run as processes, since there is no Docker engine here."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import typer
from dotenv import dotenv_values
from tests.chaos.processes import Process, wait_until
from tests.cluster import Master, Worker
from tests.pages import blocks
from tests.servers import ROOT, SPARK_JARS, Minio, PostgresServer, answers, free_port

from lakeproof.cluster import check_reachable, places_of
from lakeproof.errors import UsageError
from lakeproof.settings import VARIABLES, load_settings, settings_of
from lakeproof.storage import open_storage
from reader.connect import connect

Service = dict[str, Any]
LOADER = ROOT / "target" / "bin" / "compose-go"
PROFILE = ("postgres", "spark-master", "spark-worker", "consumer-cluster")
_PATIENCE = 600.0  # of a busy machine


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file as read by compose, with the variables of .env."""
    environment = os.environ | {name: value or "" for name, value in dotenv_values(ROOT / ".env").items()}
    done = subprocess.run(
        [LOADER, "-format", "json", "docker-compose.yml"], cwd=ROOT, env=environment, capture_output=True, check=True
    )
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Service]:
    return {name: service for name, service in compose["services"].items() if service.get("profiles") == ["cluster"]}


def test_the_profile_has_a_cluster_and_what_its_machines_share(services: dict[str, Service]) -> None:
    assert services.keys() == {*PROFILE}
    assert services["spark-worker"]["scale"] == 2
    driver = services["consumer-cluster"]
    for name in ("spark-master", "spark-worker"):
        assert services[name]["build"] == driver["build"]  # driver and executor share one image
        assert "volumes" not in services[name]
        own = {variable for variable in services[name]["environment"] if variable in VARIABLES}
        assert own <= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
        assert services[name]["configs"] == driver["configs"]


def test_the_page_starts_what_the_profile_has(compose: dict[str, Any], services: dict[str, Service]) -> None:
    (block,) = (each for each in blocks("docs/operations/cluster.md", "text") if "docker compose" in each)
    start, status = (line.split() for line in block.splitlines())
    assert start[:6] == ["docker", "compose", "--profile", "cluster", "up", "--detach"]
    assert {*start[6:]} <= compose["services"].keys() | services.keys()
    assert status[:4] == ["docker", "compose", "exec", start[-1]]


def test_its_settings_are_those_of_a_lake_that_all_of_them_reach(
    services: dict[str, Service], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in services["consumer-cluster"]["environment"].items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert check_reachable(settings, places_of(settings)) == "spark://spark-master:7077"
    assert (settings.catalog.warehouse, settings.home) == ("s3://warehouse/cluster", Path("/lake"))
    (path,) = (block for block in blocks("docs/operations/cluster.md", "sh") if "export LAKE_EXECUTORS" in block)
    changed = {line.split("=")[0].removeprefix("export ") for line in path.splitlines() if line.startswith("export")}
    assert changed <= services["consumer-cluster"]["environment"].keys()


def test_every_variable_of_ours_is_a_setting(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, service in compose["services"].items():
        ours = {variable for variable in service.get("environment") or {} if variable.startswith("LAKE_")}
        assert ours <= VARIABLES, name
    monkeypatch.setenv("LAKE_SPARK_MASTR", "spark://spark-master:7077")
    with pytest.raises(UsageError, match="is not a setting") as refused:
        load_settings()
    assert "LAKE_SPARK_MASTER" in refused.value.hint


def _is_consumer(service: Service) -> bool:
    return (service.get("command") or [])[:2] == ["consumer", "run"]


def test_what_runs_forever_returns_with_the_machine(compose: dict[str, Any]) -> None:
    """Programs exit with 0 on SIGTERM, also when the Docker daemon stops: `on-failure` would leave them stopped."""
    ends = {"buckets": None, "topic": "on-failure", "duckdb": "no"}
    for name, service in compose["services"].items():
        assert service.get("restart") == ends.get(name, "unless-stopped"), name


def test_workers_remove_the_folders_of_ended_applications(compose: dict[str, Any]) -> None:
    """Each start of a consumer leaves its jars on each worker."""
    properties = dict(line.partition(" ")[::2] for line in compose["configs"]["spark"]["content"].splitlines())
    assert properties["spark.worker.cleanup.enabled"] == "true"
    assert int(properties["spark.worker.cleanup.appDataTtl"]) < 7 * 86_400


def test_each_consumer_is_healthy_once_it_is_ready(compose: dict[str, Any]) -> None:
    consumers = {name: service for name, service in compose["services"].items() if _is_consumer(service)}
    assert consumers.keys() == {"consumer", "consumer-sensors", "consumer-clickstream", "consumer-cluster"}
    for name, service in consumers.items():
        port = service["environment"]["LAKE_METRICS"].rpartition(":")[2]
        assert f"http://localhost:{port}/readyz" in service["healthcheck"]["test"][-1], name


def test_the_producer_is_checked_soon(compose: dict[str, Any]) -> None:
    """`docker compose up --wait` waits for the first check."""
    check = compose["services"]["producer"]["healthcheck"]
    assert check["start_interval"] == "5s"
    assert check["start_period"]


def test_its_commands_are_those_that_the_tests_of_a_cluster_run(services: dict[str, Service]) -> None:
    from consumer.cli import app

    for name, server in (("spark-master", Master), ("spark-worker", Worker)):
        program, main, *arguments = services[name]["command"]
        assert program == "spark-class"
        assert main == f"org.apache.spark.deploy.{server.__name__.lower()}.{server.__name__}"
        assert {option for option in arguments if option.startswith("--")} <= {
            *("--host", "--port", "--webui-port", "--cores", "--memory", "--work-dir")
        }
    _, command, *arguments = services["consumer-cluster"]["command"]
    parser = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    parser.make_context(command, list(arguments))


@pytest.fixture
def running(
    compose: dict[str, Any], minio: Minio, bucket: str, postgres: PostgresServer, tmp_path: Path
) -> Iterator[tuple[Process, dict[str, str]]]:
    """The profile's consumer with a master and two workers; and its environment."""
    master, page, metrics = free_port(), free_port(), free_port()
    database = postgres.new_database("secret-of-postgres")
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "spark-defaults.conf").write_text(compose["configs"]["spark"]["content"])
    password = compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"]
    here = {
        f"postgresql://lake:{password}@postgres/lake": database,
        "http://minio:9000": minio.endpoint_url,
        "s3://": f"s3://{bucket}/",
        "spark-master:7077": f"127.0.0.1:{master}",
        "--host spark-master --port 7077 --webui-port 8080": f"--host 127.0.0.1 --port {master} --webui-port {page}",
        "0.0.0.0:9108": f"127.0.0.1:{metrics}",
        "localhost:9108": f"127.0.0.1:{metrics}",
        "localhost:8080": f"127.0.0.1:{page}",
        "/etc/spark": str(tmp_path / "spark"),
        "/lake": str(tmp_path / "lake"),
        "/app/.venv/bin/python": sys.executable,
    }
    image = {"JAVA_HOME": os.environ.get("JAVA_HOME", ""), "LAKE_JARS": str(SPARK_JARS), "LAKE_SPARK_UI_PORT": "0"}
    image |= {"LAKE_CONTRACTS": str(ROOT / "contracts"), "LAKE_GOLD": str(ROOT / "gold"), "HOME": str(tmp_path)}
    keys = {"AWS_ACCESS_KEY_ID": minio.access_key, "AWS_SECRET_ACCESS_KEY": minio.secret_key}

    def started(name: str, number: int = 0) -> tuple[Process, dict[str, str]]:
        service = compose["services"][name]
        text = json.dumps({"command": shlex.join(service["command"]), "environment": service["environment"]})
        for there, replacement in here.items():
            text = text.replace(there, replacement)
        found = json.loads(text)
        environment = {key: value for key, value in found["environment"].items() if key != "SPARK_LOCAL_IP"}
        environment |= {key: value for key, value in keys.items() if key in environment}
        environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
        if name == "consumer-cluster":
            environment |= image
        command = shlex.split(found["command"])
        if name == "spark-worker":  # the other worker here already uses the port of its page
            command[-1:-1] = ["--webui-port", "0"]
        return Process(command, environment, tmp_path / f"{name}-{number}.log"), environment

    with ExitStack() as stack:
        first, _ = started("spark-master")
        stack.callback(first.end_all)
        assert wait_until(lambda: answers(f"http://127.0.0.1:{page}/json/"), _PATIENCE, 0.5), first.text()
        for number in range(2):
            stack.callback(started("spark-worker", number)[0].end_all)
        consumer, environment = started("consumer-cluster")
        stack.callback(consumer.end_all)
        yield consumer, environment


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.s3
def test_its_processes_run_a_stream(
    running: tuple[Process, dict[str, str]], compose: dict[str, Any], minio: Minio
) -> None:
    consumer, environment = running
    settings = settings_of(environment)
    records = [
        {
            "event_id": str(number),
            "user_id": "u",
            "event_timestamp": "2026-11-21T06:00:00Z",
            "event_type": "page_view",
            "properties": {},
        }
        for number in range(1_000)
    ]
    open_storage(settings.landing.uri, settings.s3).write_new(
        f"{settings.landing.uri}/events/a.json", json.dumps(records).encode()
    )

    def has_them() -> bool:
        if not consumer.said("silver micro-batch"):
            return False
        with connect(settings) as session:
            (found,) = session.sql("SELECT count(*) FROM silver.events").fetchall()
        return bool(found[0] == 1_000)

    assert wait_until(lambda: has_them() or not consumer.alive, _PATIENCE, 0.5), consumer.text()
    assert consumer.alive, consumer.text()
    with urlopen(f"http://{settings.monitor.metrics}/readyz", timeout=10) as answer:
        assert answer.status == 200
    (executors,) = consumer.said("executors")
    assert executors.values["found"] == 2
    assert minio.secret_key not in consumer.text()
