"""Each event answered with 2xx is in the topic, while broker and collector are killed and restarted under load."""

import itertools
import json
import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.collector.conftest import own_topics
from tests.collector.running import Answer, Collector, at, event, messages, wait_for
from tests.servers import KafkaServer


@dataclass
class Load:
    """Posts of several clients, and their answers."""

    collector: Collector
    stop: Event = field(default_factory=Event)
    accepted: list[tuple[int, Any]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    resets: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def client(self) -> None:
        while not self.stop.is_set():
            first = next(self.numbers) * 10
            try:
                answer = self.collector.post([event(first + index) for index in range(10)])
            except (OSError, HTTPException):  # the collector is not running, or was killed during the request
                self.resets += 1
                time.sleep(0.05)
                continue
            self.statuses.append(answer.status)
            if answer.status == 202:
                self.accepted.append((first, answer.json["receipts"]))
            elif answer.status == 503:
                assert int(answer.headers["retry-after"]) > 0
                time.sleep(0.05)

    def progress(self) -> None:
        """Wait until more posts are accepted."""
        before = len(self.accepted)
        wait_for(lambda: len(self.accepted) > before + 20)


@pytest.mark.all
def test_kills_of_broker_and_collector_lose_nothing_that_was_accepted(start_collector: Any, kafka: KafkaServer) -> None:
    running: Collector = start_collector(collector_deadline_seconds=3, collector_ready_seconds=2).ready()
    load = Load(running)
    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(load.client) for _ in range(8)]
        try:
            load.progress()
            kafka.kill()
            wait_for(lambda: running.get("/readyz").status == 503)
            time.sleep(1)
            kafka.start()
            load.progress()
            assert running.end(signal.SIGTERM) == 0
            running.start()
            load.progress()
            assert running.end(signal.SIGKILL) == -signal.SIGKILL
            running.start()
            load.progress()
            kafka.kill()
            kafka.start()  # before anything noticed
            load.progress()
        finally:
            load.stop.set()
        for client in clients:
            client.result()
    assert set(load.statuses) <= {202, 503}
    assert 503 in load.statuses
    assert load.resets
    landed = at(messages(kafka.bootstrap_servers, running.settings["LAKE_COLLECTOR_TOPIC"]))
    places: set[tuple[int, int]] = set()
    for first, receipts in load.accepted:
        found = [(each["partition"], each["offset"]) for each in receipts]
        assert [json.loads(landed[place].value)["id"] for place in found] == list(range(first, first + 10))
        places |= set(found)
    assert len(places) == 10 * len(load.accepted)


@pytest.mark.all
def test_without_a_broker_posts_are_refused_until_it_is_there(kafka: KafkaServer, tmp_path: Path) -> None:
    kafka.stop()
    with ExitStack() as stack:
        stack.callback(kafka.start)
        with Collector(tmp_path / "c", own_topics(kafka)) as running:
            wait_for(lambda: running.logged("waiting for Kafka"))
            assert running.get("/healthz").status == 200
            assert running.get("/readyz").json == {"status": "Kafka has not acknowledged anything yet"}
            answer = running.post([event(1)])
            assert (answer.status, answer.headers["retry-after"]) == (503, "2")
            assert answer.json["detail"] == "Kafka has not acknowledged anything yet. Try again later."
            stack.close()
            assert running.ready().post([event(1)]).status == 202
            assert running.end() == 0
            assert "Traceback" not in running.log.read_text()


@pytest.mark.all
def test_posts_in_flight_end_at_the_deadline_when_the_broker_goes_away(
    start_collector: Any, kafka: KafkaServer
) -> None:
    running: Collector = start_collector(collector_deadline_seconds=2, collector_ready_seconds=60).ready()
    patient: Collector = start_collector(collector_deadline_seconds=300, collector_ready_seconds=600).ready()
    kafka.kill()
    with ThreadPoolExecutor(6) as pool:
        left = pool.submit(patient.post, [event(1)])
        try:
            began = time.monotonic()
            answers: list[Answer] = list(pool.map(lambda number: running.post([event(number)] * 3), range(5)))
            assert time.monotonic() - began > 1.5
            assert not left.done()  # so it was the deadline of the setting
            assert [answer.status for answer in answers] == [503] * 5
            for answer in answers:
                assert len(answer.json["events"]) == 3
                assert all(each["error"] for each in answer.json["events"])
                assert "did not acknowledge 3 of 3 events" in answer.json["detail"]
            metrics = running.get("/metrics").body.decode()
            assert 'collector_events_total{outcome="failed"} 15.0' in metrics
            assert "collector_queue_bytes 0.0" in metrics
        finally:
            kafka.start()
        assert left.result().status == 202
    wait_for(lambda: running.post([event(1)]).status == 202)


def test_a_partial_failure_says_which_events_failed(
    collector: Collector, start_collector: Any, kafka: KafkaServer
) -> None:
    """An operator has set a lower message limit for the topic than the collector's."""
    topic = f"test-{uuid.uuid4().hex[:12]}"
    kafka.new_topic(3, topic, max_message_bytes=1000)
    running: Collector = start_collector(collector_topic=topic).ready()
    receipts = collector.post([event(number) for number in range(30)]).json["receipts"]
    # Kafka rejects the whole batch of a partition.
    small = [number for number in range(30) if receipts[number]["partition"] != receipts[0]["partition"]][:2]
    answer = running.post([event(small[0]), event(0, type="x" * 2000), event(small[1])])
    assert answer.status == 503
    outcomes = answer.json["events"]
    assert [sorted(each) for each in outcomes] == [["receipt"], ["error"], ["receipt"]]
    assert "too large" in outcomes[1]["error"]
    landed = at(messages(kafka.bootstrap_servers, topic))
    found = [landed[each["receipt"]["partition"], each["receipt"]["offset"]] for each in outcomes if "receipt" in each]
    assert [int(each.key) for each in found] == small
    (line,) = running.logged("post")
    assert (line["status"], line["events"], line["failed"]) == (503, 3, 1)


@pytest.mark.all
def test_a_topic_that_an_operator_deletes_is_missed_and_accepted_again(
    start_collector: Any, kafka: KafkaServer
) -> None:
    running: Collector = start_collector(collector_deadline_seconds=2, collector_ready_seconds=60).ready()
    topic = running.settings["LAKE_COLLECTOR_TOPIC"]
    wait_for(lambda: running.post([event(1)]).status == 202)
    kafka.delete_topic(topic)
    wait_for(lambda: running.post([event(1)]).status == 503)
    kafka.new_topic(3, topic)
    wait_for(lambda: running.post([event(1)]).status == 202)
