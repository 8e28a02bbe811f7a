"""On a real broker, each event is a message with its ID as the key, and the report matches the topic."""

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka import Message
from tests.messages import received
from tests.servers import KafkaServer, free_port

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.kafka import create, sending
from lakeproof.kafka.sending import SendingError

ARGUMENTS = ["--seed", 5, "--start", "2026-01-31T23:59:00Z", "--batches", 40, "--batch-size", 25]
FAULTS = [
    argument
    for fault in ("corruption", "invalid-schema", "extra-field", "duplicate")
    for argument in (f"--{fault}-chance", 0.2)
]


@pytest.fixture(autouse=True)
def _brokers(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)


def value_of(message: Message) -> bytes:
    return message.value() or b""


def test_a_topic_has_what_files_have(produce: Any, recount: Any, kafka: KafkaServer, tmp_path: Path) -> None:
    topic, report = kafka.new_topic(3), tmp_path / "report.json"
    result = produce(*ARGUMENTS, *FAULTS, "--data-sink", "kafka", "--topic", topic, "--report", report)
    assert result.exit_code == 0, result.output
    produce(*ARGUMENTS, *FAULTS, "--target", tmp_path / "landing", "--report", tmp_path / "files.json")
    found, files = json.loads(report.read_bytes()), json.loads((tmp_path / "files.json").read_bytes())
    landed = received(kafka, topic)

    # The same seed makes the same events for every target, and a recount of the topic agrees.
    assert {name: found[name] for name in files if name != "bytes"} == {
        name: files[name] for name in files if name != "bytes"
    }
    assert recount([value_of(message) for message in landed]) == found["expected"]
    assert found["bytes"] == sum(len(value_of(message)) for message in landed)
    assert found["kafka"]["messages"] == len(landed)
    assert found["kafka"]["partitions"] == {
        str(partition): {
            "first": f"{topic}/{partition}/{min(offsets):019}",
            "last": f"{topic}/{partition}/{max(offsets):019}",
        }
        for partition in range(3)
        if (offsets := [message.offset() or 0 for message in landed if message.partition() == partition])
    }
    partitions: dict[bytes, set[int | None]] = {}
    keyless = 0
    for message in landed:
        try:
            event_id = json.loads(value_of(message)).get("event_id")
        except ValueError:
            event_id = None
        assert message.key() == (event_id.encode() if isinstance(event_id, str) and event_id else None)
        keyless += message.key() is None
        if key := message.key():
            partitions.setdefault(key if isinstance(key, bytes) else key.encode(), set()).add(message.partition())
    assert keyless > found["corrupt_batches"] > 0  # IDs that are missing or not text count, too
    assert all(len(places) == 1 for places in partitions.values())  # copies of an event stay in order
    assert len(partitions) < len(landed) - keyless


def test_a_missing_topic_is_created_and_said(produce: Any, kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    kafka.delete_topic(topic)
    for created in (["topic created"], []):
        with structlog.testing.capture_logs() as logs:
            assert produce("--batches", 2, "--data-sink", "kafka", "--topic", topic).exit_code == 0
        assert [line["event"] for line in logs if line.get("topic") == topic] == created
    assert len(received(kafka, topic)) == 400


@pytest.mark.all
def test_a_batch_may_be_larger_than_the_queue(
    produce: Any, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sending._OPTIONS, "queue.buffering.max.messages", 50)
    topic = kafka.new_topic()
    result = produce("--batches", 2, "--batch-size", 2_000, "--data-sink", "kafka", "--topic", topic)
    assert result.exit_code == 0
    assert len(received(kafka, topic)) == 4_000


@pytest.mark.all
def test_what_cannot_be_sent_is_said_plainly(
    produce: Any, kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Messages that are too large are rejected: part of the batch is in the topic, and the report has the number.
    topic, report = kafka.new_topic(max_message_bytes=1_500), tmp_path / "report.json"
    small = ["--batches", 3, "--batch-size", 3, "--data-sink", "kafka", "--topic", topic, "--report", report]
    assert produce(*small).exit_code == 0
    assert len(received(kafka, topic)) == 9
    topic = kafka.new_topic(max_message_bytes=100)
    result = produce(*small[:-3], topic, *small[-2:])
    assert isinstance(result.exception, SendingError)
    assert result.exception.exit_code == 2
    assert "max.message.bytes" in result.exception.hint
    found = json.loads(report.read_bytes())
    assert (found["batches"], found["kafka"]["messages"]) == (0, 0)
    assert found["kafka"]["unfinished"] == {"acknowledged": 0, "in_doubt": 3}

    result = produce("--batches", 1, "--data-sink", "kafka", "--topic", "no/topic")
    assert isinstance(result.exception, UsageError)
    assert "no/topic" in result.exception.message
    for wrong in (["--data-sink", "kafka", "--target", "x"], ["--topic", "t"], ["--topic", "t", "--data-sink", "s3"]):
        assert isinstance(produce("--batches", 1, *wrong).exception, UsageError)

    monkeypatch.setattr(create, "_PATIENCE_SECONDS", 2.0)
    monkeypatch.setenv("LAKE_KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:{free_port()}")
    result = produce("--batches", 1, "--data-sink", "kafka")
    assert isinstance(result.exception, UnavailableError)
    assert "does not respond" in result.exception.message
    # The broker has to answer in this time.
    monkeypatch.setattr(create, "_PATIENCE_SECONDS", 15.0)
    for name, value in (kafka.login | {"LAKE_KAFKA_SASL_PASSWORD": "wrong"}).items():
        monkeypatch.setenv(name, value)
    result = produce("--batches", 1, "--data-sink", "kafka")
    assert isinstance(result.exception, UnavailableError)
    assert "refused the login of lake" in result.exception.message
