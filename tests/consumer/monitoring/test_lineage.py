"""OpenLineage events of an application, as a server gets them over HTTP, and the application without such a server."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import structlog
from tests.consumer.lake import Drain, SessionOf
from tests.consumer.monitoring.test_monitor import RECORDS, Still, until
from tests.lakes import changed
from tests.messages import send
from tests.servers import PATIENCE, KafkaServer, free_port

from consumer.layers.registry import layers_of
from consumer.monitoring.lineage import traced
from consumer.queries.application import Query, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from consumer.scope import scope_of_run
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings
from lakeproof.state.failures import record_failure
from lakeproof.tables.schemas import ensure_tables

NOW = Trigger(available_now=True)
FACETS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {"_producer": {"format": "uri"}, "_schemaURL": {"format": "uri"}},
    },
}
DATASETS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {
            "namespace": {"type": "string", "minLength": 1},
            "name": {"type": "string", "minLength": 1},
            "facets": FACETS,
            "inputFacets": FACETS,
            "outputFacets": FACETS,
        },
        "additionalProperties": False,
    },
}
EVENT = {
    "type": "object",
    "required": ["eventType", "eventTime", "producer", "schemaURL", "run", "job", "inputs", "outputs"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]},
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {"type": "string", "pattern": r"OpenLineage\.json#/\$defs/RunEvent$"},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": FACETS},
        },
        "job": {
            "type": "object",
            "required": ["namespace", "name"],
            "properties": {"namespace": {"type": "string"}, "name": {"type": "string"}, "facets": FACETS},
        },
        "inputs": DATASETS,
        "outputs": DATASETS,
    },
    "additionalProperties": False,
}
"""JSON schema that the specification requires of the event of a run."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the end of a run wait for its last events for as long as a busy machine needs."""
    monkeypatch.setattr("consumer.monitoring.lineage._END_SECONDS", PATIENCE)


@contextmanager
def receiver(status: int = 201) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run a server that accepts events; yield its address and the events."""
    found: list[dict[str, Any]] = []

    class Takes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if status < 300:
                found.append(event)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Takes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", found
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Yield the events that a server gets."""
    with receiver() as (address, found):
        monkeypatch.setenv("OPENLINEAGE_URL", address)
        yield found
        for each in found:
            jsonschema.validate(each, EVENT, format_checker=jsonschema.FormatChecker())
            assert datetime.fromisoformat(each["eventTime"]).tzinfo
        runs = {each["job"]["name"]: each["run"]["runId"] for each in found}
        assert {each["run"]["runId"] for each in found} == set(runs.values())  # one for each query


def of(events: list[dict[str, Any]], query: str) -> dict[str, dict[str, Any]]:
    """Return the events of a query by type."""
    return {each["eventType"]: each for each in events if each["job"]["name"] == query}


def places(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in datasets]


def written(event: dict[str, Any]) -> dict[str, int]:
    """Return row counts by table."""
    return {
        each["facets"]["symlinks"]["identifiers"][0]["name"]: each["outputFacets"]["outputStatistics"]["rowCount"]
        for each in event["outputs"]
    }


@pytest.mark.spark
def test_lineage_from_files_to_gold(
    lake_settings: Settings, session_of: SessionOf, drain_directly: Drain, events: list[dict[str, Any]]
) -> None:
    settings = changed(lake_settings, LAKE_SETTLE_SECONDS=0, LAKE_LINEAGE_SECONDS=86_400)  # no event while it runs
    landing = settings.home / "landing" / "events"
    landing.mkdir(parents=True)
    (landing / "0.json").write_bytes(b"[" + b",".join(RECORDS[:2]) + b"]")
    drain_directly(settings)  # commits of an earlier run are not counted
    (landing / "1.json").write_bytes(b"[" + b",".join(RECORDS[2:]) + b"]")
    queries: list[Query] = [BronzeQuery(settings, "events", NOW)]
    queries += [LayerQuery(settings, layer, NOW) for layer in layers_of(scope_of_run(settings, ["events"], None))]
    with traced(settings, queries, available_now=True) as started:
        run_queries(settings, queries, lambda: session_of(settings), available_now=True, started=[started])
    assert [each["eventType"] for each in events] == ["START"] * 3 + ["COMPLETE"] * 3
    bronze, silver, gold = (of(events, query.name)["COMPLETE"] for query in queries)
    assert written(bronze) == {"bronze.events": 1, "dead_letters.events": 1, "ledger.events": 1}
    assert written(silver)["silver.events"] == 2  # and a duplicate
    assert places(bronze["inputs"]) == [("file", str(landing))]
    assert places(silver["inputs"]) == places(bronze["outputs"])[:1]
    assert places(gold["inputs"])[0] in places(silver["outputs"])
    fields = {each["name"]: each for each in bronze["outputs"][1]["facets"]["schema"]["fields"]}
    assert fields["raw"]["type"] == "binary"
    (element,) = fields["reasons"]["fields"]
    assert {each["name"] for each in element["fields"]} == {"code", "path", "detail"}
    snapshot = open_catalog(settings).load_table("bronze.events").current_snapshot()
    assert snapshot
    assert bronze["outputs"][0]["facets"]["version"]["datasetVersion"] == str(snapshot.snapshot_id)
    assert bronze["job"]["namespace"] == "lakeproof"
    assert bronze["job"]["facets"]["jobType"]["processingType"] == "BATCH"


@pytest.mark.spark
def test_lineage_of_a_topic_and_the_end_of_a_run_that_failed(
    lake_settings: Settings, session_of: SessionOf, kafka: KafkaServer, events: list[dict[str, Any]]
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, RECORDS)
    settings = changed(
        lake_settings,
        LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
        LAKE_KAFKA_TOPIC=topic,
        OPENLINEAGE_NAMESPACE="shop",
    )
    query, still = BronzeQuery(settings, "events", NOW, "kafka"), Still()
    still.reads, still.writes = ["bronze.events"], ["silver.events", f"kafka:{topic}", "s3://bucket/a/b"]

    def run_and_fail() -> None:
        with traced(settings, [query, still], available_now=False) as started:
            run_queries(settings, [query], lambda: session_of(settings), available_now=True, started=[started])
            record_failure(settings.state.database, query.lease_name, LakeproofError("The disk is full.", "Clean up."))
            raise LakeproofError("The disk is full.")

    with pytest.raises(LakeproofError, match="full"):
        run_and_fail()
    failed, cut = of(events, query.name)["FAIL"], of(events, "still")["ABORT"]
    broker = f"kafka://{kafka.bootstrap_servers}"
    assert places(failed["inputs"]) == [(broker, topic)]
    assert written(failed)["bronze.events"] == 3
    assert failed["run"]["facets"]["errorMessage"]["message"] == "The disk is full."
    assert failed["job"]["namespace"] == "shop"
    assert failed["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert places(cut["inputs"]) == places(failed["outputs"])[:1]
    assert places(cut["outputs"]) == [(broker, topic), ("s3://bucket", "a/b")]  # silver has no table


@pytest.fixture
def still(lake_settings: Settings) -> tuple[Settings, Still]:
    """Return settings, and a query that writes to a table, without Spark."""
    often = lake_settings.monitor.model_copy(update={"lineage_seconds": 0.05})
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    query = Still()
    query.writes = ["bronze.events"]
    return lake_settings.model_copy(update={"monitor": often}), query


def commit(settings: Settings, query: str = "still") -> None:
    """Commit no rows, as a query does."""
    table = open_catalog(settings).load_table("bronze.events")
    table.append(table.scan().to_arrow(), snapshot_properties={f"lakeproof.marker.{query}": "{}"})


def test_an_event_while_it_runs_only_after_a_commit_of_its_own(
    still: tuple[Settings, Still], events: list[dict[str, Any]], tmp_path: Path
) -> None:
    settings, query = still
    commit(settings)  # by an earlier run
    with traced(settings, [query], available_now=False) as started:
        started({}, Bulletin())
        until(lambda: len(events) == 1)
        commit(settings, "another")
        commit(settings)
        until(lambda: len(events) == 2)
    assert [each["eventType"] for each in events] == ["START", "RUNNING", "COMPLETE"]


@pytest.mark.parametrize("kind", ["refuses", "fails", "hangs"])
def test_a_server_that_is_away_stops_nothing(
    still: tuple[Settings, Still], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    settings, query = still
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
    ran, waits = False, threading.Event()
    with receiver(500) as (address, _), structlog.testing.capture_logs() as logs:
        if kind == "hangs":
            monkeypatch.setattr("consumer.monitoring.lineage._END_SECONDS", 1.0)
            monkeypatch.setattr("consumer.monitoring.lineage.OpenLineageClient.emit", lambda *_: waits.wait())
        url = f"http://127.0.0.1:{free_port()}" if kind == "refuses" else address
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", url)
        with traced(settings, [query], available_now=False) as started:
            started({}, Bulletin())
            ran = kind == "hangs" or bool(until(lambda: logs))
    waits.set()
    for thread in threading.enumerate():
        if thread.name == "lineage":  # or it would send its last events within the next test
            thread.join(PATIENCE)
    assert ran
    assert [line["event"] for line in logs] == ["lineage was not sent"]  # once, not each time


def test_what_was_not_sent_while_a_server_was_away_is_sent_later(
    still: tuple[Settings, Still], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings, query = still
    sent: list[str] = []
    away = [True]

    def emit(_: object, event: Any) -> None:
        if away[0]:
            raise ConnectionError("away")
        sent.append(event.eventType.value)

    monkeypatch.setattr("consumer.monitoring.lineage.OpenLineageClient.emit", emit)
    with structlog.testing.capture_logs() as logs, traced(settings, [query], available_now=False) as started:
        started({}, Bulletin())
        until(lambda: logs)
        away[0] = False
        until(lambda: sent)
    assert sent == ["START", "COMPLETE"]


def test_without_a_server_events_are_in_the_log(
    still: tuple[Settings, Still], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, query = still
    monkeypatch.chdir(tmp_path)  # there is no openlineage.yml
    with structlog.testing.capture_logs() as logs, traced(settings, [query], available_now=False) as started:
        started({}, Bulletin())
    lines = [json.loads(line["message"]) for line in logs if line["event"] == "openlineage.client.transport.console"]
    assert [line["eventType"] for line in lines] == ["START", "COMPLETE"]


def test_a_wrong_configuration_is_refused(
    still: tuple[Settings, Still], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, query = still
    monkeypatch.chdir(tmp_path)
    (tmp_path / "openlineage.yml").write_text("transport: {type: pigeon}")
    with (
        pytest.raises(UsageError, match="OpenLineage cannot be configured"),
        traced(settings, [query], available_now=True),
    ):
        pass


def test_a_run_that_never_started_sends_nothing(still: tuple[Settings, Still], events: list[dict[str, Any]]) -> None:
    settings, query = still
    with pytest.raises(LakeproofError), traced(settings, [query], available_now=True):
        raise LakeproofError("The contract is wrong.")
    assert events == []
