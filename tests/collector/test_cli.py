"""The command line: exit codes, and errors of one line with a hint."""

import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.collector.conftest import own_topics
from tests.collector.running import Collector, wait_for
from tests.logs import failure
from tests.programs import forked
from tests.selection import only_with_all
from tests.servers import KafkaServer, free_port
from typer.testing import CliRunner

from collector.cli import app
from lakeproof.errors import UnavailableError
from lakeproof.kafka import create

ROOT = Path(__file__).parents[2]


def run(folder: Path, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    own = {f"LAKE_{name.upper()}": value for name, value in settings.items()}
    return subprocess.run(
        [*forked("collector"), *arguments],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_told(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    if "run" in done.args:
        failed = failure(done.stderr)
        assert failed["hint"]
        assert all(word in failed["message"] for word in words), failed
        return
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith("Error: ")
    assert hint.startswith("  ")
    assert all(word in error for word in words), error


def test_a_new_key_fits_the_file(tmp_path: Path) -> None:
    done = run(tmp_path, "new-key", "shop")
    assert done.returncode == 0
    assert re.fullmatch(r"key:  [\w-]{43}\nline: shop [0-9a-f]{64}\n", done.stdout)
    assert_told(run(tmp_path, "new-key", "the shop"), 2, "'the shop' is not the name of a client")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("collector_port", "99999", "LAKE_COLLECTOR_PORT"),
        ("collector_topic", "a b", "LAKE_COLLECTOR_TOPIC: 'a b' is not the name of a Kafka topic"),
        ("collector_origins", "shop.example", "LAKE_COLLECTOR_ORIGINS: 'shop.example' is not an origin"),
        ("collector_keys", "missing", "Cannot read the file of API keys"),
        ("collector_probe_topic", "acme.clickstream.raw.events", "LAKE_COLLECTOR_PROBE_TOPIC: expected another topic"),
        ("collector_max_events", "0", "LAKE_COLLECTOR_MAX_EVENTS"),
        ("topic_cleanup", "both", "LAKE_TOPIC_CLEANUP"),
        ("kafka_ssl_ca", "missing.pem", "LAKE_KAFKA_SSL_CA: the file missing.pem does not exist"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told(tmp_path: Path, name: str, value: str, words: str) -> None:
    own = {"collector_port": "0", "kafka_security_protocol": "SSL", name: value}
    assert_told(run(tmp_path, "run", **own), 2, words)


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert_told(run(tmp_path, "run", collector_port=port), 3, f"Cannot listen on 127.0.0.1:{port}")
    assert_told(run(tmp_path, "run", collector_host="192.0.2.1"), 3, "Cannot listen on 192.0.2.1:8080")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, only_with_all(signal.SIGINT), pytest.param(signal.SIGHUP, marks=pytest.mark.long)]
)
def test_a_signal_ends_it_with_exit_code_0(start_collector: Any, number: int) -> None:
    running: Collector = start_collector().ready()
    assert running.end(number) == 0
    assert "Traceback" not in running.log.read_text()


def test_a_second_signal_ends_it_at_once(start_collector: Any) -> None:
    running: Collector = start_collector(collector_body_seconds=300).ready()
    with socket.create_connection(("127.0.0.1", running.port)) as half:
        half.sendall(b"POST /collect HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n[")
        wait_for(lambda: running.holds(1))
        running.process.terminate()
        wait_for(running.refuses)  # once it has handled the signal
        assert running.process.poll() is None
        assert running.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_topics_are_created_once_and_differences_are_printed(kafka: KafkaServer, tmp_path: Path) -> None:
    own = {name.removeprefix("LAKE_").lower(): value for name, value in own_topics(kafka).items()}
    for _ in range(2):
        done = run(tmp_path, "topics", **own)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = run(tmp_path, "topics", **own | {"topic_partitions": "4", "topic_retention_hours": "1"})
    topic = own["collector_topic"]
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{topic}: partitions: expected 4, found 3",
        f"{topic}: retention.ms: expected 3600000, found 604800000",
    ]


@pytest.mark.all
def test_topics_that_kafka_refuses_end_the_collector(kafka: KafkaServer, tmp_path: Path) -> None:
    own = {name.removeprefix("LAKE_").lower(): value for name, value in own_topics(kafka).items()}
    for command in ("topics", "run"):
        done = run(tmp_path, command, **own | {"topic_replication": "3", "collector_port": "0"})
        assert_told(done, 2, f"Kafka refuses to create the topic {own['collector_topic']}", "eplication")


def test_brokers_that_do_not_answer_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "_PATIENCE_SECONDS", 0.3)
    nobody = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}
    error = CliRunner().invoke(app, ["topics"], env=nobody).exception
    assert isinstance(error, UnavailableError)
    assert error.message.startswith("Kafka does not answer")
    assert (error.exit_code, bool(error.hint)) == (3, True)
