"""A topic to Parquet: the modes `dedupe` and `windows`, and the same jobs with Spark's own operators."""

import json
import random
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from tests.servers import KafkaServer

from benchmarks.harness import WORK, Goal, Options, Report, Sample, Side, Table, machine, measure, medians, module

_MESSAGES_PER_FILE = 1_000
_PARTITIONS = 6
_DUPLICATES = 0.05
_USERS = 1_000
_SEED = 26
_SECONDS_OF_EVENTS = 3_600
TOPIC = "incoming-events"

OURS = {"dedupe": "lakeproof, dedupe", "windows": "lakeproof, windows"}
PLAIN = {"dedupe": "plain Spark, dedupe", "windows": "plain Spark, windows"}

ABOUT = [
    f"Messages of about 150 bytes in {_PARTITIONS} partitions, {_DUPLICATES:.0%} of them sent twice, of {_USERS:,} "
    "users and one hour, in about the order of their times; none is late. *Seconds* is from the start of the query to "
    "its end, without the start of the JVM. Each side takes 100,000 messages at once, and writes Parquet files.",
    "- **lakeproof**: `consumer run dedupe` and `consumer run windows`. Every message is counted; late and bad ones "
    "are set aside.\n"
    "- **plain Spark** (`benchmarks/sides/modes_plain.py`): `from_json`, `dropDuplicatesWithinWatermark` and windows "
    "of each user in append mode, with RocksDB and changelog checkpoints. Bad and late messages are dropped, and not "
    "counted.",
]


def run(options: Options) -> Report:
    """Run all sides over the same topic."""
    about_machine = machine()
    count = options.files * _MESSAGES_PER_FILE
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="modes-", dir=WORK) as folder, KafkaServer(Path(folder) / "kafka") as kafka:
        kafka.new_topic(_PARTITIONS, name=TOPIC)
        fill(kafka, count)
        environment = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        sides = [
            Side(names[mode], module(f"benchmarks.sides.{side}", mode), environment)
            for mode in OURS
            for names, side in ((OURS, "modes_ours"), (PLAIN, "modes_plain"))
        ]
        samples = measure(sides, options.repeat)
    found = medians(samples)
    return Report(
        name="modes",
        title="Two modes on Kafka alone",
        about=ABOUT,
        goals=[
            Goal(f"{PLAIN[mode]} over {OURS[mode]}", found[PLAIN[mode]].seconds / found[OURS[mode]].seconds, at_least=1)
            for mode in OURS
        ],
        tables=[
            Table(
                f"{count:,} messages",
                ["side", "seconds", "messages/s", "peak MiB", "rows", "events in rows"],
                [_row(name, sample, count) for name, sample in found.items()],
            )
        ],
        machine=about_machine,
        options={"messages": count, "runs_of_each_side": options.repeat},
        raw=[sample.as_dict() for sample in samples],
    )


def fill(kafka: KafkaServer, count: int) -> None:
    """Send messages keyed by ID."""
    chosen = random.Random(_SEED)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50, "compression.type": "lz4"})
    before: list[tuple[bytes, bytes]] = []
    for number in range(count):
        if before and chosen.random() < _DUPLICATES:
            key, value = chosen.choice(before[-10_000:])
        else:
            seconds = max(number / count * _SECONDS_OF_EVENTS - chosen.random() * 60, 0)
            fields = {
                "eventId": f"{chosen.getrandbits(64):016x}",
                "userId": f"user-{chosen.randrange(_USERS)}",
                "amount": chosen.randrange(100_000) / 100,
                "eventType": chosen.choice(["view", "click", "buy"]),
                "eventTime": f"2024-01-01T{seconds // 3_600:02.0f}:{seconds // 60 % 60:02.0f}:{int(seconds % 60):02}Z",
                "payload": "hello",
            }
            key, value = fields["eventId"].encode(), json.dumps(fields).encode()  # type: ignore[attr-defined]
            before.append((key, value))
        while True:
            try:
                producer.produce(TOPIC, value, key)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()


def _row(name: str, sample: Sample, count: int) -> list[str]:
    return [
        name,
        f"{sample.seconds:.1f}",
        f"{count / sample.seconds:,.0f}",
        f"{sample.peak_rss_mib:,.0f}",
        f"{sample.figures['rows']:,.0f}",
        f"{sample.figures['events']:,.0f}",
    ]
