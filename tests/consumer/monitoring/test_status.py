"""`consumer status`: which queries are running, stopped or failed, and how far behind, according to the lake itself."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from sqlalchemy import insert
from tests.consumer.lake import Drain, SessionOf
from tests.consumer.layers.silver.lakes import NOON, decide_all, land
from tests.lakes import changed, variables
from tests.messages import event, send
from tests.operations import tables
from tests.programs import forked
from tests.servers import PATIENCE, KafkaServer, free_port

from consumer.iceberg.marker import Committed, Marker, committed, property_of
from consumer.modes.checkpoint import Checkpoint, Commit, Counts
from consumer.monitoring.query_status import Doing, QueryStatus, exit_code
from consumer.monitoring.status import _Filled, status
from consumer.monitoring.status_table import watch, write_table
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import alerts_queries, checkpoint_folder
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.gold.product_file import load_product
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.kafka.modes import ModeName, mode_of
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded, record_topic
from lakeproof.kafka.topic import Topic
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.database import open_database, transaction
from lakeproof.state.failures import clear_failures, record_failure
from lakeproof.state.landing_log import LandingLog
from lakeproof.state.lease import alerts_lease, gold_lease, lease, mode_lease, this_host
from lakeproof.state.schema import LEASES
from lakeproof.state.sink_positions import SinkPosition, SinkPositions, sink_lease
from lakeproof.storage.local import local_path
from lakeproof.tables.names import gold_query, gold_table, samples_tables, silver_query, silver_tables
from lakeproof.tables.schemas import (
    ensure_namespace,
    ensure_samples_tables,
    ensure_silver_tables,
    ensure_tables,
    gold_schema,
)

ROOT = Path(__file__).parents[3]
SINK = "silver.events-to-acme"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_what_waits_is_old_after_its_snapshot_has_expired(lake_settings: Settings) -> None:
    catalog, rows = open_catalog(lake_settings), pa.table({"id": [1]})
    catalog.create_namespace("silver")
    table = catalog.create_table("silver.things", rows.schema)
    markers = [Committed(Marker("c", number, "d", f"{number}", f"{number + 1}"), 0, 0) for number in range(3)]
    for each in markers:
        table.append(rows, snapshot_properties={property_of("q"): each.as_text()})
    table.append(rows)  # as a compaction, without a marker
    times = [EPOCH + timedelta(milliseconds=each.timestamp_ms) for each in table.snapshots()]

    def filled() -> _Filled:
        return _Filled(catalog.load_table("silver.things"), "q")

    def first_after(follower: Committed | None) -> datetime | None:
        return filled().first_after(follower)

    with table.transaction() as properties:
        properties.set_properties({property_of("q"): markers[-1].as_text()})
    assert filled().status(0).last_commit == times[2]
    assert [first_after(each) for each in (None, *markers)] == [*times[:3], None]
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:2]]).commit()
    assert [first_after(each) for each in (None, *markers[:2])] == [times[2]] * 3  # at least so old
    table.refresh()
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    assert first_after(markers[0]) == times[3]  # and not unknown
    assert filled().status(0).last_commit == times[3]


def by_name(found: list[QueryStatus]) -> dict[str, QueryStatus]:
    return {each.query: each for each in found}


def leases(settings: Settings, *names: str) -> ExitStack:
    stack = ExitStack()
    for name in names:
        stack.enter_context(lease(settings.state.database, name))
    return stack


class OneSecond(timedelta):
    """A time that counts as a second, however long it is."""

    def total_seconds(self) -> float:
        return 1.0


@pytest.mark.spark
def test_a_lake_of_files(
    lake_settings: Settings, drain_directly: Drain, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.monitoring.status.RATE_OVER", OneSecond(hours=1))  # this test may take a minute
    settings = lake_settings
    land(settings, "1.json", ("a", NOON, "x"), ("b", NOON, "x"))
    drain_directly(settings)
    spark = session_of(settings)
    decide_all(spark, settings)
    tables.rewrite_data_files(spark, "bronze.events")
    land(settings, "2.json", ("c", NOON, "x"))
    drain_directly(settings)
    for name in ("3.json", "4.json", "_hidden.json"):
        land(settings, name, ("d", NOON, "x"))
    silver = open_catalog(settings).load_table("silver.events")
    marker = committed(silver.properties, silver_query("events"))
    assert marker
    positions = SinkPositions(settings.state.database)
    behind = replace(marker, marker=replace(marker.marker, micro_batch_id=-1))
    positions.record(SINK, "silver.events", SinkPosition("t", "k", behind.as_text()), None)

    found = by_name(status(settings, []))
    assert {name: (each.state, each.lag, each.unit) for name, each in found.items()} == {
        "bronze-events": (Doing.STOPPED, 2, "files"),
        "silver-events": (Doing.STOPPED, 1, "micro-batches"),
        SINK: (Doing.STOPPED, 1, "micro-batches"),
    }
    assert exit_code([*found.values()]) == 4
    bronze = found["bronze-events"]
    # Silver does not know files that bronze has not read; landed files wait for both, and longest for the sink.
    for name in ("bronze-events", "silver-events", SINK):
        assert 0 < (found[name].lag_seconds or 0) <= (found[name].freshness_seconds or 0) < 300, name
    assert found["bronze-events"].freshness_seconds < found["silver-events"].freshness_seconds  # type: ignore[operator]
    assert bronze.rows_per_second == 3  # rows that compaction rewrote do not count
    assert bronze.last_commit
    assert timedelta(0) < datetime.now(UTC) - bronze.last_commit < timedelta(minutes=5)
    assert found["silver-events"].watermark == NOON
    assert found[SINK].rows_per_second is None

    with leases(settings, "events", "silver.events", sink_lease(SINK)):
        running = status(settings, ["events"])
        assert {each.state for each in running} == {Doing.RUNNING}
        assert exit_code(running) == 0
    record_failure(settings.state.database, "silver.events", LakeproofError("no space left.", "Clean up."))
    found = by_name(status(settings, []))
    assert (found["silver-events"].state, found["silver-events"].problem) == (Doing.FAILED, "no space left.")
    assert exit_code([*found.values()]) == 1
    clear_failures(settings.state.database, ["silver.events"])
    assert exit_code(status(settings, [])) == 4
    kill(settings, sink_lease(SINK))
    found = by_name(status(settings, []))
    assert (found[SINK].state, found[SINK].problem) == (Doing.FAILED, "It was killed, or its machine died.")

    # A product whose field was renamed in the contract hides no query, not even its own.
    broken = settings.model_copy(update={"gold": settings.home / "gold"})
    broken.gold.mkdir()
    product = "name: visits\nsilver: events\nkeys: [visitor]\nwindow: {size: 1 hour}\nmeasures: {n: count(*)}\n"
    (broken.gold / "visits.yaml").write_text(product)
    assert gold_query("visits") not in by_name(status(broken, []))  # it has no table
    catalog = open_catalog(settings)
    catalog.create_namespace_if_not_exists("gold")
    catalog.create_table("gold.visits", catalog.load_table("silver.events").schema())
    found = by_name(status(broken, []))
    assert "unknown field 'visitor'" in found[gold_query("visits")].problem
    assert {"bronze-events", "silver-events", SINK} < found.keys()
    catalog.drop_table("gold.visits")

    done = run(settings, "status", "--json")
    assert done.returncode == 1, done.stderr
    assert [each["query"] for each in json.loads(done.stdout)] == ["bronze-events", "silver-events", SINK]
    done = run(settings, "status", "events")
    assert done.returncode == 1
    assert "2 files" in done.stdout
    assert f"{SINK}: It was killed" in done.stdout


def kill(settings: Settings, name: str) -> None:
    """Leave a lease behind, as a consumer that was killed a moment ago."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    row = {"holder": "h", "host": this_host(), "pid": dead.pid, "started": 1.0, "expires_at": time.time() + 30}
    with transaction(open_database(settings.state.database)) as connection:
        connection.execute(LEASES.delete().where(LEASES.c.stream == name))
        connection.execute(insert(LEASES), row | {"stream": name})


def run(settings: Settings, *arguments: str) -> "subprocess.CompletedProcess[str]":
    own = {name: str(value) for name, value in variables(settings).items()}
    command = [*forked("consumer"), *arguments]
    environment = os.environ | own | {"COLUMNS": "200"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.s3
def test_a_look_at_what_is_recent_on_s3_lists_no_older_keys(
    s3_lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = s3_lake_settings
    monkeypatch.setattr("consumer.monitoring.lag._RECENT_FILES", 3)
    ensure_tables(open_catalog(settings), load_contract(settings.contracts, "events"))
    zone = landing_zone(settings, "events")
    names = [f"{number:02}.json" for number in range(10)]
    for name in names:
        zone.storage.write_new(zone.uri_of(name), b"[]")
    (bronze,) = status(settings, ["events"], recent=True)
    assert (bronze.lag, bronze.unit) == (10, "files")
    log = LandingLog(settings.state.database, "events")
    log.append(zone.list())
    assert log.known_among([*names, "others"]) == {*names}
    for name in ("000.json", "08a.json", "11.json", "_12.json"):  # the first one is left to the consumer's sweep
        zone.storage.write_new(zone.uri_of(name), b"[]")
    assert [each.lag for each in status(settings, ["events"], recent=True)] == [12]
    assert [each.lag for each in status(settings, ["events"])] == [13]


@pytest.mark.all
def test_a_lake_of_a_topic(lake_settings: Settings, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeproof.kafka.topic._OLDEST_SECONDS", PATIENCE)  # the age is unknown if brokers are slow
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers)
    topic = kafka.new_topic(2)
    send(kafka, topic, [event(number) for number in range(5)])
    send(kafka, topic, [event(number) for number in range(3)], partition=1)
    catalog = open_catalog(settings)
    ensure_tables(catalog, load_contract(settings.contracts, "events"))
    topic_id, _ = Topic(settings.kafka, topic).identity()
    record_topic(catalog, "events", Recorded(topic_id, Offsets.of(topic, {0: 4})))
    (bronze,) = status(settings, ["events"])
    assert (bronze.state, bronze.lag, bronze.unit) == (Doing.STOPPED, 4, "messages")
    assert 0 < (bronze.lag_seconds or 0) < 300
    waiting = bronze.lag_seconds
    send(kafka, topic, [event(9)])  # a newer message does not change how long the oldest one waits
    (bronze,) = status(settings, ["events"])
    assert bronze.lag == 5
    assert (bronze.lag_seconds or 0) > (waiting or 0)
    away = changed(settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port()}", LAKE_KAFKA_TIMEOUT_SECONDS=1)
    (bronze,) = found = status(away, ["events"])
    assert bronze.lag is bronze.lag_seconds is bronze.freshness_seconds is None
    assert "does not respond" in bronze.problem
    out = StringIO()
    write_table(found, out)
    assert "│ ?" in out.getvalue()


@pytest.mark.all
def test_modes(lake_settings: Settings, kafka: KafkaServer) -> None:
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers)
    topic = kafka.new_topic()
    send(kafka, topic, [event(number) for number in range(5)])
    with pytest.raises(UsageError, match=r"dedupe has not run yet.*\n.*consumer run dedupe"):
        status(settings, ["dedupe"])
    topic_id, _ = Topic(settings.kafka, topic).identity()
    for name in (ModeName.DEDUPE, ModeName.WINDOWS):
        own = {f"LAKE_{name.upper()}_TOPIC": topic, f"LAKE_{name.upper()}_KAFKA": "sink"}
        mode = mode_of(name, changed(settings, **own))
        checkpoint = Checkpoint(mode.checkpoint, settings.s3)
        checkpoint.create(mode, topic_id, Offsets.of(topic, {}))
        with leases(settings, mode_lease(name, mode.checkpoint)):
            (running,) = status(settings, [name])
        assert (running.state, running.lag, running.last_commit) == (Doing.RUNNING, 5, None)
    watermark = int(NOON.timestamp()) * 1_000_000
    counts = Counts(kept=2, duplicates=1)
    checkpoint.commit(Commit(0, "id", Offsets.of(topic, {0: 3}), watermark, counts=counts, totals=counts))
    dedupe, windows = status(settings, [])  # there is no lake
    assert (dedupe.lag, windows.lag, windows.unit) == (5, 2, "messages")
    assert (windows.watermark, windows.rows_per_second) == (NOON, 0.0)
    assert windows.query == f"windows {mode.checkpoint}"
    assert windows.last_commit
    # The refusal of another pipeline of the mode does not affect this one.
    record_failure(settings.state.database, mode_lease("windows", "file:///other"), LakeproofError("no topic.", ""))
    assert {each.state for each in status(settings, [])} == {Doing.STOPPED}
    own = mode_lease("windows", mode.checkpoint)
    record_failure(settings.state.database, own, LakeproofError("no space left.", "Clean up."))
    dedupe, windows = status(settings, [])
    assert (dedupe.state, windows.state, windows.problem) == (Doing.STOPPED, Doing.FAILED, "no space left.")
    kafka.delete_topic(topic)
    (dedupe,) = status(settings, ["dedupe"])
    assert dedupe.lag is None
    assert f"has no topic {topic}" in dedupe.problem
    shutil.rmtree(local_path(mode.checkpoint))
    assert [each.query.partition(" ")[0] for each in status(settings, [])] == ["dedupe"]


def mark(catalog: Catalog, table: str, query: str, micro_batch: int, at: datetime) -> None:
    """Commit nothing but a marker whose contents are a time."""
    contents = str(int(at.timestamp()) * 1_000_000)
    text = Committed(Marker("", micro_batch, "", "0", str(micro_batch + 1), contents=contents), 1, 1).as_text()
    loaded = catalog.load_table(table)
    loaded.append(loaded.schema().as_arrow().empty_table(), snapshot_properties={property_of(query): text})
    with loaded.transaction() as transaction:
        transaction.set_properties({property_of(query): text})


@pytest.mark.parametrize(("size", "lag"), [("1 hour", 0), ("30 minutes", 3)])
def test_final_windows_are_behind_once_the_horizon_has_passed_one(
    lake_settings: Settings, tmp_path: Path, size: str, lag: int
) -> None:
    (tmp_path / "closed.yaml").write_text(
        f"name: closed\nsilver: events\nkeys: [user_id]\nwindow: {{size: {size}}}\npublish: final\n"
        "measures: {events: count(*)}\n"
    )
    settings = changed(lake_settings, LAKE_GOLD=str(tmp_path))
    catalog, contract = open_catalog(settings), load_contract(settings.contracts, "events")
    assert contract.silver
    assert contract.silver.horizon
    ensure_tables(catalog, contract)
    ensure_silver_tables(catalog, contract, silver_tables("events"))
    product = load_product(settings.gold, "closed", lambda _: contract)
    ensure_namespace(catalog, "gold")
    catalog.create_table(gold_table("closed"), gold_schema(product))

    def behind() -> int | None:
        return by_name(status(settings, []))[gold_query("closed")].lag

    assert behind() == 0  # nothing is decided
    mark(catalog, "silver.events", "silver-events", 2, NOON)
    assert behind() == 3
    mark(catalog, gold_table("closed"), gold_query("closed"), 2, NOON - contract.silver.horizon)
    assert behind() == 0
    mark(catalog, "silver.events", "silver-events", 5, NOON + timedelta(minutes=29))
    assert behind() == 0
    mark(catalog, "silver.events", "silver-events", 5, NOON + timedelta(minutes=31))
    assert behind() == lag


@pytest.mark.all
def test_samples_and_alerts(lake_settings: Settings, kafka: KafkaServer, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(number) for number in range(5)])
    product = tmp_path / "sensor_samples.yaml"
    product.write_text((ROOT / "gold" / "sensor_samples.yaml").read_text())
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, LAKE_GOLD=str(tmp_path))
    catalog, contract = open_catalog(settings), load_contract(settings.contracts, "sensors")
    ensure_tables(catalog, contract)
    ensure_silver_tables(catalog, contract, silver_tables("sensors"))
    topic_id, _ = Topic(settings.kafka, topic).identity()
    record_topic(catalog, "sensors", Recorded(topic_id, Offsets.of(topic, {0: 0})))
    (samples,) = load_all_samples(settings.gold, ["sensors"], lambda _: contract)
    assert by_name(status(settings, [])).keys() == {"bronze-sensors", "silver-sensors"}

    tables = samples_tables(samples.name, samples.anomalies)
    ensure_samples_tables(catalog, samples, tables)
    query, lease_name = gold_query(samples.name), gold_lease(samples.name)
    assert by_name(status(settings, []))[query].lag == 0

    mark(catalog, "silver.sensors", "silver-sensors", 2, NOON)
    assert by_name(status(settings, []))[query].lag == 3
    horizon = NOON - timedelta(seconds=30)
    mark(catalog, tables.samples, query, 1, horizon)
    found = by_name(status(settings, []))[query]
    assert (found.state, found.lag, found.watermark) == (Doing.STOPPED, 0, horizon)  # the horizon has not moved
    assert found.last_commit
    mark(catalog, "silver.sensors", "silver-sensors", 4, NOON + timedelta(seconds=1))
    record_failure(settings.state.database, lease_name, LakeproofError("no space left.", "Clean up."))
    found = by_name(status(settings, []))[query]
    assert (found.state, found.lag, found.problem) == (Doing.FAILED, 3, "no space left.")

    names = alerts_queries(samples.name)
    with leases(settings, alerts_lease(samples.name)):
        alerts = by_name(status(settings, []))[names[0]]
    assert (alerts.state, alerts.lag, alerts.last_commit) == (Doing.RUNNING, None, None)  # in real time
    for name, offset in zip(names, (4, 3), strict=True):
        root = local_path(checkpoint_folder(settings, name))
        for file, text in (("offsets/0", f'v1\n{{}}\n{{"{topic}":{{"0":{offset}}}}}'), ("commits/0", "v1\n{}")):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text)
    alerts = by_name(status(settings, []))[names[0]]
    assert (alerts.state, alerts.lag, alerts.unit) == (Doing.STOPPED, 2, "messages")
    assert alerts.last_commit
    product.write_text(product.read_text().replace("real_time", "micro_batch"))
    with leases(settings, alerts_lease(samples.name)):
        alerts = by_name(status(settings, []))[names[0]]
    assert (alerts.state, alerts.lag) == (Doing.RUNNING, 2)
    kafka.delete_topic(topic)
    assert f"has no topic {topic}" in by_name(status(settings, []))[names[0]].problem


@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_no_name_is_cut_off_to_fit(monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    name = "dead_letters.clickstream-to-clickstream.dead_letters.of.production"
    found = [QueryStatus(name, Doing.RUNNING, 1_234, last_commit=NOON, watermark=NOON, rows_per_second=1.5)]
    write_table(found, out := StringIO())
    lines = out.getvalue().splitlines()
    assert any(name in line for line in lines)
    for cell in ("running", "1,234 micro-batches", "1.5", f"{NOON:%Y-%m-%d %H:%M:%S}"):
        assert any(cell in line for line in lines), cell


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("out", [StringIO(), Terminal()], ids=["pipe", "terminal"])
def test_watching_goes_on_while_the_lake_is_away(monkeypatch: pytest.MonkeyPatch, out: StringIO) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    away = UnavailableError("[b]The catalog[/b] is away.", "Start it.")
    wrong = UsageError("gold/new.yaml is wrong.", "Correct it.")
    found: list[Any] = [[QueryStatus(f"q{number}", Doing.RUNNING, number)] for number in (1, 2)]
    looks = iter([away, found[0], away, wrong, found[1], KeyboardInterrupt(), wrong])

    def look() -> list[QueryStatus]:
        if isinstance(each := next(looks), BaseException):
            raise each
        return each

    with pytest.raises(KeyboardInterrupt):
        watch(look, 0.01, out)
    shown = out.getvalue()
    for text in ("q1", "[b]The catalog[/b] is away.", "Start it.", "is wrong", "2 micro-batches", "every 0.01 s"):
        assert text in shown
    with pytest.raises(UsageError, match="is wrong"):  # from the beginning
        watch(look, 0.01, out)
    assert ("\x1b" in shown) == out.isatty()  # replaces the lines before


@pytest.mark.all
def test_watching_is_for_people(lake_settings: Settings) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    (lake_settings.home / "landing" / "events").mkdir(parents=True)
    assert "--json cannot be used with --watch" in run(lake_settings, "status", "--json", "--watch").stderr
    assert "Add --watch" in run(lake_settings, "status", "--every", "1").stderr
    own = {name: str(value) for name, value in variables(lake_settings).items()}
    command = [sys.executable, "-m", "consumer", "status", "events", "--watch", "--every", "0.1"]
    with subprocess.Popen(command, env=os.environ | own, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout
        seen = 0
        while seen < 3:
            seen += "every 0.1 s" in next(watching.stdout)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE) == 130


def test_a_lake_without_tables(lake_settings: Settings) -> None:
    with pytest.raises(UsageError, match="No stream has tables yet"):
        status(lake_settings, [])


def test_it_does_without_spark(tmp_path: Path) -> None:
    script = "import sys, consumer.cli, consumer.monitoring.status; sys.exit('pyspark' in sys.modules)"
    done: Any = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert done.returncode == 0
