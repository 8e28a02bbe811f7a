"""Alerts: time from producing a reading to consuming its alert, while all tables are filled."""

import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.servers import KafkaServer

from benchmarks.harness import (
    WORK,
    Goal,
    Histogram,
    Options,
    Report,
    SideFailedError,
    Table,
    clean_environment,
    machine,
)
from benchmarks.machine import ROOT, few_cores
from consumer.iceberg.marker import Committed, property_of
from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings, settings_of
from lakeproof.tables.names import gold_query, samples_tables, silver_query, silver_tables

_CORES = 2
_PARTITIONS = 2
_READINGS_PER_SECOND = 300
_DEVICES = 100
_ANOMALY_EVERY = 10
_MOST_SECONDS = 90
_WARM_UP_SECONDS = 25
_START_SECONDS = 90
_FASTER = 10
_STREAM, _PRODUCT, _ANOMALIES = "sensors", "sensor_samples", "sensor_anomalies"
# Silver's watermark is never ahead of the clock.
_BEGAN = datetime.now(UTC)
_BEGIN = _BEGAN - timedelta(days=1)
_HORIZON, _EVERY = 30_000_000, 30_000_000
_REAL_TIME, _MICRO_BATCH = "real_time", "micro_batch"

ABOUT = [
    f"`consumer run sensors --data-source kafka` reads {_READINGS_PER_SECOND} readings per second of {_DEVICES} "
    f"devices from a topic of {_PARTITIONS} partitions, and fills bronze, silver, samples and anomalies. Every tenth "
    f"reading is an anomaly. Kafka, the consumer and the load share {_CORES} cores.",
    "The time is from the call that produces a reading to the poll that returns its alert, by one clock. *Missing* are "
    "anomalies without an alert when the load has ended.",
    f"Event time runs {_FASTER} times as fast as the clock, so that more windows close. The time of a window is from "
    "the snapshot of silver whose horizon is past its end to the snapshot of the samples that has it.",
]


@dataclass(frozen=True)
class _Run:
    """Results of a mode."""

    mode: str
    seconds: list[float]
    missing: int
    windows: list[float]

    def at(self, share: float) -> float:
        return at_share(self.seconds, share)


def at_share(ascending: Sequence[float], share: float) -> float:
    """Return the value below which a share of all values lies."""
    return ascending[min(math.floor(len(ascending) * share), len(ascending) - 1)]


def run(options: Options) -> Report:
    """Run both modes, one after the other."""
    about_machine = machine()
    seconds = min(options.seconds, _MOST_SECONDS)
    WORK.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="alerts-", dir=WORK) as folder,
        few_cores(_CORES),
        KafkaServer(Path(folder) / "kafka") as kafka,
    ):
        runs = [_measure(kafka, Path(folder) / mode, mode, seconds) for mode in (_REAL_TIME, _MICRO_BATCH)]
    real, micro = runs
    windows = sorted(real.windows + micro.windows)
    return Report(
        name="alerts",
        title="Alerts, and samples beside them",
        about=ABOUT,
        goals=[
            Goal("real time, p50", real.at(0.5), at_most=0.025, unit="s"),
            Goal("real time, p99", real.at(0.99), at_most=0.5, unit="s"),
            Goal("micro-batches, p99", micro.at(0.99), at_most=1.5, unit="s"),
            Goal("alerts missing", sum(each.missing for each in runs), at_most=0, unit=""),
            Goal("samples of a window, p99", at_share(windows, 0.99), at_most=15, unit="s"),
        ],
        tables=[
            Table(
                "Produced to consumed",
                ["mode", "alerts", "p50 ms", "p99 ms", "greatest ms", "missing"],
                [
                    [each.mode, f"{len(each.seconds):,}"]
                    + [f"{each.at(share) * 1000:.1f}" for share in (0.5, 0.99, 1)]
                    + [str(each.missing)]
                    for each in runs
                ],
            ),
            Table(
                "Horizon past a window to its samples, seconds",
                ["beside alerts in", "windows", "p50", "p99", "greatest"],
                [
                    [each.mode, str(len(each.windows))]
                    + [f"{at_share(each.windows, share):.1f}" for share in (0.5, 0.99, 1)]
                    for each in runs
                ],
            ),
        ],
        machine=about_machine,
        options={"seconds_of_each_load": seconds, "readings_per_second": _READINGS_PER_SECOND},
        histograms=[
            Histogram.of(each.mode, "s", each.seconds, {"p50": each.at(0.5), "p99": each.at(0.99)}) for each in runs
        ],
        raw={each.mode: {str(share): each.at(share) for share in (0.1, 0.5, 0.9, 0.95, 0.99, 0.999)} for each in runs},
    )


def _measure(kafka: KafkaServer, folder: Path, mode: str, seconds: int) -> _Run:
    topic, alerts = kafka.new_topic(_PARTITIONS), kafka.new_topic(1)
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    ended = threading.Event()
    environment = _environment(kafka, folder, mode, topic, alerts)
    with _consumer(folder, environment) as process:
        listening = threading.Thread(target=_listen, args=(kafka, alerts, seen, ended), daemon=True)
        listening.start()
        _produce(kafka, topic, _WARM_UP_SECONDS, {}, until=lambda: bool(seen), process=process)
        began = time.time()
        _produce(kafka, topic, seconds, sent)
        ended_at = time.time()
        deadline = time.monotonic() + 20
        while sent.keys() - seen.keys() and time.monotonic() < deadline:
            time.sleep(0.1)
        ended.set()
        listening.join()
        windows = _windows(settings_of(environment), began, ended_at - 15)
    taken = sorted(seen[key] - at for key, at in sent.items() if key in seen)
    return _Run(mode, taken, len(sent) - len(taken), windows)


def _windows(settings: Settings, since: float, until: float) -> list[float]:
    """Return the delays from silver's horizon passing a window's end, within a period, to the commit of its samples."""
    tables = samples_tables(_PRODUCT, _ANOMALIES)
    passed = _commits(settings, silver_tables(_STREAM).kept, silver_query(_STREAM), -_HORIZON)
    published = _commits(settings, tables.samples, gold_query(_PRODUCT), 0)
    return windows_of(passed, published, since, until)


def windows_of(
    passed: Sequence[tuple[float, int]], published: Sequence[tuple[float, int]], since: float, until: float
) -> list[float]:
    """Return the delays, given the commits of both tables, ascending, as (commit time, event time in microseconds)."""
    found = []
    for (_, before), (at, horizon) in pairwise(passed):
        if not since <= at <= until:
            continue
        for end in range(before // _EVERY * _EVERY + _EVERY, horizon + 1, _EVERY):
            there = next((when for when, upto in published if upto >= end), None)
            if there is None:
                raise SideFailedError("A window was not published.")
            found.append(there - at)
    if not found:
        raise SideFailedError("Silver's horizon passed no window.")
    return sorted(found)


def _commits(settings: Settings, name: str, query: str, shift: int) -> list[tuple[float, int]]:
    """Return the time of each commit of a table, and the event time in its marker."""
    found = []
    for snapshot in open_catalog(settings).load_table(name).metadata.snapshots:
        summary: Mapping[str, str] = snapshot.summary.additional_properties if snapshot.summary else {}
        if text := summary.get(property_of(query)):
            found.append((snapshot.timestamp_ms / 1000, int(Committed.parse(text).marker.contents) + shift))
    return sorted(found)


def _environment(kafka: KafkaServer, folder: Path, mode: str, topic: str, alerts: str) -> dict[str, str]:
    (folder / "gold").mkdir(parents=True)
    product = (ROOT / "gold" / "sensor_samples.yaml").read_text()
    product = product.replace("topic: sensors.anomalies", f"topic: {alerts}").replace("real_time", mode)
    (folder / "gold" / "sensor_samples.yaml").write_text(product)
    return clean_environment(folder) | {
        "LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "LAKE_KAFKA_TOPIC": topic,
        "LAKE_GOLD": str(folder / "gold"),
    }


@contextmanager
def _consumer(folder: Path, environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    log = folder / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "consumer", "run", "sensors", "--data-source", "kafka"]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while b'"alerts-' not in log.read_bytes() and b"alerts-" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SideFailedError(f"The consumer did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(_START_SECONDS)


def _produce(
    kafka: KafkaServer,
    topic: str,
    seconds: float,
    sent: dict[str, float],
    until: Any = None,
    process: "subprocess.Popen[bytes] | None" = None,
) -> None:
    """Send readings at an even rate; record when each anomaly was sent, by its event time, which is unique."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    began, number = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds or (until and not until() and now < _START_SECONDS):
        if process and process.poll() is not None:
            raise SideFailedError("The consumer ended.")
        due = began + number / _READINGS_PER_SECOND
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        at = _BEGIN + _FASTER * (datetime.now(UTC) - _BEGAN)
        anomaly = number % _ANOMALY_EVERY == 0
        device, event_time = f"d{number % _DEVICES}", f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"
        frequency = -1.0 if anomaly else 50.0 + number % 7
        reading = {"device_id": device, "sensor_freq": frequency, "event_time": event_time}
        if anomaly:
            sent[event_time] = time.time()
        producer.produce(topic, value=json.dumps(reading), key=device, partition=number % _PARTITIONS)
        producer.poll(0)
        number += 1
    producer.flush(30)


def _listen(kafka: KafkaServer, topic: str, seen: dict[str, float], ended: threading.Event) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "bench", "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not ended.is_set():
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            seen.setdefault(json.loads(message.value() or b"")["event_time"], time.time())
    consumer.close()
