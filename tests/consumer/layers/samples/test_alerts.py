"""Alerts agree with the judge, and survive kills of the query and of the broker."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from structlog.testing import capture_logs
from tests.consumer.layers.samples.lakes import TEXT, write_samples
from tests.judging import units_of
from tests.lakes import changed
from tests.messages import send
from tests.servers import PATIENCE, KafkaServer

from consumer.layers.samples.alerts import is_plain, other_alerts, plain_alerts, why_never_plain
from consumer.queries.alerts import AlertsQuery
from consumer.queries.trigger import Trigger
from lakeproof.contracts import Contract, TimeForm, TimeFormat, load_contract
from lakeproof.errors import UsageError
from lakeproof.gold.samples import AlertMode, Alerts, Samples
from lakeproof.judge.batch import Judge
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Limits, Settings

pytestmark = pytest.mark.spark

GOOD = '{"device_id": "d1", "sensor_freq": -1.5, "event_time": "2026-11-21T06:00:00Z"}'
DEVICES = ['"d"', '"ä\U0001f600"', '""', '"' + 64 * "x" + '"', '"' + 65 * "x" + '"', '"\\u0064"', "null", "5", '"a\tb"']
DEVICES += ["377412", "-0", "1.50", "1e400", "01", "true", "-", "{}", "[1]"]
DEVICES += ['"event_time\\": 1"', '"{}"', '"\\ud800"', '"a"b"']
VALUES = ["-1", "0", "-0.0", "0.5", "-1e5", "-1E-400", "1e400", "-1e400", "01", "-.5", "1.", "NaN", "-Infinity", '"-1"']
VALUES += ["null", "-0", "-1.7976931348623157e308", "-" + 400 * "9", "-1d", "-0x1", "[-1]", "-4.9e-324", "-0.1e-1"]
TIMES = ["2026-11-21T06:00:00Z", "2026-11-21T06:00:00.123456+05:30", "1999-12-31T23:59:59Z", "2026-02-30T00:00:00Z"]
TIMES += [
    "2026-11-21T24:00:00Z",
    "2026-11-21T06:00:00.1234567Z",
    "2026-11-21T06:00Z",
    "2026-11-21",
    "9999-12-31T23:59:59Z",
]
TIMES += ["2026-11-21T06:00:00-17:59", "2026-11-21T06:00:00+23:00", "2000-01-01T00:00:00Z", "2000-01-01T00:00:00+00:01"]
TIMES += ["2024-02-29T00:00:60Z", "0001-01-01T00:00:00Z", "2026-11-21T06:00:00+05", "2026-11-21t06:00:00Z"]
WHOLE = [
    "",
    "null",
    "[]",
    f"[{GOOD}]",
    f"[{GOOD}, {{}}, {GOOD}]",
    f"{GOOD}\n{GOOD}",
    f"{GOOD}\n",
    f"\ufeff{GOOD}",
    "{}",
]
WHOLE += [GOOD + "x", GOOD[:-1], GOOD.replace("{", "{ ").replace(":", " : "), GOOD.replace(",", ",\n")]
WHOLE += [GOOD.replace("}", ', "x": 1}'), GOOD.replace("}", ', "device_id": "e"}'), GOOD.replace("d1", "x\x00")]
WHOLE += [GOOD.replace("}", ',"sensor_freq": -2}'), GOOD.replace(", ", ","), GOOD + "  ", "  " + GOOD, GOOD + "\x0b"]


def values(chance: random.Random) -> list[bytes]:
    """Return messages of every kind: each odd value in an otherwise good record, in any order, and random mixtures."""
    made = [text.encode() for text in WHOLE]
    made += [GOOD.encode().replace(b"d1", b"\xff"), GOOD.encode().replace(b"d1", b"\xc3\xa9"), GOOD.encode("utf-16")]
    odd = [(device, "-1", TIMES[0]) for device in DEVICES] + [('"d"', value, TIMES[0]) for value in VALUES]
    odd += [('"d"', "-1", time_) for time_ in TIMES]
    odd += [(chance.choice(DEVICES), chance.choice(VALUES), chance.choice(TIMES)) for _ in range(600)]
    for device, value, time_ in odd:
        pairs = [f'"device_id":{device}', f'"sensor_freq": {value}', f'"event_time" :"{time_}"']
        chance.shuffle(pairs)
        made.append(("{" + chance.choice((",", ", ")).join(pairs) + "}").encode())
    return made


@pytest.fixture
def samples(lake_settings: Settings, tmp_path: Path) -> Samples:
    (tmp_path / "gold").mkdir()
    return write_samples(changed(lake_settings, LAKE_GOLD=str(tmp_path / "gold")), TEXT)


@pytest.fixture
def contract(lake_settings: Settings) -> Contract:
    return load_contract(lake_settings.contracts, "sensors")


def test_alerts_are_the_anomalies_that_the_consumer_would_land(
    spark: SparkSession, samples: Samples, contract: Contract
) -> None:
    samples = replace(samples, maximum=100.0)
    made = values(random.Random(3))
    rows = [(value, "t", 0, offset) for offset, value in enumerate(made)]
    messages = spark.createDataFrame(rows, "value binary, topic string, partition int, offset long")
    expected = {}
    for offset, value in enumerate(made):
        for unit in units_of(Judge(contract).judge(value)):
            if not unit["reasons"] and not 0 <= unit["sensor_freq"] <= 100:
                expected[f"{source_name('t', 0, offset)}/{unit['_position']}"] = unit
    assert len(expected) > 60
    plain = [json.loads(row.value) for row in plain_alerts(messages, samples, contract, Limits()).collect()]
    others = [json.loads(row.value) for row in other_alerts(messages, samples, contract, Limits()).collect()]
    found = {alert["id"]: alert for alert in plain + others}
    assert len(found) == len(plain) + len(others)
    assert found.keys() == expected.keys()
    assert len(plain) > 15
    assert len(others) > 15
    for name, alert in found.items():
        unit = expected[name]
        assert (alert["device_id"], alert["sensor_freq"]) == (unit["device_id"], unit["sensor_freq"])
        assert alert["event_time"] == unit["event_time"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert (alert["minimum"], alert["maximum"]) == (0, 100)
        assert alert["id"] == f"{alert['_source']}/{alert['_position']}"


@pytest.mark.all
def test_whatever_is_plain_is_good(spark: SparkSession, contract: Contract) -> None:
    made = values(random.Random(4))
    rows = spark.createDataFrame([(value,) for value in made], "value binary")
    plain = [row.plain for row in rows.select(is_plain(contract, Limits()).alias("plain")).collect()]
    good = [not any(unit["reasons"] for unit in units_of(Judge(contract).judge(value))) for value in made]
    assert [value for value, is_, may in zip(made, plain, good, strict=True) if is_ and not may] == []
    assert sum(plain) > 20
    small = rows.select(is_plain(contract, Limits(record_bytes=1024, unpacked_bytes=70)).alias("plain")).collect()
    assert sum(row.plain for row in small) < sum(plain)


def test_contracts_of_which_no_message_is_plain(lake_settings: Settings, samples: Samples, contract: Contract) -> None:
    device, value, at = contract.fields
    assert why_never_plain(contract) == ""
    assert "device_id" in why_never_plain(replace(contract, fields=(replace(device, allowed=("a",)), value, at)))
    epoch = replace(at, time=TimeForm(TimeFormat.EPOCH_MS))
    assert "has the format epoch_ms" in why_never_plain(replace(contract, fields=(device, value, epoch)))
    other = load_contract(lake_settings.contracts, "clickstream")
    assert "id is not a string" in why_never_plain(other)
    with pytest.raises(UsageError, match="cannot be sent in real time") as refused:
        AlertsQuery(lake_settings, samples, other, Trigger())
    assert "mode: micro_batch" in refused.value.hint
    samples = replace(samples, alerts=Alerts("t", AlertMode.MICRO_BATCH))
    assert AlertsQuery(lake_settings, samples, other, Trigger(available_now=True)).slots == 0


def test_alerts_read_the_topic_of_the_stream(lake_settings: Settings, samples: Samples, contract: Contract) -> None:
    of_collector = replace(samples, stream="clickstream")
    assert AlertsQuery(lake_settings, samples, contract, Trigger()).reads == [f"kafka:{samples.stream}"]
    assert AlertsQuery(lake_settings, of_collector, contract, Trigger()).reads == ["kafka:acme.clickstream.raw.events"]
    named = changed(lake_settings, LAKE_KAFKA_TOPIC="incoming")
    assert AlertsQuery(named, of_collector, contract, Trigger()).reads == ["kafka:incoming"]


def test_alerts_that_leave_no_core_to_others_are_noticed(
    lake_settings: Settings, samples: Samples, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a master with a fixed number of cores; on this machine, alerts get additional ones."""
    monkeypatch.setattr(AlertsQuery, "slots", 3)
    in_turns = replace(samples, alerts=Alerts("t", AlertMode.MICRO_BATCH))
    with capture_logs() as logs:
        for cores in (2, 3, 4):
            AlertsQuery(lake_settings, samples, contract, Trigger()).check_cores(cores)
            AlertsQuery(lake_settings, samples, contract, Trigger(available_now=True)).check_cores(cores)
            AlertsQuery(lake_settings, in_turns, contract, Trigger()).check_cores(cores)
    assert [(line["partitions"], line["cores"]) for line in logs] == [(3, 2), (3, 3)]


def alerts_in(kafka: KafkaServer, topic: str) -> dict[str, dict[str, Any]]:
    """Return the alerts in a topic by id, and check that repeated ones are equal, and that the key is the device."""
    reading = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "tests", "enable.partition.eof": True}
    reading["auto.offset.reset"] = "earliest"
    consumer = Consumer(reading)
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: dict[str, dict[str, Any]] = {}
    ended = 0
    while ended < len(partitions):
        for message in consumer.consume(100, 0.1):
            if message.error():
                ended += 1
                continue
            alert = json.loads(message.value() or b"")
            assert (message.key() or b"").decode() == alert["device_id"]
            assert found.setdefault(alert["id"], alert) == alert
    consumer.close()
    return found


def wait(condition: Callable[[], bool], running: "subprocess.Popen[bytes]", output: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert running.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.2)


@pytest.mark.long  # three starts; a broker that starts slowly on a busy machine ends the consumer
def test_no_alert_is_missing_over_kills_and_changes_of_the_mode(
    kafka: KafkaServer, lake_settings: Settings, tmp_path: Path
) -> None:
    topic, alerts = kafka.new_topic(2), f"alerts-{time.time_ns()}"
    (tmp_path / "gold").mkdir()
    settings = changed(lake_settings, LAKE_GOLD=str(tmp_path / "gold"))
    text = TEXT.replace("topic: sensors.anomalies", f"topic: {alerts}")
    own = {"LAKE_HOME": settings.home, "LAKE_CONTRACTS": settings.contracts, "LAKE_JARS": settings.spark.jars}
    own |= {"LAKE_GOLD": settings.gold, "LAKE_KAFKA_TOPIC": topic, "LAKE_SPARK_UI_PORT": 0}
    environment = os.environ | {name: str(value) for name, value in own.items()} | kafka.login
    command = [sys.executable, "-m", "consumer", "run", "sensors", "--data-source", "kafka"]
    output = tmp_path / "output"
    sent = 0

    def land(count: int) -> int:
        """Send readings, every second one an anomaly; return the number of new anomalies."""
        nonlocal sent
        for partition in range(2):
            made = [
                GOOD.replace("d1", f"d{number % 5}").replace("06:00:00", f"06:00:{number % 60:02}")
                for number in range(sent, sent + count)
            ]
            mixed = [
                text.replace("-1.5", f"-{number}.5") if number % 2 else text.replace("-1.5", "1.5")
                for number, text in enumerate(made)
            ]
            odd = [f"[{mixed[1]}, {mixed[3]}]", "garbage", mixed[1].replace("Z", "")]
            send(kafka, topic, [each.encode() for each in [*mixed, *odd]], partition)
        sent += count
        return (count // 2 + 2) * 2

    def run(mode: AlertMode, act: Callable[["subprocess.Popen[bytes]"], None]) -> None:
        write_samples(settings, text.replace("mode: real_time", f"mode: {mode}"))
        with output.open("ab") as sink:
            running = subprocess.Popen(command, env=environment, stdout=sink, stderr=sink)
            try:
                act(running)
            finally:
                running.kill()
                running.wait()

    due = land(20)

    def until_all(running: "subprocess.Popen[bytes]") -> None:
        wait(lambda: alerts in kafka_topics(kafka) and len(alerts_in(kafka, alerts)) == due, running, output)

    def while_more_comes(running: "subprocess.Popen[bytes]") -> None:
        nonlocal due
        until_all(running)
        due += land(10)  # some of these may have been sent before the kill

    def after_the_broker_was(running: "subprocess.Popen[bytes]") -> None:
        while_more_comes(running)
        kafka.kill()
        time.sleep(2)
        kafka.start()
        while_more_comes(running)

    def until_told_to_end(running: "subprocess.Popen[bytes]") -> None:
        until_all(running)
        workers = [each for each in psutil.Process(running.pid).children(recursive=True) if is_worker(each)]
        assert {each.nice() for each in workers} == {10}
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0, output.read_text()

    run(AlertMode.MICRO_BATCH, after_the_broker_was)  # and the consumer is killed
    run(AlertMode.REAL_TIME, after_the_broker_was)
    run(AlertMode.REAL_TIME, until_told_to_end)
    due += land(10)
    once = subprocess.run([*command, "--available-now"], env=environment, capture_output=True, timeout=200, check=False)
    assert once.returncode == 0, once.stderr.decode()
    assert len(alerts_in(kafka, alerts)) == due
    everything = [output, *(path for path in settings.home.rglob("*") if path.is_file())]
    assert not [path for path in everything if kafka.password.encode() in path.read_bytes()]


def is_worker(process: psutil.Process) -> bool:
    """Return whether the process is one of Spark's Python workers."""
    with suppress(psutil.NoSuchProcess):
        return "consumer.spark.worker_daemon" in process.cmdline()
    return False


def kafka_topics(kafka: KafkaServer) -> set[str]:
    """Return the names of the topics."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "tests"})
    try:
        return set(consumer.list_topics(timeout=10).topics)
    finally:
        consumer.close()
