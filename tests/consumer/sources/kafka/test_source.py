"""A topic as a source: what becomes of messages, and of what happens to a topic, its brokers and the checkpoint."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.lake import SessionOf, rows
from tests.lakes import changed
from tests.messages import event, send, send_in_transaction
from tests.servers import KafkaServer

from consumer.app import run_queries
from consumer.queries.bronze import BronzeQuery, Trigger
from lakeproof.checkpoint import checkpoint_folder
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Settings
from lakeproof.storage.local import local_path

pytestmark = pytest.mark.spark

Take = Callable[..., None]
Unit = tuple[str, int]


@pytest.fixture
def take(session_of: SessionOf, kafka: KafkaServer, lake_settings: Settings) -> Take:
    """Run the stream of events over all messages of a topic."""

    def run(topic: str, **variables: object) -> None:
        own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic, **variables}
        settings = changed(lake_settings, **own)
        query = BronzeQuery(settings, "events", Trigger(available_now=True), "kafka")
        run_queries(settings, [query], lambda: session_of(settings), available_now=True)

    return run


def units(settings: Settings, table: str) -> list[Unit]:
    return sorted((row["_source"], row["_position"]) for row in rows(settings, f"{table}.events"))


def ledger(settings: Settings) -> list[dict[str, Any]]:
    return sorted(rows(settings, "ledger.events"), key=lambda row: str(row["source"]))


def test_a_message_is_a_record_or_an_array_and_keeps_its_key_and_headers(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(1)], key=b"k\xff", headers=[("trace", b"\x00"), ("trace", None)])
    send(kafka, topic, [b"[%b, {}, %b]" % (event(2), event(3)), b"[]"], partition=1)
    take(topic)
    first, array = source_name(topic, 0, 0), source_name(topic, 1, 0)
    assert units(lake_settings, "bronze") == [(first, 0), (array, 0), (array, 2)]
    assert units(lake_settings, "dead_letters") == [(array, 1)]
    row = next(row for row in rows(lake_settings, "bronze.events") if row["_source"] == first)
    assert (row["_key"], row["event_id"]) == (b"k\xff", "e1")
    assert row["_headers"] == [{"key": "trace", "value": b"\x00"}, {"key": "trace", "value": None}]
    booked = [(row["source"], row["etag"], row["size"], row["units"], row["bronze"]) for row in ledger(lake_settings)]
    assert booked == [(first, "1", 1, 1, 1), (array, "2", 2, 3, 2)]


def test_what_is_no_record_is_a_dead_letter_with_its_bytes_key_and_headers(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic(max_message_bytes=20 << 20)
    garbage, large = b"\x00\xff{not json", event(1, user_id="x" * (10 << 20))
    send(kafka, topic, [garbage, b"", None, large], key=b"key", headers=[("h", b"v")], message_max_bytes=20 << 20)
    take(topic)
    letters = sorted(rows(lake_settings, "dead_letters.events"), key=lambda row: str(row["_source"]))
    found = [(row["reasons"][0]["code"], row["raw"], row["_key"], row["_headers"]) for row in letters]
    headers = [{"key": "h", "value": b"v"}]
    assert found == [
        ("corrupt_batch", garbage, b"key", headers),
        ("empty_batch", b"", b"key", headers),
        ("tombstone", None, b"key", headers),
    ]
    assert [len(row["user_id"]) for row in rows(lake_settings, "bronze.events")] == [10 << 20]


def test_only_committed_messages_are_read_and_gaps_are_skipped(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    send_in_transaction(kafka, topic, [event(1), event(2)], commit=False)
    send_in_transaction(kafka, topic, [event(3)], commit=True)
    take(topic)
    take(topic)
    send_in_transaction(kafka, topic, [event(4)], commit=False)
    take(topic)
    assert [row["event_id"] for row in rows(lake_settings, "bronze.events")] == ["e0", "e3"]
    assert sum(row["size"] for row in ledger(lake_settings)) == 8  # with those that hold no message


def test_it_resumes_after_a_lost_checkpoint_with_new_partitions(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(number) for number in range(5)])
    take(topic, LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=2)
    kafka.add_partitions(topic, 3)
    send(kafka, topic, [event(10)], partition=2)
    shutil.rmtree(local_path(checkpoint_folder(lake_settings, "bronze-events")))
    send(kafka, topic, [event(11)], partition=1)
    take(topic)
    kafka.add_partitions(topic, 4)
    send(kafka, topic, [event(12)], partition=3)
    take(topic)
    found = sorted(row["event_id"] for row in rows(lake_settings, "bronze.events"))
    assert found == sorted([f"e{number}" for number in range(5)] + ["e10", "e11", "e12"])
    assert len({row["micro_batch_id"] for row in ledger(lake_settings)}) >= 5
    assert json.loads(json.dumps([row["units"] for row in ledger(lake_settings)])) == [2, 2, 1, 1, 1, 1]
