"""The consumer as a process that reads a topic: its options, brokers that fail and return, and its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.chaos.processes import wait_until
from tests.consumer.lake import SessionOf, rows
from tests.lakes import changed
from tests.messages import event, send
from tests.programs import forked
from tests.servers import PATIENCE, KafkaServer

from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings

COMMAND = [sys.executable, "-m", "consumer", "run", "events", "--data-source", "kafka"]


def environment(settings: Settings, **changes: str) -> dict[str, str]:
    own = {"LAKE_HOME": settings.home, "LAKE_CONTRACTS": settings.contracts, "LAKE_JARS": settings.spark.jars}
    return os.environ | {name: str(value) for name, value in own.items()} | {"LAKE_SPARK_UI_PORT": "0"} | changes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["events", "--topic", "t"], ["--topic is only for Kafka", "--data-source kafka"]),
        (["events", "sensors", "--data-source", "kafka", "--topic", "t"], ["cannot fill 2 streams", "Leave out"]),
        (["events", "--data-source", "kafka"], ["LAKE_KAFKA_STARTING_OFFSETS", "2026-11-22T06:00:00Z"]),
        (["events", "--to", "lead"], ["--to: expected one of bronze, silver, gold, got 'lead'", "add --from"]),
        (["events", "--from", "2026-01-01T00:00:00Z", "--to", "gold"], ["--from is only for Kafka"]),
    ],
)
def test_wrong_options_are_refused_with_what_to_do(
    lake_settings: Settings, arguments: list[str], words: list[str]
) -> None:
    changes = {"LAKE_KAFKA_STARTING_OFFSETS": "yesterday"} if "LAKE_KAFKA_STARTING_OFFSETS" in words else {}
    command = [*forked("consumer"), "run", *arguments]
    done = subprocess.run(
        command, env=environment(lake_settings, **changes), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.all
@pytest.mark.spark
def test_a_stream_outlives_its_broker_and_ends_on_a_signal(
    kafka: KafkaServer, lake_settings: Settings, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    own = {**kafka.login, "LAKE_KAFKA_TIMEOUT_SECONDS": "300"}  # the broker may take as long to start
    output = tmp_path / "output"
    with output.open("wb") as sink:
        running = subprocess.Popen(
            [*COMMAND, "--topic", topic], env=environment(lake_settings, **own), stdout=sink, stderr=sink
        )
        try:
            wait(lambda: output.read_text().count('"micro-batch"') == 1, running, output)
            kafka.kill()
            time.sleep(4)
            kafka.start()
            send(kafka, topic, [event(1), b"garbage"])
            wait(lambda: output.read_text().count('"micro-batch"') == 2, running, output)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0, output.read_text()
        finally:
            running.kill()
            running.wait()
    assert sorted(row["event_id"] for row in rows(lake_settings, "bronze.events")) == ["e0", "e1"]
    assert [row["raw"] for row in rows(lake_settings, "dead_letters.events")] == [b"garbage"]
    assert (lake_settings.logs / "spark.log").read_text()
    everything = [output, *(path for path in lake_settings.home.rglob("*") if path.is_file())]
    assert not [path for path in everything if kafka.password.encode() in path.read_bytes()]


@pytest.mark.all
@pytest.mark.spark
def test_a_topic_that_is_deleted_while_it_runs_is_named(
    kafka: KafkaServer, lake_settings: Settings, session_of: SessionOf
) -> None:
    """In this process: only the run is of interest, and a start of the program takes long."""
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TIMEOUT_SECONDS": 20}
    settings = changed(lake_settings, **own, LAKE_KAFKA_TOPIC=topic)
    query = BronzeQuery(settings, "events", Trigger(), "kafka")

    def delete() -> None:
        assert wait_until(lambda: bool(query.micro_batches), PATIENCE)
        kafka.delete_topic(topic)

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete)
        with pytest.raises(UnavailableError, match=f"has no topic {topic}") as caught:
            run_queries(settings, [query], lambda: session_of(settings), available_now=False)
        deleting.result()
    assert caught.value.exit_code == 3
    assert "Create the topic" in caught.value.hint


def wait(until: Callable[[], bool], running: "subprocess.Popen[bytes]", output: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert running.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.2)
