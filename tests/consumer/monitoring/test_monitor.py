"""Endpoint of an application: metrics of files and Kafka, metrics that dashboard, rules and docs name, and health."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import promql_parser
import pytest
import structlog
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf
from tests.lakes import changed, variables
from tests.messages import event, send
from tests.pages import blocks
from tests.programs import forked
from tests.servers import PATIENCE, KafkaServer, free_port

from consumer.iceberg.marker import Committed, Marker
from consumer.layers.registry import layers_of
from consumer.modes.checkpoint import Checkpoint
from consumer.monitoring.metrics import OTHER, Look, Metrics
from consumer.monitoring.monitor import _SHARE, Monitor, monitored
from consumer.monitoring.query_status import Doing, QueryStatus
from consumer.monitoring.sizes import TableSize
from consumer.monitoring.status import status
from consumer.queries.application import Query, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.layer import LayerQuery
from consumer.queries.mode import ModeQuery
from consumer.queries.running import Running
from consumer.queries.trigger import Trigger
from consumer.scope import scope_of_run
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, PausedError, UnavailableError, UsageError
from lakeproof.kafka.modes import ModeName, mode_of
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.topic import Topic
from lakeproof.settings import Settings
from lakeproof.state.database import open_database
from lakeproof.state.lease import Lease, lease, mode_lease
from lakeproof.state.proofs import Proof, ProofKind, ProofOutcome, record
from lakeproof.state.sink_positions import SinkPosition, SinkPositions, sink_lease
from lakeproof.tables.schemas import ensure_tables

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
QUERIES = {"bronze-events", "silver-events", "gold-user_activity"}
NOW = Trigger(available_now=True)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def get(address: str, path: str) -> tuple[int, str]:
    """Return status and body of a response."""
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


class Scrape:
    """The metrics of a response."""

    def __init__(self, text: str) -> None:
        self.names: set[str] = set()
        self.labels: dict[str, set[str]] = {}
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        suffixes = {"counter": ["_total"], "histogram": ["", "_bucket", "_sum", "_count"], "gauge": [""]}
        for family in text_string_to_metric_families(text):
            self.names |= {f"{family.name}{suffix}" for suffix in suffixes[family.type]}
            for sample in family.samples:
                self.labels.setdefault(sample.name, set()).update(sample.labels)
                self._values[sample.name, frozenset(sample.labels.items())] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        return self._values[f"consumer_{name}", frozenset(labels.items())]

    def of(self, name: str, label: str) -> dict[str, float]:
        """Return values by one label, where all other labels are the same."""
        return {dict(at)[label]: value for (each, at), value in self._values.items() if each == f"consumer_{name}"}


def named() -> dict[str, set[str]]:
    """Return the consumer metrics that dashboard, rules and docs name, with the labels by which they select."""
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
    board = json.loads((MONITORING / "dashboard.json").read_text())
    asked = [each["expr"] for panel in board["panels"] for each in panel.get("targets", ())]
    found: dict[str, set[str]] = {}
    for text in [*(each["expr"] for each in rules), *asked]:
        tree = promql_parser.parse(text.replace("$__rate_interval", "1m"))  # raises an error if it is not valid
        assert tree
        for name, matchers in re.findall(r"\b((?:consumer|process)_\w+)(?:\{([^}]*)\})?", text):
            found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=|!)", matchers))
    page = (ROOT / "docs" / "operations" / "monitor.md").read_text()
    for name in re.findall(r"`(consumer_\w+)", page):
        found.setdefault(name, set())
    assert len(found) > 20
    return found


class Scraping(Query):
    """Toy query that scrapes once the queries before it are done, while the application runs."""

    name = lease_name = "scraping"

    def __init__(self, work: Callable[[], None], follows: str) -> None:
        self._work = work
        self.follows = follows
        self.ended = False
        self.stopped = threading.Event()

    def prepare(self) -> None:
        pass

    def resume(self, spark: SparkSession, held: Lease) -> None:
        pass

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Running:
        outer = self

        class Drains:
            is_busy = False

            @property
            def has_ended(self) -> bool:
                return outer.ended

            def failure(self) -> Exception | None:
                return None

            def drain(self) -> None:
                outer._work()

            def stop(self) -> None:
                outer.stopped.set()

        return Drains()

    def explain(self, error: Exception) -> LakeproofError:
        return LakeproofError(str(error))


def until(done: Callable[[], Any]) -> Any:
    """Wait until the result is true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def watched(settings: Settings) -> Settings:
    """Return settings of a run with an endpoint for metrics."""
    return changed(settings, LAKE_METRICS="127.0.0.1:0", LAKE_METRICS_SECONDS=1, LAKE_SETTLE_SECONDS=0)


def queries_of(settings: Settings, source: str) -> list[Query]:
    """Return the queries of the stream events."""
    layers = layers_of(scope_of_run(settings, ["events"], None))
    return [BronzeQuery(settings, "events", NOW, source), *(LayerQuery(settings, layer, NOW) for layer in layers)]


def scraped(
    settings: Settings, name: str, queries: list[Query], session_of: SessionOf, look: Callable[[str], None]
) -> None:
    """Run a stream or mode over all landed data, and call `look` with the endpoint before the application ends."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            look(address)
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            errors.append(error)

    queries.append(Scraping(work, queries[-1].name))
    with structlog.testing.capture_logs() as logs:
        processors = structlog.get_config()["processors"]
        before = list(processors)
        with monitored(settings, queries, [name], available_now=True) as started:
            address = next(line["address"] for line in logs if line["event"] == "serving metrics")
            address = address.removesuffix("/metrics")
            assert get(address, "/readyz") == (503, '{"status": "starting"}')
            assert get(address, "/healthz") == (200, '{"status": "ok"}')
            run_queries(settings, queries, lambda: session_of(settings), available_now=True, started=[started])
        assert processors == before
    if errors:
        raise errors[0]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=1)


def check(address: str, settings: Settings, unit: str) -> Scrape:
    """Wait for metrics in which all is done, and check those that files and Kafka have in common."""

    def all_done() -> Scrape | None:
        found = Scrape(get(address, "/metrics")[1])
        lags = found.of("lag", "query")
        rows = found.of("table_rows", "table").get("gold.user_activity")
        return found if rows and lags.keys() == QUERIES and not any(lags.values()) else None

    found: Scrape = until(all_done)
    assert get(address, "/readyz") == (200, '{"status": "ready"}')
    assert get(address, "/healthz") == (200, '{"status": "ok"}')
    assert get(address, "/nothing")[0] == 404
    assert found("rows_total", query="bronze-events", outcome="bronze") == 3
    assert found("rows_total", query="bronze-events", outcome="dead_letters") == 1
    assert found("dead_letters_total", query="bronze-events", reasons="wrong_type") == 1
    assert found("rows_total", query="silver-events", outcome="kept") == 2
    assert found("rows_total", query="silver-events", outcome="duplicates") == 1
    assert found("taken_total", query="bronze-events", unit="files" if unit == "files" else "offsets") >= 1
    for query in QUERIES:
        for phase in ("compute", "commit"):
            assert found("micro_batch_seconds_count", query=query, phase=phase) == 1
    rows = {"bronze.events": 3, "dead_letters.events": 1, "silver.events": 2, "silver.events_late": 0}
    tables = found.of("table_rows", "table")
    assert {name: tables[name] for name in rows} == rows
    assert found("table_files", table="bronze.events") == 1
    assert found("table_small_files", table="bronze.events") == 0  # maintenance would not compact a single file
    assert found("table_snapshots", table="bronze.events") == 1
    assert found.of("lease_expires_timestamp_seconds", "lease").keys() >= {"events", "silver.events", "scraping"}
    assert found("ready") == 1
    assert found("metrics_errors_total") == 0

    # `consumer status` agrees for each query.
    for each in status(settings, ["events"]):
        for doing in Doing:
            assert found("query_state", query=each.query, state=str(doing)) == (each.state is doing)
        assert found("lag", query=each.query, unit=each.unit) == each.lag
        assert found("lag_seconds", query=each.query) == each.lag_seconds == 0
        assert found("freshness_seconds", query=each.query) == each.freshness_seconds == 0
        assert each.last_commit
        assert found("last_commit_timestamp_seconds", query=each.query) == each.last_commit.timestamp()
        watermarks = found.of("watermark_timestamp_seconds", "query")
        assert watermarks.get(each.query) == (each.watermark and each.watermark.timestamp())

    for name, labels in named().items():
        assert name in found.names, name
        assert labels <= found.labels.get(name, labels) | {"instance", "job"}, name
    return found


RECORDS = [event(1), event(2), event(2), event(3, user_id=1)]


@pytest.mark.spark
def test_the_metrics_of_files(lake_settings: Settings, session_of: SessionOf) -> None:
    landing = lake_settings.home / "landing" / "events"
    landing.mkdir(parents=True)
    (landing / "1.json").write_bytes(b"[" + b",".join(RECORDS) + b"]")
    proof = Proof("events", ProofKind.ALL, NOON, NOON, "me@here", ProofOutcome.FAILED, 2)
    record(open_database(lake_settings.state.database), proof, [])

    def look(address: str) -> None:
        found = check(address, lake_settings, "files")
        assert found("proof_timestamp_seconds", stream="events") == NOON.timestamp()
        assert (found("proof_clean", stream="events"), found("proof_faults", stream="events")) == (0, 2)

    settings = watched(lake_settings)
    scraped(settings, "events", queries_of(settings, "files"), session_of, look)


@pytest.mark.all
@pytest.mark.spark
def test_the_metrics_of_a_topic(lake_settings: Settings, session_of: SessionOf, kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, RECORDS)
    own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic}
    settings = watched(changed(lake_settings, **own))
    queries = queries_of(settings, "kafka")
    scraped(settings, "events", queries, session_of, lambda address: check(address, settings, "messages") and None)


@pytest.mark.spark
def test_the_metrics_of_a_mode(
    lake_settings: Settings, session_of: SessionOf, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [b'{"eventId":"1","eventTime":"2024-01-01T00:00:00Z"}'] * 2)
    own = {"LAKE_DEDUPE_TOPIC": topic, "LAKE_DEDUPE_PARQUET": tmp_path / "out"}
    settings = watched(changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, **own))
    mode = mode_of(ModeName.DEDUPE, settings)
    # Another checkpoint of the mode, which nobody uses any longer.
    retired = f"{mode.checkpoint}-retired"
    with lease(settings.state.database, mode_lease(ModeName.DEDUPE, retired)):
        topic_id, partitions = Topic(settings.kafka, topic).identity()
        start = Offsets.of(topic, dict.fromkeys(partitions, 0))
        Checkpoint(retired, settings.s3).create(mode, topic_id, start)
    assert len(status(settings, ["dedupe"])) == 1
    index = settings.home / "modes" / "retired"
    index.mkdir(parents=True)
    (index / "keys").write_bytes(bytes(1 << 24))

    def look(address: str) -> None:
        # The first metrics may precede the micro-batch.
        found: Scrape = until(
            lambda: (found := Scrape(get(address, "/metrics")[1])).of("lag", "query") == {"dedupe": 0} and found
        )
        assert found.of("query_state", "query").keys() == {"dedupe"}
        assert len(status(settings, ["dedupe"])) == 2
        for outcome in ("messages", "kept", "duplicates"):
            assert found("rows_total", query="dedupe", outcome=outcome) == (2 if outcome == "messages" else 1)
        assert found("lag_seconds", query="dedupe") == 0
        assert 0 < found("state_bytes", query="dedupe") < 1 << 24
        expires = found("lease_expires_timestamp_seconds", lease=f"dedupe {mode.checkpoint}")
        assert expires > found("look_timestamp_seconds")
        assert get(address, "/readyz") == (200, '{"status": "ready"}')

    scraped(settings, "dedupe", [ModeQuery(settings, mode, NOW)], session_of, look)


class Still(Query):
    """Query that does nothing."""

    name = lease_name = "still"
    has_ended = False

    def prepare(self) -> None: ...

    def resume(self, spark: SparkSession, held: Lease) -> None: ...

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Running:
        raise NotImplementedError

    def explain(self, error: Exception) -> LakeproofError:
        return LakeproofError(str(error))


@pytest.fixture
def still(
    lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Monitor, Still, Bulletin]]:
    """Yield a monitor that looks several times a second, its query, which does nothing, and its bulletin."""
    monkeypatch.setattr("consumer.monitoring.monitor._CHECK_SECONDS", 0.05)
    often = lake_settings.monitor.model_copy(update={"seconds": 0.2})
    settings = lake_settings.model_copy(update={"monitor": often})
    query, bulletin = Still(), Bulletin()
    monitor = Monitor(settings, [query], ["events"], available_now=False)
    thread = threading.Thread(target=monitor.watch, daemon=True)
    thread.start()
    yield monitor, query, bulletin
    monitor.ending.set()
    thread.join()
    assert monitor.why_not_ready == "stopping"


def answer(monitor: Monitor, path: str, method: str = "GET") -> tuple[str, str]:
    lines: list[str] = []
    body = monitor.answer({"PATH_INFO": path, "REQUEST_METHOD": method}, lambda line, headers: lines.append(line[:3]))
    return lines[0], b"".join(body).decode()


def test_an_application_is_ready_while_its_queries_run_and_the_lake_responds(
    still: tuple[Monitor, Still, Bulletin], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, query, bulletin = still
    running: dict[str, Any] = {"still": query}
    assert answer(monitor, "/readyz") == ("503", '{"status": "starting"}')
    with monkeypatch.context() as patch:
        looks = threading.Event()
        patch.setattr(
            "consumer.monitoring.monitor.status", lambda *given, **more: looks.wait(PATIENCE) and status(*given, **more)
        )
        monitor.started(running, bulletin)
        assert answer(monitor, "/readyz")[0] == "503"  # no look has finished
        looks.set()
    until(lambda: answer(monitor, "/readyz") == ("200", '{"status": "ready"}'))
    assert answer(monitor, "/readyz", "POST")[0] == "405"

    query.paused = PausedError("too many units are bad.", "Decide.")
    assert answer(monitor, "/readyz") == ("503", '{"status": "paused: still"}')
    # It has ended, and the application waits for its followers: a restart would interrupt them, and pause again.
    query.has_ended = True
    for _ in range(10):
        assert answer(monitor, "/healthz")[0] == "200"
        time.sleep(0.05)
    assert answer(monitor, "/readyz") == ("503", '{"status": "paused: still"}')
    query.has_ended, query.paused = False, None

    # The lake is unavailable for a moment: the last look is shown, and the queries report nothing. Then for longer.
    before = monitor.metrics.looks.newest
    assert before
    with monkeypatch.context() as patch:
        patch.setattr(
            "consumer.monitoring.monitor.status", fail_with(UnavailableError("The catalog is away.", "Start it."))
        )
        until(lambda: "metrics_errors_total 0.0" not in answer(monitor, "/metrics")[1])
        found = Scrape(answer(monitor, "/metrics")[1])
        assert found("look_timestamp_seconds") >= before.at.timestamp()
        until(lambda: answer(monitor, "/readyz") == ("503", '{"status": "The catalog is away."}'))
        assert answer(monitor, "/healthz")[0] == "200"  # a restart would not help
    until(lambda: answer(monitor, "/readyz")[0] == "200")
    with monkeypatch.context() as patch:
        patch.setattr("consumer.monitoring.monitor.status", fail_with(ZeroDivisionError("s://u:secret@h\nmore")))
        until(lambda: answer(monitor, "/readyz") == ("503", '{"status": "ZeroDivisionError: s://u:***@h"}'))
    until(lambda: answer(monitor, "/readyz")[0] == "200")

    # The application notices a thread that has ended, and stops. If it does not, it hangs.
    query.has_ended = True
    until(lambda: answer(monitor, "/healthz") == ("503", '{"status": "still has ended"}'))
    assert answer(monitor, "/readyz")[0] == "503"
    bulletin.stop()
    until(lambda: answer(monitor, "/healthz")[0] == "200")
    assert answer(monitor, "/readyz") == ("503", '{"status": "stopping"}')


def test_a_file_that_is_being_edited_hides_no_query(lake_settings: Settings, tmp_path: Path) -> None:
    settings = changed(lake_settings, LAKE_GOLD=tmp_path / "gold")
    ensure_tables(open_catalog(settings), load_contract(settings.contracts, "events"))
    monitor = Monitor(settings, [], ["events"], available_now=False)
    monitor._look()
    before = monitor.metrics.looks.newest
    assert before
    assert [each.query for each in before.queries] == ["bronze-events"]
    settings.gold.mkdir()
    (settings.gold / "new.yaml").write_text("measures: {n: [count")
    monitor._look()
    assert monitor.metrics.looks.newest is before
    assert "new.yaml" in monitor._problem


def test_a_topic_that_is_no_longer_filled_is_neither_stale_nor_failed(lake_settings: Settings) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    positions, table = SinkPositions(lake_settings.state.database), "dead_letters.events"
    marker = Committed(Marker("", 0, "", "0", "1"), 0, 0).as_text()
    for topic in ("old", "new"):
        positions.record(f"{table}-to-{topic}", table, SinkPosition("t", topic, marker), None)
    query = Still()
    query.name = f"{table}-to-new"
    query.lease_name = sink_lease(query.name)
    monitor = Monitor(lake_settings, [query], ["events"], available_now=False)
    monitor._look()
    assert monitor.metrics.looks.newest
    assert [each.query for each in monitor.metrics.looks.newest.queries] == ["bronze-events", query.name]
    found = status(lake_settings, ["events"])  # which also says what is stopped
    assert [each.query for each in found] == ["bronze-events", query.name, f"{table}-to-old"]


def fail_with(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_look_that_hangs_keeps_nobody_waiting(
    still: tuple[Monitor, Still, Bulletin], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, _, bulletin = still
    goes_on = threading.Event()
    monkeypatch.setattr("consumer.monitoring.monitor.status", lambda *_, **__: goes_on.wait(120) and [])
    monitor.started({}, bulletin)
    began = time.monotonic()
    assert answer(monitor, "/metrics")[0] == "200"
    assert answer(monitor, "/healthz")[0] == "200"
    assert answer(monitor, "/readyz")[0] == "503"
    assert time.monotonic() - began < 60
    goes_on.set()
    until(lambda: answer(monitor, "/readyz")[0] == "200")


def test_labels_are_escaped_and_not_too_many_and_no_line_is_too_strange() -> None:
    metrics = Metrics([], lambda: True)
    line: dict[str, Any] = {"event": "micro-batch", "query": 'a"b\\c\n', "phases": {"compute": 1}, "bronze": 5}
    assert metrics(None, "info", dict(line)) == line
    for number in range(150):
        metrics(None, "info", {**line, "query": "q", "reasons": {f"r{number}": 2}})
        metrics(None, "warning", {"event": f"w{number}"})
    metrics(None, "info", {**line, "query": "q", "reasons": {"x" * 1000: 2}})
    metrics(None, "info", {**line, "query": "other", "reasons": {"r149": 1}})
    for strange in ({}, {"event": 3}, {"phases": 1}, {"event": "maintained", "compacted": 1}, {**line, "reasons": 7}):
        assert metrics(None, "info", dict(strange)) == strange
    found = Scrape(generate_latest(metrics.registry).decode())
    assert found("rows_total", query='a"b\\c\n', outcome="bronze") == 10  # with the rows of the last strange line
    assert found("dead_letters_total", query="q", reasons="r99") == 2
    assert found("dead_letters_total", query="q", reasons=OTHER) == 102
    assert found("dead_letters_total", query="other", reasons="r149") == 1
    assert len(found.of("warnings_total", "event")) == 101
    assert found("warnings_total", event=OTHER) == 51  # 99 and the one that an alert counts have their own
    assert found("metrics_errors_total") == 3
    # As usual in Prometheus, a new process begins at 0.
    assert not Scrape(generate_latest(Metrics([], lambda: True).registry).decode()).of("rows_total", "query")


def test_maintenance_and_the_breaker_are_counted() -> None:
    metrics = Metrics([], lambda: True)
    done = {"event": "maintained", "table": "bronze.events", "problem": "", "busy": "", "orphans": 2}
    compacted = [{"before": {"files": 7, "seconds": 1}, "after": {"files": 1, "seconds": 1}, "rows": 70}]
    metrics(None, "info", {**done, "compacted": compacted})
    metrics(None, "info", {**done, "compacted": [], "busy": "a writer"})
    metrics(None, "warning", {**done, "event": "maintenance failed", "compacted": [], "problem": "no space"})
    metrics(None, "warning", {"event": "maintenance failed", "problem": "The catalog is away."})
    metrics(None, "warning", {"event": "breaker tripped", "stream": "events", "action": "warn"})
    found = Scrape(generate_latest(metrics.registry).decode())
    for outcome in ("done", "busy", "failed"):
        assert found("maintenance_total", table="bronze.events", outcome=outcome) == 1
        assert found("maintenance_last_timestamp_seconds", table="bronze.events", outcome=outcome) > 1e9
    assert found("maintenance_total", table="", outcome="failed") == 1
    assert found("maintenance_compacted_files_total", table="bronze.events") == 7
    assert found("maintenance_proven_rows_total", table="bronze.events") == 70
    assert found("maintenance_removed_orphans_total", table="bronze.events") == 6
    assert found("breaker_trips_total", query="bronze-events", action="warn") == 1


def test_what_is_not_known_has_no_series_and_what_is_gone_loses_its_own() -> None:
    query = Still()
    query.retries = 3
    metrics = Metrics([query], lambda: True)
    breaker = {"state": "warned", "at": NOON}
    seen = QueryStatus("q", Doing.PAUSED, 7, "files", lag_seconds=2.5, freshness_seconds=4.5, breaker=breaker)
    away = QueryStatus("q", Doing.RUNNING, None, "messages", problem="Kafka does not respond.")
    size = TableSize("t", 1, 2, 3, 4, None, NOON)

    def scrape(*found: QueryStatus, tables: Sequence[TableSize] = ()) -> Scrape:
        metrics.looks.newest = Look(NOON, 0.5, found, tables)
        return Scrape(generate_latest(metrics.registry).decode())

    found = scrape(seen, tables=[size])
    assert found("retries_total", query="still") == 3
    assert found("lag", query="q", unit="files") == 7
    assert (found("lag_seconds", query="q"), found("freshness_seconds", query="q")) == (2.5, 4.5)
    assert found("breaker_timestamp_seconds", query="q", state="warned") == NOON.timestamp()
    assert found.of("query_state", "state") == {"running": 0, "stopped": 0, "paused": 1, "failed": 0}
    assert found("table_rewritten_timestamp_seconds", table="t") == NOON.timestamp()
    assert (found("table_files", table="t"), found.of("table_small_files", "table")) == (2, {})
    found = scrape(away)
    for gone in (
        "lag",
        "lag_seconds",
        "freshness_seconds",
        "breaker_timestamp_seconds",
        "last_commit_timestamp_seconds",
    ):
        assert found.of(gone, "query") == {}, gone
    assert found("query_state", query="q", state="running") == 1
    assert found.of("table_rows", "table") == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_it_listens_where_it_is_asked_to_and_slow_clients_keep_nobody_waiting(
    lake_settings: Settings, host: str
) -> None:
    settings = changed(lake_settings, LAKE_METRICS=f"{host}:{free_port()}")
    place = settings.monitor.metrics
    with monitored(settings, [], ["events"], available_now=True):
        slow = [socket.create_connection((host.strip("[]"), int(str(place).rpartition(":")[2]))) for _ in range(20)]
        for each in slow:
            each.sendall(b"GET /metr")
        assert "consumer_ready 0.0" in get(f"http://{place}", "/metrics")[1]
        with (
            pytest.raises(UnavailableError, match=rf"Cannot serve metrics at {re.escape(str(place))}: Address already"),
            monitored(settings, [], ["events"], available_now=True),
        ):
            pass
        for each in slow:
            each.close()
    with monitored(settings, [], ["events"], available_now=True):  # the port is free again
        pass


def test_a_port_that_is_taken_is_refused_before_spark_is_started(lake_settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        own = {name: str(value) for name, value in variables(changed(lake_settings, LAKE_METRICS=place)).items()}
        (lake_settings.home / "landing" / "events").mkdir(parents=True)
        done = subprocess.run(
            [*forked("consumer"), "run", "events"], env=os.environ | own, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    said = json.loads(line)
    assert said["message"] == f"Cannot serve metrics at {place}: Address already in use."
    assert "LAKE_METRICS" in said["hint"]


@pytest.mark.parametrize("text", ["9108", "localhost", "localhost:port", "127.0.0.1:70000", "http://localhost:9108"])
def test_an_address_that_is_none_is_refused(lake_settings: Settings, text: str) -> None:
    with pytest.raises(UsageError, match=r"LAKE_METRICS: expected HOST:PORT"):
        changed(lake_settings, LAKE_METRICS=text)


def test_rules_and_configuration_are_as_prometheus_and_grafana_take_them() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert {"severity"} == rule["labels"].keys()
    labels = {name for rule in rules for name in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])}
    assert labels == {"instance", "query", "state", "stream", "table"}
    # A consumer that fails takes its metrics with it, so its end is seen by its start, its answer and its address.
    exprs = {rule["alert"]: rule["expr"] for rule in rules}
    new = Scrape(generate_latest(Metrics([], lambda: True).registry).decode())
    increases = re.findall(r"increase\(consumer_(\w+)\{([^}]*)\}", "\n".join(exprs.values()))
    assert increases
    for name, text in increases:  # the first of something is an increase only if there was a 0 before
        assert new(name, **dict(re.findall(r'(\w+)="([^"]*)"', text))) == 0
    (factor,) = re.findall(r"> 600 \+ (\d+) \* consumer_look_seconds", exprs["LooksFail"])
    assert int(factor) > _SHARE + 1  # so long after the last look, the next one ends
    assert exprs["ConsumerRestarts"].startswith('changes(process_start_time_seconds{job="consumer"}')
    assert exprs["ConsumerGone"] == 'max_over_time(up{job="consumer"}[1h]) unless up{job="consumer"}'
    (consumer,) = (
        each
        for each in yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
        if each["job_name"] == "consumer"
    )
    assert {"source_labels": ["__meta_dns_name"], "target_label": "instance"} in consumer["relabel_configs"]
    board = json.loads((MONITORING / "dashboard.json").read_text())
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in board["panels"]})
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    (command,) = (each for each in blocks("docs/operations/monitor.md", "text") if each.startswith("docker"))
    assert {name for name, each in services.items() if each.get("profiles") == ["monitoring"]} == {
        *command.split()[-2:]
    }
    if promtool := shutil.which("promtool"):
        for command in (["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"]):
            done = subprocess.run([promtool, *command], cwd=MONITORING, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
