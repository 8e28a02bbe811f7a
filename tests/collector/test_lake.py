"""Each event answered with 202 is in bronze and silver once, while broker, collector and consumer are killed."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.collector.running import Collector, event, wait_for
from tests.consumer.lake import rows
from tests.lakes import changed, variables
from tests.servers import KafkaServer

from lakeproof.settings import Settings

_EVENTS = 5


@dataclass
class Load:
    """Clients that repeat each post with the same idempotency key until it is accepted."""

    collector: Collector
    stop: Event = field(default_factory=Event)
    accepted: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    repeated: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def client(self) -> None:
        while not self.stop.is_set():
            self.post(next(self.numbers) * _EVENTS)

    def post(self, first: int) -> None:
        # The last event of a post has no page, which breaks its contract.
        events = [event(first + index) for index in range(_EVENTS)]
        events[-1]["event"] = {"timestamp": "2026-11-01T00:00:00Z"}
        key = f"post-{first}"
        # Sometimes the first answer is lost.
        due = 2 if first % 50 == 0 else 1
        while due:
            try:
                answer = self.collector.post(events, idempotency_key=key)
            except (OSError, HTTPException):  # the collector is not running, or was killed during the request
                answer = None
            due -= answer is not None and answer.status == 202
            if due:
                self.repeated += 1
                time.sleep(0.05)
        assert answer
        self.accepted[first] = answer.json["receipts"]

    def progress(self) -> None:
        """Wait until more posts are accepted."""
        before = len(self.accepted)
        wait_for(lambda: len(self.accepted) > before + 20)


class Consumer:
    """A consumer of the clickstream as a process."""

    def __init__(self, folder: Path, environment: dict[str, str], *options: str) -> None:
        self.log = folder / f"consumer-{time.monotonic_ns()}"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "consumer", "run", "clickstream", "--data-source", "kafka", *options],
                env=os.environ | environment,
                stdout=output,
                stderr=output,
            )

    def has_taken_something(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return '"silver micro-batch"' in self.log.read_text()

    def end(self, number: int | None = None) -> int:
        if number:
            self.process.send_signal(number)
        return self.process.wait(300)


@pytest.mark.long
@pytest.mark.spark
def test_each_receipt_is_kept_whatever_is_killed(
    start_collector: Any, kafka: KafkaServer, lake_settings: Settings, tmp_path: Path
) -> None:
    running: Collector = start_collector(collector_deadline_seconds=3, collector_ready_seconds=2).ready()
    topic = running.settings["LAKE_COLLECTOR_TOPIC"]
    settings = changed(
        lake_settings,
        LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        LAKE_KAFKA_TOPIC=topic,
        LAKE_GOLD=str(tmp_path / "gold"),
        LAKE_SPARK_UI_PORT=0,
    )
    environment = {name: str(value) for name, value in variables(settings).items()}
    load = Load(running)
    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(load.client) for _ in range(4)]
        try:
            load.progress()
            consumer = Consumer(tmp_path, environment)
            try:
                wait_for(consumer.has_taken_something, 300)
                kafka.kill()
                kafka.start()
                load.progress()
                running.end(signal.SIGKILL)
                running.start()
                load.progress()
            finally:
                consumer.end(signal.SIGKILL)
            load.progress()
        finally:
            load.stop.set()
        for client in clients:
            client.result()
    last = Consumer(tmp_path, environment, "--available-now")
    assert last.end() == 0, last.log.read_text()

    receipts = tmp_path / "receipts.jsonl"
    receipts.write_text("".join(json.dumps({"receipts": answer}) + "\n" for answer in load.accepted.values()))
    command = [sys.executable, "-m", "reader", "verify", "clickstream", "--receipts", str(receipts), "--values"]
    done = subprocess.run(
        [*command, "--format", "json"], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    (stream,) = report["streams"]
    accepted = len(load.accepted)
    outcomes = {name: count for name, count in stream["receipts"]["outcomes"].items() if count}
    assert outcomes.pop("dead letter") == accepted
    assert outcomes["kept"] + outcomes.get("duplicate", 0) == sum(outcomes.values()) == accepted * (_EVENTS - 1)

    silver = [row["id"] for row in rows(settings, "silver.clickstream")]
    assert len(silver) == len(set(silver))
    due = {first + index for first in load.accepted for index in range(_EVENTS - 1)}
    assert due <= set(silver)
    # Posts were repeated, and their duplicates are only in bronze.
    assert load.repeated
    assert stream["silver"]["verdicts"]["duplicates"] > 0
    assert stream["silver"]["verdicts"]["conflicts"] == stream["silver"]["verdicts"]["late"] == 0
