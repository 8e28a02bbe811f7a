"""A real collector accepts each batch as a post, and the report matches the topic."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest
from tests.answers import answering
from tests.collector.conftest import own_topics
from tests.collector.running import Collector, at, messages
from tests.producer.conftest import CONTRACTS
from tests.servers import KafkaServer, free_port
from typer.testing import CliRunner, Result

from collector.keys import new_key
from lakeproof.contracts import load_contract
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.judge.batch import Judge
from producer.cli import app
from producer.sinks import http

ARGUMENTS = ["--seed", "5", "--start", "2026-11-01T00:00:00Z"]
FAULTS = [
    argument
    for fault in ("corruption", "invalid-schema", "extra-field", "duplicate")
    for argument in (f"--{fault}-chance", "0.2")
]


@pytest.fixture(scope="module")
def running(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("collector"), own_topics(kafka)) as collector:
        yield collector.ready()


@pytest.fixture
def produce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKE_CONTRACTS", str(CONTRACTS))

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, ["clickstream", *ARGUMENTS, *map(str, arguments)])

    return run


def url(collector: Collector) -> str:
    return f"http://127.0.0.1:{collector.port}/collect"


def test_the_topic_has_what_the_report_says(produce: Any, running: Collector, tmp_path: Path) -> None:
    report, receipts = tmp_path / "report.json", tmp_path / "receipts.jsonl"
    result = produce(*FAULTS, "--batches", 30, "--target", url(running), "--report", report, "--receipts", receipts)
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text())
    landed = messages(running.settings["LAKE_KAFKA_BOOTSTRAP_SERVERS"], running.settings["LAKE_COLLECTOR_TOPIC"])
    judge = Judge(load_contract(CONTRACTS, "clickstream"))
    bronze, dead = 0, Counter[str]()
    for message in landed:
        for judged in judge.judge(message.value):
            bronze += len(judged.good)
            dead.update("+".join(sorted({each["code"] for each in unit})) for unit in judged.bad.reasons.to_pylist())
    assert {"bronze": bronze, "dead_letters": dict(sorted(dead.items()))} == found["expected"]
    assert "corrupt_batch" not in dead
    assert found["http"] == {"posts": found["batches"], "repeated": 0, "refused": 30 - found["batches"]}
    assert 0 < found["http"]["refused"] < 30
    answers = [json.loads(line)["receipts"] for line in receipts.read_text().splitlines()]
    places = [(each["partition"], each["offset"]) for answer in answers for each in answer]
    assert len(places) == found["events"] == len({*places})
    assert {*places} == at(landed).keys()


@pytest.mark.all
def test_a_collector_that_comes_later_gets_every_post(produce: Any, kafka: KafkaServer, tmp_path: Path) -> None:
    port = free_port()
    report = tmp_path / "report.json"
    started: list[Collector] = []
    settings = own_topics(kafka) | {"LAKE_COLLECTOR_PORT": str(port)}
    timer = Timer(1, lambda: started.append(Collector(tmp_path / "collector", settings)))
    timer.start()
    try:
        result = produce("--batches", 2, "--target", f"http://127.0.0.1:{port}/collect", "--report", report)
    finally:
        timer.join()
        for collector in started:
            collector.__exit__()
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text())["http"]
    assert (found["posts"], found["refused"]) == (2, 0)
    assert found["repeated"] > 0


def test_what_cannot_be_posted_is_said_plainly(
    produce: Any, running: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http, "_PATIENCE_SECONDS", 0.5)
    cases: list[tuple[list[object], type[Exception], str]] = [
        (["--target", f"http://127.0.0.1:{free_port()}/collect?key=SECRET"], UnavailableError, "Connection refused"),
        (["--target", url(running).replace("/collect", "/nothing")], UsageError, "status 404: Not Found"),
        (["--target", url(running), "--batch-size", 1001], UsageError, "status 413: "),
        (["--data-sink", "http", "--target", "folder"], UsageError, "does not match --target folder"),
        (["--data-sink", "stdout", "--receipts", "r"], UsageError, "--receipts is for --data-sink http."),
        (["--target", url(running), "--receipts", tmp_path / "none" / "r"], UsageError, "No such file or directory"),
    ]
    for arguments, kind, said in cases:
        error = produce("--batches", 1, *arguments).exception
        assert isinstance(error, kind), arguments
        assert said in f"{error.message} {error.hint}"
        assert "SECRET" not in error.message


def test_the_key_is_in_no_command_line(
    produce: Any, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, key = tmp_path / "keys", new_key("shop")
    file.write_text(f"{key.line}\n")
    with Collector(tmp_path, own_topics(kafka) | {"LAKE_COLLECTOR_KEYS": str(file)}) as collector:
        arguments = ["--batches", 1, "--target", url(collector.ready())]
        error = produce(*arguments).exception
        assert isinstance(error, UsageError)
        assert "LAKE_PRODUCER_KEY" in str(error.hint)
        monkeypatch.setenv("LAKE_PRODUCER_KEY", key.key)
        assert produce(*arguments).exit_code == 0


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (200, UsageError, "answers 200, and is no collector"),
        (502, UnavailableError, "does not accept events: Bad Gateway."),
        (521, UsageError, "refused a post with status 521"),
    ],
)
def test_a_proxy_that_answers_in_place_of_the_collector(
    produce: Any, monkeypatch: pytest.MonkeyPatch, status: int, kind: type[Exception], said: str
) -> None:
    monkeypatch.setattr(http, "_PATIENCE_SECONDS", 0.5)
    with answering(status, b"<html>Log in</html>") as uri:
        error = produce("--batches", 1, "--target", f"{uri}/collect").exception
    assert isinstance(error, kind), error
    assert said in error.message
    assert error.hint


@contextmanager
def busy(*statuses: int) -> Iterator[tuple[str, list[float]]]:
    """Answer with these statuses, and always the last one; seconds after the first post, signal the producer.

    Yield the address, and a list of the times of posts.
    """
    posts: list[float] = []

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if not posts:
                # It waits by then, also on a busy machine: one that does not wait yet posts no second time.
                Timer(2.0, os.kill, [os.getpid(), signal.SIGTERM]).start()
            posts.append(time.monotonic())
            self.send_response(statuses[min(len(posts), len(statuses)) - 1])
            self.send_header("Retry-After", "1800" if len(posts) == 1 else "1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/collect", posts
        server.shutdown()


def test_a_signal_ends_the_retries_soon_and_the_report_is_written(
    produce: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http, "_PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr(http, "_LAST_SECONDS", 1.5)
    report = tmp_path / "report.json"
    with busy(503) as (uri, posts):
        error = produce("--target", uri, "--report", report).exception
    assert isinstance(error, UnavailableError)
    assert 2 <= len(posts) <= 3
    assert posts[-1] - posts[0] < 300
    found = json.loads(report.read_text())
    assert (found["batches"], found["http"]) == (0, {"posts": 0, "repeated": len(posts) - 1, "refused": 0})


@pytest.mark.all
def test_what_is_accepted_after_a_signal_counts(produce: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http, "_PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr(http, "_LAST_SECONDS", 120.0)
    report = tmp_path / "report.json"
    with busy(429, 503, 202) as (uri, posts):
        result = produce("--target", uri, "--report", report)
    assert result.exit_code == 0, result.output
    assert len(posts) == 3
    assert posts[-1] - posts[0] < 300
    found = json.loads(report.read_text())
    assert (found["batches"], found["http"]) == (1, {"posts": 1, "repeated": 2, "refused": 0})
    assert "Stopped on request: 1 batches" in result.output


def test_other_streams_are_not_for_the_collector(produce: Any, running: Collector) -> None:
    error = CliRunner().invoke(app, ["events", "--batches", "1", "--target", url(running)]).exception
    assert isinstance(error, UsageError)
    assert error.hint == "Use `producer clickstream`."
