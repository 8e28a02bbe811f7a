"""A topic shows exactly the rows of the lake, whatever happens to either; duplicates have the same id."""

import json
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka import Message
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf, rows
from tests.consumer.layers.gold.lakes import FINAL, NOON, SLIDING, SPENDING, Silver, fill, order, write_product
from tests.consumer.layers.gold.model import Spec
from tests.consumer.layers.gold.test_aggregate import some
from tests.consumer.layers.silver.lakes import NOON as MORNING
from tests.consumer.layers.silver.lakes import land
from tests.consumer.taking import layer_queries, take_all
from tests.lakes import changed
from tests.messages import received
from tests.operations import tables
from tests.operations.pieces import Piece, back_up, lose, restore
from tests.servers import KafkaServer, free_port

from consumer.app.repair import resend
from consumer.iceberg.append import open_table
from consumer.layers.sinks import changes
from consumer.layers.sinks import topic as sink
from consumer.layers.sinks.changes import Followed, gold_followed, silver_followed
from consumer.layers.sinks.topic import TopicSink, sink_name
from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka import create
from lakeproof.settings import Settings
from lakeproof.state.lease import lease
from lakeproof.state.sink_positions import sink_lease

pytestmark = pytest.mark.spark

HOUR = timedelta(hours=1)


def gold(settings: Settings, spec: Spec) -> Followed:
    return gold_followed(write_product(settings, spec.text), load_contract(settings.contracts, "orders"))


def send_all(spark: SparkSession, settings: Settings, followed: Followed, topic: str) -> int:
    """Let a sink send all pending rows; return the number of micro-batches that it sent."""
    return take_all(spark, settings, TopicSink(settings, followed, topic))


def headers(message: Message) -> dict[str, bytes]:
    return dict(message.headers() or [])  # type: ignore[arg-type]


def ids(messages: list[Message]) -> Counter[bytes]:
    return Counter(headers(message)["lakeproof-id"] for message in messages)


def shown(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the newest message of each key."""
    newest = {message.key(): json.loads(message.value() or b"") for message in messages}
    return sorted(newest.values(), key=str)


def as_json(found: list[dict[str, Any]], columns: list[str]) -> list[dict[str, Any]]:
    """Return the rows of a table in the form of messages."""

    def text(value: Any) -> Any:
        if hasattr(value, "isoformat"):
            return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return float(value) if hasattr(value, "as_tuple") else value

    return sorted(({name: text(row[name]) for name in columns} for row in found), key=str)


def check(kafka: KafkaServer, settings: Settings, table: str, topic: str) -> list[Message]:
    """Check that the topic shows the rows of the table; return its messages."""
    messages = received(kafka, topic)
    found = rows(settings, table)
    assert shown(messages) == as_json(found, list(found[0]) if found else [])
    return messages


@pytest.mark.all
@pytest.mark.parametrize("spec", [pytest.param(SLIDING, id="sliding"), pytest.param(FINAL, id="final")])
def test_a_topic_shows_the_windows_of_a_product(
    lake: Settings, session: SparkSession, silver: Silver, kafka: KafkaServer, spec: Spec
) -> None:
    chance, topic, now = random.Random(3), kafka.new_topic(2), NOON
    followed = gold(lake, spec)
    for step in range(3):
        now += (HOUR / 3, timedelta(days=4), timedelta(days=8))[step]
        silver.keep(*(some(chance, now) for _ in range(2)))
        if step:
            assert send_all(session, lake, followed, topic) == 0  # silver has the rows, gold does not yet
        fill(session, lake, spec)
        if step == 1:
            tables.maintain(session, followed.table)
            tables.maintain(session, "silver.orders")
        send_all(session, lake, followed, topic)
        assert send_all(session, lake, followed, topic) == 0
    messages = check(kafka, lake, followed.table, topic)
    assert {*ids(messages).values()} == {1}
    if spec is FINAL:
        assert len(messages) == len(rows(lake, followed.table))  # each window once


@pytest.mark.all
def test_only_windows_that_changed_are_sent_and_a_crash_sends_them_again(
    lake: Settings, session: SparkSession, silver: Silver, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, followed = kafka.new_topic(), gold(lake, SPENDING)
    silver.keep([order(NOON - timedelta(days=day), customer) for day in range(6) for customer in (None, "a", "b")])
    fill(session, lake, SPENDING)
    send_all(session, lake, followed, topic)
    assert len(received(kafka, topic)) == 18
    silver.keep([order(NOON, "c")], [order(NOON - timedelta(days=3), None, total="5.00")])
    fill(session, lake, SPENDING)

    def crash(*_: object) -> None:
        raise LakeproofError("crashed, as asked")

    with monkeypatch.context() as patch:
        patch.setattr(TopicSink, "_record", crash)
        with pytest.raises(LakeproofError, match="as asked"):
            send_all(session, lake, followed, topic)
    send_all(session, lake, followed, topic)
    messages = check(kafka, lake, followed.table, topic)
    assert len(messages) == 18 + 2 + 2
    assert sorted(ids(messages).values()) == [1] * 18 + [2] * 2
    keys = [json.loads(message.key() or b"") for message in messages[-2:]]
    assert {(key["window_start"], key["customer"], key["count"]) for key in keys} == {
        ("2026-11-20T12:00:00.000000Z", "c", 1),
        ("2026-11-17T12:00:00.000000Z", None, 1),
    }


@pytest.mark.all
def test_a_row_of_silver_is_a_message_by_its_key(
    lake: Settings, session: SparkSession, silver: Silver, kafka: KafkaServer
) -> None:
    followed, topic = silver_followed(load_contract(lake.contracts, "orders")), kafka.new_topic()
    silver.keep([order(NOON, total="1.50"), order(None, None, None)])
    assert send_all(session, lake, followed, topic) == 1
    tables.maintain(session, "silver.orders")
    silver.keep(*([order(NOON)] for _ in range(120)))  # more than are sent at once
    assert send_all(session, lake, followed, topic) == 2
    messages = received(kafka, topic)
    assert [message.key() for message in messages[:2]] == [b"0", b"1"]
    assert json.loads(messages[0].value() or b"") == {
        "order_id": "0",
        "ordered_at": "2026-11-20T12:00:00.000000Z",
        "customer": "a",
        "channel": "web",
        "count": 1,
        "total": 1.5,
        "ratio": 0.5,
        "place": {},
    }
    assert b'"total":1.50' in (messages[0].value() or b"")
    assert sorted(message.key() for message in messages) == sorted(str(number).encode() for number in range(122))


@pytest.mark.all
def test_a_topic_that_is_missing_created_again_or_away(
    lake: Settings,
    session: SparkSession,
    silver: Silver,
    kafka: KafkaServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, followed = kafka.new_topic(), gold(lake, SPENDING)
    kafka.delete_topic(topic)
    silver.keep([order(NOON)])
    fill(session, lake, SPENDING)
    with structlog.testing.capture_logs() as logs:
        send_all(session, lake, followed, topic)
    assert {"event": "topic created", "log_level": "info", "topic": topic, "partitions": 2} in logs
    kafka.delete_topic(topic)
    silver.keep([order(NOON + HOUR)])
    fill(session, lake, SPENDING)

    bulletin = Bulletin()
    away = changed(lake, LAKE_KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port()}", LAKE_KAFKA_TIMEOUT_SECONDS=1)
    with monkeypatch.context() as patch:
        patch.setattr(create, "_PATIENCE_SECONDS", 1.0)
        for available_now in (True, False):
            query = LayerQuery(away, TopicSink(away, followed, topic), Trigger(available_now))
            with lease(lake.state.database, query.lease_name) as held, structlog.testing.capture_logs() as logs:
                query.resume(session, held)
                if available_now:
                    with pytest.raises(UnavailableError, match="does not respond"):
                        query.look(session, bulletin)
                else:  # tables continue to be filled
                    assert [query.look(session, bulletin), query.look(session, bulletin)] == [False, False]
                    assert [line["event"] for line in logs] == ["publishing waits"]

    with structlog.testing.capture_logs() as logs:
        send_all(session, lake, followed, topic)
    assert "the topic was created again: sending the whole table" in [line["event"] for line in logs]
    assert len(check(kafka, lake, followed.table, topic)) == 2
    kafka.delete_topic(topic)
    send_all(session, lake, followed, topic)  # without a new row
    assert len(check(kafka, lake, followed.table, topic)) == 2


@pytest.mark.all
def test_a_table_that_was_restored_is_noticed(
    lake: Settings,
    session: SparkSession,
    session_of: SessionOf,
    silver: Silver,
    kafka: KafkaServer,
    tmp_path: Path,
) -> None:
    topic, followed = kafka.new_topic(), gold(lake, SPENDING)
    silver.keep([order(NOON)])
    fill(session, lake, SPENDING)
    send_all(session, lake, followed, topic)
    back_up(lake, tmp_path / "copy", Piece.CATALOG, Piece.WAREHOUSE)
    older = silver.end, list(silver.orders)
    silver.keep([order(NOON + HOUR)])
    fill(session, lake, SPENDING)
    send_all(session, lake, followed, topic)
    restore(lake, tmp_path / "copy", Piece.CATALOG, Piece.WAREHOUSE)
    session = session_of(lake)
    with pytest.raises(LakeproofError, match=r"has gold\.spending up to micro-batch 1.*only has it up to 0") as caught:
        send_all(session, lake, followed, topic)
    assert "consumer resend gold.spending" in caught.value.hint
    # Other rows under the same numbers are noticed, too.
    silver = Silver(session, lake)
    silver.end, silver.orders = older
    silver.keep([order(NOON + 2 * HOUR)])
    fill(session, lake, SPENDING)
    with pytest.raises(LakeproofError, match=r"has rows that gold\.spending has no longer"):
        send_all(session, lake, followed, topic)
    assert resend(lake, "gold.spending") == f"The next run sends all of gold.spending to {topic} again."
    send_all(session, lake, followed, topic)
    messages = received(kafka, topic)
    assert len(messages) == 2 + 2
    assert sorted(ids(messages).values()) == [1, 1, 2]
    with pytest.raises(LakeproofError, match="was sent to a topic yet"):
        resend(lake, "gold.x")

    # A lost position counts as none: everything is sent again.
    lose(lake, Piece.LANDING_LOG)
    send_all(session, lake, followed, topic)
    assert len(received(kafka, topic)) == 6


@pytest.mark.all
def test_an_older_state_of_the_table_is_not_sent(
    lake: Settings, session: SparkSession, silver: Silver, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a catalog may answer to the second of two requests."""
    sinks = [
        TopicSink(lake, followed, kafka.new_topic())
        for followed in (gold(lake, SPENDING), silver_followed(load_contract(lake.contracts, "orders")))
    ]
    silver.keep([order(NOON)])
    fill(session, lake, SPENDING)
    older = {each.follows: open_table(session, each.reads[0], each.follows) for each in sinks}
    silver.keep([order(NOON + HOUR)])
    fill(session, lake, SPENDING)
    for each in sinks:
        with monkeypatch.context() as patch:
            patch.setattr(changes, "open_table", lambda _spark, _name, query: older[query])
            with pytest.raises(UnavailableError, match="does not show the newest state"):
                take_all(session, lake, each)
        assert each._positions.get(each.name) is None
        assert take_all(session, lake, each) == 1
        assert len(received(kafka, each._topic)) == 2


def test_two_consumers_do_not_move_one_position(lake: Settings, session: SparkSession, silver: Silver) -> None:
    topic, followed = "never-sent", gold(lake, SPENDING)
    name = sink_name(followed.table, topic)
    with lease(lake.state.database, sink_lease(name)):
        positions = TopicSink(lake, followed, topic)._positions
        first, second, third = (sink.SinkPosition("t", "k", marker) for marker in "123")
        positions.record(name, followed.table, first, None)
        for before in (None, second):
            with pytest.raises(LakeproofError, match="Another consumer"):
                positions.record(name, followed.table, third, before)
        positions.record(name, followed.table, second, first)
        assert positions.get(name) == second


def test_a_run_fills_tables_and_topics(lake_settings: Settings, session_of: SessionOf, kafka: KafkaServer) -> None:
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, LAKE_SETTLE_SECONDS=0)
    good, bad = kafka.new_topic(), kafka.new_topic()
    land(settings, "1.json", ("a", MORNING, "x"), ("b", MORNING, "x"), ("b", MORNING, "x"))
    (settings.home / "landing" / "events" / "2.json").write_bytes(b'[{"user_id": "\xff"}, {"event_id": 1}]')
    when = Trigger(available_now=True)
    queries = [
        BronzeQuery(settings, "events", when),
        *layer_queries(settings, "events", when, silver_topic=good, dead_letter_topic=bad),
    ]
    run_queries(settings, queries, lambda: session_of(settings), available_now=True)
    assert sorted(message.key() for message in received(kafka, good)) == [b"a", b"b"]
    letters = {message.value(): headers(message) for message in received(kafka, bad)}
    assert letters.keys() == {row["raw"] for row in rows(settings, "dead_letters.events")}
    assert letters[b'{"user_id": "\xff"}']["lakeproof-id"] == b"2.json#0#1"
    reasons = json.loads(letters[b'{"event_id": 1}']["lakeproof-reasons"])
    assert "wrong_type" in {reason["code"] for reason in reasons}
    assert (letters[b'{"event_id": 1}']["lakeproof-source"], letters[b'{"event_id": 1}']["lakeproof-position"]) == (
        b"2.json",
        b"1",
    )
