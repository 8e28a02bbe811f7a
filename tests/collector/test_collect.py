"""Answers to clients, and the resulting messages in the topic."""

import gzip
import json
from typing import Any

import pytest
from backports import zstd
from tests.collector.running import JSON, Collector, at, event, messages
from tests.servers import KafkaServer


def topic(collector: Collector) -> str:
    return collector.settings["LAKE_COLLECTOR_TOPIC"]


def test_each_event_gets_the_receipt_of_its_message_byte_for_byte(collector: Collector, kafka: KafkaServer) -> None:
    texts = [
        b'{ "id": 1,"type":"a", "event":{"x":1.50,"x":1e400}}',
        b'{"event":{},"type":"\xc3\xa9","id":-2,"more":[]}',
    ]
    answer = collector.send(b" [%s ,\n%s] " % tuple(texts))
    assert answer.status == 202
    assert answer.headers["content-type"] == "application/json"
    receipts = answer.json["receipts"]
    assert [receipt["topic"] for receipt in receipts] == [topic(collector)] * 2
    landed = at(messages(kafka.bootstrap_servers, topic(collector)))
    found = [landed[receipt["partition"], receipt["offset"]] for receipt in receipts]
    assert [each.value for each in found] == texts
    assert [each.key for each in found] == [b"1", b"-2"]
    assert [each.headers for each in found] == [{}, {}]


def test_events_of_one_id_share_a_partition(collector: Collector) -> None:
    receipts = collector.post([event(7) for _ in range(20)]).json["receipts"]
    assert len({receipt["partition"] for receipt in receipts}) == 1
    assert len({receipt["offset"] for receipt in receipts}) == 20


def test_the_idempotency_key_travels_with_each_event(collector: Collector, kafka: KafkaServer) -> None:
    receipts = collector.post([event(1), event(2)], idempotency_key='"a key"').json["receipts"]
    landed = at(messages(kafka.bootstrap_servers, topic(collector)))
    found = [landed[receipt["partition"], receipt["offset"]].headers for receipt in receipts]
    assert found == [{"idempotency-key": b'"a key"', "idempotency-index": b"%d" % index} for index in range(2)]


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("zstd", zstd.compress),
        ("identity", bytes),
        ("gzip", lambda body: gzip.compress(b"") * 3 + gzip.compress(body)),
    ],
)
def test_packed_bodies_are_unpacked(collector: Collector, encoding: str, pack: Any) -> None:
    answer = collector.send(pack(json.dumps([event(1)] * 3).encode()), content_encoding=encoding)
    assert (answer.status, len(answer.json["receipts"])) == (202, 3)


REFUSED: dict[str, tuple[bytes, dict[str, str], int, list[tuple[int | None, str]]]] = {
    "no JSON": (b"hello", {}, 400, [(None, "$")]),
    "empty": (b"", {}, 400, [(None, "$")]),
    "truncated": (b'[{"id":1,"type":"a","event":{}},{"id":', {}, 400, [(1, "$")]),
    "text behind": (b'[{"id":1,"type":"a","event":{}}] x', {}, 400, [(None, "$")]),
    "NaN": (b'[{"id":1,"type":"a","event":{"a":NaN}}]', {}, 400, [(0, "$")]),
    "half a pair": (b'[{"id":1,"type":"a","event":{"a":"\\ud800"}}]', {}, 400, [(0, "$")]),
    "not UTF-8": (b'[{"id":1,"type":"a","event":{"a":"\xff"}}]', {}, 400, [(None, "$")]),
    "UTF-16": ('[{"id":1,"type":"a","event":{}}]'.encode("utf-16"), {}, 400, [(None, "$")]),
    "no gzip": (b"[]", {"content_encoding": "gzip"}, 400, [(None, "$")]),
    "truncated gzip": (gzip.compress(b"[]")[:-1], {"content_encoding": "gzip"}, 400, [(None, "$")]),
    "empty gzip": (b"", {"content_encoding": "gzip"}, 400, [(None, "$")]),
    "truncated zstd": (zstd.compress(b"[]")[:-1], {"content_encoding": "zstd"}, 400, [(None, "$")]),
    "idempotency key": (b"[]", {"idempotency_key": "\xe9"}, 400, [(None, "$")]),
    "an object": (b"{}", {}, 422, [(None, "$")]),
    "lines": (b"{}\n{}", {}, 400, [(None, "$")]),
    "a number": (b"5", {}, 422, [(None, "$")]),
    "no event": (b"[]", {}, 422, [(None, "$")]),
    "no object": (b'[5, null, "x", [], true]', {}, 422, [(index, "$") for index in range(5)]),
    "each fault": (
        b'[{"id":1,"type":"a","event":{}},{"id":1.0,"type":2,"event":[]},{}]',
        {},
        422,
        [(1, "$.id"), (1, "$.type"), (1, "$.event"), (2, "$.id"), (2, "$.type"), (2, "$.event")],
    ),
    "large id": (b'[{"id":9223372036854775808,"type":"a","event":{}}]', {}, 422, [(0, "$.id")]),
    "huge id": (b'[{"id":%s,"type":"a","event":{}}]' % (b"9" * 10_000), {}, 422, [(0, "$.id")]),
    "too deep": (b'[{"id":1,"type":"a","event":{"a":%s%s}}]' % (b"[" * 63, b"]" * 63), {}, 422, [(0, "$")]),
    "far too deep": (b'[{"id":1,"type":"a","event":{"a":%s%s}}]' % (b"[" * 10**5, b"]" * 10**5), {}, 422, [(0, "$")]),
    "too many": (b"[" + b",".join([b'{"id":1,"type":"a","event":{}}'] * 1001) + b"]", {}, 413, [(None, "$")]),
    "large event": (b'[{"id":1,"type":"%s","event":{}}]' % (b"a" * 600_000), {}, 413, [(0, "$")]),
    "large body": (b" " * (1024**2 + 1), {}, 413, [(None, "$")]),
    "gzip bomb": (gzip.compress(b"[" + b" " * 50_000_000), {"content_encoding": "gzip"}, 413, [(None, "$")]),
    "zstd bomb": (zstd.compress(b"[" + b" " * 50_000_000), {"content_encoding": "zstd"}, 413, [(None, "$")]),
    "no type": (b"[]", {"content_type": ""}, 415, [(None, "$")]),
    "form": (b"[]", {"content_type": "application/x-www-form-urlencoded"}, 415, [(None, "$")]),
    "charset": (b"[]", {"content_type": "application/json; charset=latin-1"}, 415, [(None, "$")]),
    "beacon of any page": (b"[]", {"content_type": "text/plain", "origin": "https://any.example"}, 415, [(None, "$")]),
    "encoding": (b"[]", {"content_encoding": "br"}, 415, [(None, "$")]),
    "two encodings": (b"[]", {"content_encoding": "gzip, zstd"}, 415, [(None, "$")]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_each_fault_and_nothing_is_sent(collector: Collector, name: str) -> None:
    body, headers, status, places = REFUSED[name]
    answer = collector.send(body, **headers)
    assert answer.status == status, answer.body
    problem = answer.json
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert [(fault["index"], fault["path"]) for fault in problem["faults"]] == places
    assert all(fault["detail"] for fault in problem["faults"])
    (line,) = [
        line for line in collector.logged("post") if line["correlation_id"] == answer.headers["x-correlation-id"]
    ]
    assert (line["status"], line["events"]) == (status, line["events"])
    assert line["why"] == problem["detail"]


def test_a_chunked_body_has_no_larger_limit(collector: Collector) -> None:
    parts = [b"[" + b" " * 500_000] * 3
    answer = collector.request("POST", "/collect", iter(parts), JSON)
    assert answer.status == 413


def test_nothing_of_what_was_refused_is_in_the_topic(start_collector: Any, kafka: KafkaServer) -> None:
    running = start_collector().ready()
    for body, headers, _, _ in REFUSED.values():
        running.send(body, **headers)
    assert messages(kafka.bootstrap_servers, topic(running)) == []


def test_the_deepest_and_the_largest_that_is_allowed_is_accepted(collector: Collector) -> None:
    deep = b'{"id":1,"type":"[[[[","event":{"a":%s%s}}' % (b"[" * 62, b"]" * 62)
    large = b'{"id":1,"type":"%s","event":{}}' % (b"a" * (512 * 1024 - 29))
    assert len(large) == 512 * 1024
    answer = collector.send(b"[%s,%s]" % (deep, large))
    assert answer.status == 202, answer.body


def test_the_log_has_one_line_per_post_with_its_id_and_never_a_body(collector: Collector) -> None:
    answers = [
        collector.post([event(1, type="secret-text")], x_correlation_id="mine-1"),
        collector.post([event(1, type="secret-text", id="x")], x_correlation_id="mine-2"),
        collector.post([event(1, type="secret-text")], x_correlation_id="not allowed"),
    ]
    assert [answer.headers["x-correlation-id"] for answer in answers[:2]] == ["mine-1", "mine-2"]
    lines = {line["correlation_id"]: line for line in collector.logged("post")}
    accepted = lines["mine-1"]
    assert (accepted["status"], accepted["events"], accepted["failed"]) == (202, 1, 0)
    assert accepted["bytes"] == accepted["unpacked"] > 50
    assert 0 < accepted["seconds"] < 60
    assert lines["mine-2"]["why"] == "In event 0, $.id: expected an integer, got a string."
    assert lines[answers[2].headers["x-correlation-id"]]["status"] == 202
    assert "secret-text" not in collector.log.read_text()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_other_methods_are_refused(collector: Collector, method: str) -> None:
    answer = collector.request(method, "/collect")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_health_metrics_and_the_interface_are_served(collector: Collector) -> None:
    assert collector.get("/healthz").json == {"status": "ok"}
    assert collector.get("/readyz").json == {"status": "ready"}
    assert collector.get("/openapi.json").json["info"]["title"] == "Collector"
    assert collector.get("/docs").status == 404, "FastAPI's page would run scripts of another site"
    before = collector.get("/metrics").body.decode()
    collector.post([event(1)] * 5)
    metrics = collector.get("/metrics").body.decode()

    def count(text: str) -> float:
        (line,) = [
            line for line in text.splitlines() if line.startswith('collector_events_total{outcome="acknowledged"}')
        ]
        return float(line.split()[1])

    assert count(metrics) - count(before) == 5
    assert "collector_ready 1.0" in metrics
    assert "collector_queue_bytes 0.0" in metrics
    assert 'collector_posts_total{status="202"}' in metrics
    assert "process_resident_memory_bytes" in metrics
