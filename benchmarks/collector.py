"""Posts of 100 events: our collector, which waits for all acknowledgements, and the usual endpoint."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from tests.servers import KafkaServer, free_port

from benchmarks.harness import (
    WORK,
    Goal,
    Options,
    Report,
    SideFailedError,
    Table,
    clean_environment,
    machine,
)
from benchmarks.load import Load, as_fast_as_possible, at_a_rate
from benchmarks.machine import few_cores

_CORES = 2
_EVENTS = 100
_CONNECTIONS = (16, 64)
_RATE_CONNECTIONS = 200
_MOST_SECONDS = 30
_WARM_UP_SECONDS = 3
_PATIENCE_SECONDS = 30
_PARTITIONS = 6

OURS, USUAL, USUAL_FAST = "collector", "usual, kafka-python", "usual, confluent-kafka"
_GOAL, _P99_GOAL = 3.0, 0.05

ABOUT = [
    f"Posts of {_EVENTS} events (23 kB) to an endpoint that sends each event to a topic of {_PARTITIONS} partitions. "
    f"Endpoint, Kafka and the load share {_CORES} cores. Kafka has the options of Java that its own start script has.",
    "*collector* is `collector run` as it is by default: it answers when all in-sync replicas have every event, with a "
    "receipt for each. *usual* is FastAPI with `list[pydantic]` and `producer.send` of kafka-python: it answers when "
    "the events are in its memory. The same with confluent-kafka, which is faster, is there for comparison; it has no "
    "goal. Both run in one process under uvicorn with uvloop and httptools.",
    "The load is from wrk. For the highest load, each connection sends its next post when it has its answer. For half "
    "of it, each of many connections waits for a random time before its next post. *In the topic* is the number of "
    "events in the topic after the load, once it no longer grows, over those that were answered with 2xx. It may be "
    "above 1: some posts were not answered when the load ended.",
]


class _Kafka(KafkaServer):
    """Kafka with the JVM options of its own start script: the options for tests save memory, but pause for long."""

    jvm = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")


@dataclass(frozen=True)
class _Run:
    """A side under its highest load, and under half that load."""

    connections: int
    highest: Load
    half: Load
    landed: float


def run(options: Options) -> Report:
    """Run the sides in turns, each with its own server and topics."""
    about_machine = machine()
    seconds = min(options.seconds, _MOST_SECONDS)
    WORK.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[_Run]] = {}
    with tempfile.TemporaryDirectory(prefix="collector-", dir=WORK) as folder, few_cores(_CORES):
        body = Path(folder) / "body.json"
        body.write_text(json.dumps(_events(), separators=(",", ":")))
        with _Kafka(Path(folder) / "kafka") as kafka:
            for turn in range(options.repeat):
                for name in (OURS, USUAL, USUAL_FAST):
                    found = _measure(name, kafka, Path(folder), body, seconds)
                    runs.setdefault(name, []).append(found)
                    rate = found.highest.posts_per_second
                    print(f"  {turn + 1}/{options.repeat} {name}: {rate:,.0f} posts/s", flush=True)
    rates = {name: median(each.highest.posts_per_second for each in found) for name, found in runs.items()}
    half_p99 = median(each.half.p99 for each in runs[OURS])
    return Report(
        name="collector",
        title="Collector",
        about=ABOUT,
        goals=[
            Goal("events per second, collector over usual", rates[OURS] / rates[USUAL], at_least=_GOAL),
            Goal("p99 of the collector at half of its highest load", half_p99, at_most=_P99_GOAL, unit="s"),
        ],
        tables=[
            Table(
                "Highest load",
                ["side", "connections", "posts/s", "events/s", "p50 ms", "p99 ms", "refused", "in the topic"],
                [_highest_row(name, found) for name, found in runs.items()],
            ),
            Table(
                "Half of it",
                ["side", "posts/s", "p50 ms", "p99 ms", "refused"],
                [_half_row(name, found) for name, found in runs.items()],
            ),
        ],
        machine=about_machine,
        options={"seconds_of_each_load": seconds, "runs_of_each_side": options.repeat},
        raw={name: [asdict(each) for each in found] for name, found in runs.items()},
    )


def _highest_row(name: str, runs: list[_Run]) -> list[str]:
    loads = [each.highest for each in runs]
    rate = median(load.posts_per_second for load in loads)
    return [
        name,
        "/".join(sorted({str(each.connections) for each in runs})),
        f"{rate:,.0f}",
        f"{rate * _EVENTS:,.0f}",
        *(f"{median(values) * 1000:.1f}" for values in ([load.p50 for load in loads], [load.p99 for load in loads])),
        str(sum(load.refused + load.errors for load in loads)),
        f"{min(each.landed for each in runs):.4f}",
    ]


def _half_row(name: str, runs: list[_Run]) -> list[str]:
    loads = [each.half for each in runs]
    return [
        name,
        f"{median(load.posts_per_second for load in loads):,.0f}",
        *(f"{median(values) * 1000:.1f}" for values in ([load.p50 for load in loads], [load.p99 for load in loads])),
        str(sum(load.refused for load in loads)),
    ]


def _measure(name: str, kafka: KafkaServer, folder: Path, body: Path, seconds: int) -> _Run:
    topic = kafka.new_topic(_PARTITIONS)
    with _endpoint(name, kafka, topic, folder) as url:
        answered = as_fast_as_possible(url, body, _CONNECTIONS[0], _WARM_UP_SECONDS).posts
        loads = {count: as_fast_as_possible(url, body, count, seconds) for count in _CONNECTIONS}
        best = max(loads, key=lambda count: loads[count].posts_per_second)
        half = at_a_rate(url, body, _RATE_CONNECTIONS, seconds, loads[best].posts_per_second / 2)
        answered += half.posts + sum(load.posts for load in loads.values())
        landed = _settled(kafka, topic)
    return _Run(best, loads[best], half, landed / (answered * _EVENTS))


@contextmanager
def _endpoint(name: str, kafka: KafkaServer, topic: str, folder: Path) -> Iterator[str]:
    port = free_port()
    environment = clean_environment(folder) | {
        "LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "LAKE_COLLECTOR_TOPIC": topic,
        "LAKE_COLLECTOR_PORT": str(port),
        "USUAL_CLIENT": name.removeprefix("usual, "),
    }
    usual = ["uvicorn", "benchmarks.sides.usual_endpoint:app", "--port", str(port), "--loop", "uvloop"]
    usual += ["--http", "httptools", "--no-access-log"]
    command = [sys.executable, "-m", *(["collector", "run"] if name == OURS else usual)]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        _wait_until_answers(f"http://127.0.0.1:{port}/{'readyz' if name == OURS else 'docs'}", process, log)
        yield f"http://127.0.0.1:{port}/collect"
    finally:
        process.terminate()
        process.wait(_PATIENCE_SECONDS)


def _wait_until_answers(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with opener.open(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise SideFailedError(f"The endpoint did not start:\n{log.read_text()[-2000:]}")


def _settled(kafka: KafkaServer, topic: str) -> int:
    """Return the number of events in a topic once it stops growing."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "bench"})
    try:
        before, found = -1, 0
        while found != before:
            time.sleep(1)
            before = found
            partitions = [TopicPartition(topic, each) for each in range(_PARTITIONS)]
            found = sum(consumer.get_watermark_offsets(each, 10)[1] for each in partitions)
        return found
    finally:
        consumer.close()


def _events() -> list[dict[str, Any]]:
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36"
    return [
        {
            "id": 1_000_000_000 + number,
            "type": "page_view",
            "event": {
                "user_agent": agent,
                "ip": f"192.0.2.{number}",
                "timestamp": f"2026-11-01T12:00:{number % 60:02}.123Z",
                "page": f"/products/{number}",
                "referrer": "https://www.example.com/search",
            },
        }
        for number in range(_EVENTS)
    ]
