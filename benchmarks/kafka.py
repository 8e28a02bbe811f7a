"""From a topic to bronze, silver and gold: lakeproof, and the same pipeline in plain Spark."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tests.servers import KafkaServer

from benchmarks.harness import WORK, Goal, Options, Report, Sample, Side, Table, machine, measure, medians, module
from benchmarks.inputs import Input, Landed, land
from lakeproof.kafka.sending import Outgoing, Sending
from lakeproof.settings import settings_of

TOPIC = "incoming"
_PARTITIONS = 4
_DUPLICATES = 0.05
_FILES_AT_ONCE, _MESSAGES_AT_ONCE = 100, 100_000
_BY_DEFAULT = 500_000

BRONZE, FILES = "lakeproof, Kafka to bronze", "lakeproof, files to bronze"
LAYERS, PLAIN = "lakeproof, Kafka to gold", "plain Spark, Kafka to gold"
LARGER = f", {_BY_DEFAULT:,} at once"

ABOUT = [
    f"The records of files of 1,000 each, {_DUPLICATES:.0%} of them duplicates, as messages of {_PARTITIONS} "
    "partitions: a record each, keyed by its id. *Seconds* is from the start of the query to the last commit of the "
    f"last table, without the start of the JVM. Each side takes {_MESSAGES_AT_ONCE:,} records at once, or, where it "
    f"says so, lakeproof's default of {_BY_DEFAULT:,}. The broker runs beside it, on the same cores.",
    f"- **{BRONZE}**, **{LAYERS}**: `consumer run events --data-source kafka --available-now`, with `--to bronze` and "
    f"without. Every record is judged by its contract and has a verdict. **{FILES}**: the same records as files.\n"
    f"- **{PLAIN}** (`benchmarks/sides/kafka_plain.py`): `from_json` into an Iceberg table; from it, "
    "`dropDuplicatesWithinWatermark` into a second one; from that, windows of each user, in append mode, into a third "
    "one. What is not valid becomes nulls, and what is dropped is not counted. Its windows within the watermark, of "
    "seven days as lakeproof's horizon, are computed and not yet written.",
]


class _Key(msgspec.Struct):
    event_id: str


def run(options: Options) -> Report:
    """Run all sides over the same records."""
    about_machine = machine()
    landed = land(Input(options.files, duplicates=_DUPLICATES, days=False))
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-", dir=WORK) as folder, KafkaServer(Path(folder) / "kafka") as kafka:
        kafka.new_topic(_PARTITIONS, name=TOPIC)
        count = _fill(kafka, landed)  # reads all files, so the side that reads them finds them in the page cache
        of_topic = {
            "LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "LAKE_KAFKA_TOPIC": TOPIC,
        }
        at_once = {
            "LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH": str(_MESSAGES_AT_ONCE),
            "LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH": str(_MESSAGES_AT_ONCE),
        }
        of_files = {"LAKE_LANDING": str(landed.root), "LAKE_MAX_FILES_PER_MICRO_BATCH": str(_FILES_AT_ONCE)}
        sides = [
            Side(FILES, module("benchmarks.sides.ours"), of_files),
            Side(BRONZE, module("benchmarks.sides.kafka_ours", "bronze"), of_topic | at_once),
            Side(LAYERS, module("benchmarks.sides.kafka_ours", "gold"), of_topic | at_once),
            Side(PLAIN, module("benchmarks.sides.kafka_plain", _MESSAGES_AT_ONCE), of_topic),
            Side(LAYERS + LARGER, module("benchmarks.sides.kafka_ours", "gold"), of_topic),
            Side(PLAIN + LARGER, module("benchmarks.sides.kafka_plain", _BY_DEFAULT), of_topic),
        ]
        samples = measure(sides, options.repeat)
    found = medians(samples)
    ratios = {size: found[PLAIN + size].seconds / found[LAYERS + size].seconds for size in ("", LARGER)}
    return Report(
        name="kafka",
        title="Kafka to bronze, silver and gold",
        about=ABOUT,
        goals=[
            Goal(f"{FILES} over {BRONZE}", found[FILES].seconds / found[BRONZE].seconds, at_least=0.7),
            *(Goal(f"{PLAIN} over {LAYERS}{size}", ratio, at_least=1) for size, ratio in ratios.items()),
        ],
        tables=[
            Table(
                f"{count:,} records",
                ["side", "seconds", "records/s", "peak MiB", "bronze rows", "silver rows", "gold rows"],
                [_row(name, sample, count) for name, sample in found.items()],
            )
        ],
        machine=about_machine,
        options={"records": count, "runs_of_each_side": options.repeat},
        raw=[sample.as_dict() for sample in samples],
    )


def _fill(kafka: KafkaServer, landed: Landed) -> int:
    """Send each record of the files as a message; return the number of messages."""
    settings = settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers})
    return Sending(settings.kafka, TOPIC).send(_messages(landed)).acknowledged


def _messages(landed: Landed) -> Iterator[Outgoing]:
    for path in sorted(landed.paths()):
        for record in msgspec.json.decode(path.read_bytes(), type=list[msgspec.Raw]):
            yield Outgoing(bytes(record), msgspec.json.decode(record, type=_Key).event_id.encode())


def _row(name: str, sample: Sample, count: int) -> list[str]:
    rows = [
        f"{sample.figures[layer]:,.0f}" if layer in sample.figures else "" for layer in ("bronze", "silver", "gold")
    ]
    return [name, f"{sample.seconds:.1f}", f"{count / sample.seconds:,.0f}", f"{sample.peak_rss_mib:,.0f}", *rows]
