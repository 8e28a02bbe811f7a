"""Consumer and broker are killed while readings arrive: no alert is missing, and the tables are right."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Producer
from tests.consumer.lake import rows
from tests.consumer.layers.samples.lakes import BY_WINDOW, HORIZON, TEXT, found_anomalies, found_samples, write_samples
from tests.consumer.layers.samples.model import EPOCH, MICROSECOND, anomalies, windows
from tests.consumer.layers.samples.model import time as time_of
from tests.consumer.layers.samples.test_alerts import alerts_in, kafka_topics, wait
from tests.lakes import changed
from tests.servers import KafkaServer

from consumer.layers.samples.reading import Reading
from lakeproof.gold.samples import AlertMode
from lakeproof.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.long]

_KILLS = 5
_FASTER = 20
# Silver's watermark is never ahead of the clock.
_BEGAN = datetime.now(UTC)
_BEGIN = _BEGAN - timedelta(days=1)


@dataclass
class Load:
    """Sends readings until the test ends it; waits for an unavailable broker."""

    kafka: KafkaServer
    topic: str
    chance: random.Random
    sent: set[Reading] = field(default_factory=set)
    ended: Event = field(default_factory=Event)

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 5})
        while not self.ended.wait(0.02):
            late = timedelta(seconds=25 * self.chance.random() ** 4)
            at = _BEGIN + _FASTER * (datetime.now(UTC) - _BEGAN) - late
            value = self.chance.choice((-2.5, 0.0, 1.0, 1.0, 800.0))
            reading = Reading((at - EPOCH) // MICROSECOND, f"d{self.chance.randrange(5)}", value)
            fields = {"device_id": reading.device, "sensor_freq": value, "event_time": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"}
            producer.produce(self.topic, json.dumps(fields).encode(), partition=self.chance.randrange(2))
            producer.poll(0)
            self.sent.add(reading)
        assert producer.flush(60) == 0


@contextmanager
def _loaded(load: Load) -> Iterator[None]:
    thread = Thread(target=load.run)
    thread.start()
    try:
        yield
    finally:
        load.ended.set()
        thread.join()


@pytest.mark.parametrize("mode", AlertMode)
def test_readings_come_while_consumer_and_broker_are_killed(
    kafka: KafkaServer, lake_settings: Settings, tmp_path: Path, mode: AlertMode
) -> None:
    (tmp_path / "gold").mkdir()
    settings = changed(lake_settings, LAKE_GOLD=str(tmp_path / "gold"))
    topic, alerts, output = kafka.new_topic(2), f"alerts-{time.time_ns()}", tmp_path / "output"
    text = TEXT.replace("topic: sensors.anomalies", f"topic: {alerts}").replace("mode: real_time", f"mode: {mode}")
    other = BY_WINDOW.replace("sensor_samples", "of_windows").replace("sensor_anomalies", "of_all")
    products = [write_samples(settings, each) for each in (text, other.partition("alerts:")[0])]
    own = {"LAKE_HOME": settings.home, "LAKE_CONTRACTS": settings.contracts, "LAKE_JARS": settings.spark.jars}
    own |= {"LAKE_GOLD": settings.gold, "LAKE_KAFKA_TOPIC": topic, "LAKE_SPARK_UI_PORT": 0}
    environment = os.environ | {name: str(value) for name, value in own.items()} | kafka.login
    command = [sys.executable, "-m", "consumer", "run", "sensors", "--data-source", "kafka"]
    load = Load(kafka, topic, random.Random(mode))

    def more(than: int) -> Callable[[], bool]:
        return lambda: alerts in kafka_topics(kafka) and len(alerts_in(kafka, alerts)) > than

    with _loaded(load):
        for number in range(_KILLS):
            with output.open("ab") as sink:
                running = subprocess.Popen(command, env=environment, stdout=sink, stderr=sink)
            try:
                before = len(alerts_in(kafka, alerts)) if number else 0
                wait(more(before), running, output)
                time.sleep(load.chance.uniform(0, 8))
                if number % 2:
                    kafka.kill()
                    time.sleep(load.chance.uniform(0, 3))
                    kafka.start()
                    wait(more(len(alerts_in(kafka, alerts))), running, output)
            finally:
                running.kill()
                running.wait()
    once = subprocess.run([*command, "--available-now"], env=environment, capture_output=True, timeout=200, check=False)
    assert once.returncode == 0, once.stderr.decode()
    found = {(each["device_id"], each["event_time"]) for each in alerts_in(kafka, alerts).values()}
    due = {(each.device, f"{time_of(each.at):%Y-%m-%dT%H:%M:%S.%fZ}") for each in load.sent if each.value < 0}
    assert found == due
    names = ("event_time", "device_id", "sensor_freq")
    of_silver = [tuple(row[name] for name in names) for row in rows(settings, "silver.sensors")]
    kept = [Reading((at - EPOCH) // MICROSECOND, device, value) for at, device, value in of_silver]
    assert len(kept) == len(set(kept))
    assert set(kept) <= load.sent
    horizon = max(each.at for each in kept) - HORIZON
    for product in products:
        assert found_samples(settings, product) == windows(kept, product, horizon)
        assert found_anomalies(settings, product) == anomalies(kept, product, horizon)
    assert len({row[0] for row in found_samples(settings, products[1])}) > 10
