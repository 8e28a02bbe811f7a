"""The command line of the producer."""

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lakeproof.command import application, run
from lakeproof.doctor import Program, check_environment
from lakeproof.errors import UsageError
from lakeproof.settings import Settings, load_settings
from producer.encoding import JsonStyle
from producer.options import (
    Batches,
    BatchSize,
    CorruptionChance,
    DataSink,
    DuplicateChance,
    ExtraFieldChance,
    InvalidSchemaChance,
    Pause,
    Receipts,
    Report,
    Seed,
    Start,
    Target,
    TopicName,
    Users,
)
from producer.sinks import Sink, SinkKind, choose_sink, open_sink

if TYPE_CHECKING:
    from producer.batches import Batch, Maker, Plan
    from producer.report import Tally

_ENDLESS_PAUSE = 1.0

app = application(
    "producer",
    "Generate batches of records, with the faults that real producers have, and land them.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CONTRACTS", "AWS_ENDPOINT_URL", "LAKE_KAFKA_BOOTSTRAP_SERVERS"],
)


@app.command()
def events(
    data_sink: DataSink = None,
    target: Target = None,
    topic: TopicName = None,
    report: Report = None,
    batches: Batches = None,
    batch_size: BatchSize = 100,
    sleep_between_batches_seconds: Pause = None,
    users: Users = 1000,
    evolve_after: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of batches before purchases get a product_id.",
            rich_help_panel="What",
        ),
    ] = 0,
    json_style: Annotated[
        JsonStyle,
        typer.Option(
            metavar="STYLE",
            help="compact: an array without spaces; spaced: an array as Python's json.dumps writes it; "
            "ndjson: one record per line.",
            rich_help_panel="What",
        ),
    ] = JsonStyle.COMPACT,
    seed: Seed = None,
    start: Start = None,
    corruption_chance: CorruptionChance = 0.0,
    invalid_schema_chance: InvalidSchemaChance = 0.0,
    extra_field_chance: ExtraFieldChance = 0.0,
    duplicate_chance: DuplicateChance = 0.0,
) -> None:
    """Generate events of users: page views and purchases.

    A batch is a file below dt=…/hh=…/. It appears as a whole or not at all, and never replaces another file.
    On Kafka, each event is a message with the event_id as its key, and a truncated batch is one message.

    On Ctrl-C or SIGTERM, the producer finishes the current batch, writes the report and exits.
    """
    settings = load_settings()
    kind, place = _choose(data_sink, target, "events", settings, topic)
    # Importing Faker takes a second, so options are checked first.
    from producer.batches import Plan
    from producer.faults import Chances

    plan = Plan(
        seed=secrets.randbits(32) if seed is None else seed,
        users=users,
        batch_size=batch_size,
        evolve_after=evolve_after,
        style=json_style,
        chances=Chances(corruption_chance, invalid_schema_chance, extra_field_chance, duplicate_chance),
    )
    pace = _Pace(batches, sleep_between_batches_seconds, start, report)
    _produce_records("events", plan, None, kind, open_sink(kind, place, settings), pace, settings)


@app.command()
def clickstream(
    data_sink: DataSink = None,
    target: Target = None,
    topic: TopicName = None,
    receipts: Receipts = None,
    report: Report = None,
    batches: Batches = None,
    batch_size: BatchSize = 100,
    sleep_between_batches_seconds: Pause = None,
    users: Users = 1000,
    seed: Seed = None,
    start: Start = None,
    corruption_chance: CorruptionChance = 0.0,
    invalid_schema_chance: InvalidSchemaChance = 0.0,
    extra_field_chance: ExtraFieldChance = 0.0,
    duplicate_chance: DuplicateChance = 0.0,
) -> None:
    """Generate the clickstream of visitors who browse a shop: sessions with referrers, searches, products, a cart.

    With --data-sink http, a batch is a post to the collector, which is repeated until it is accepted. A truncated batch
    is refused, and the report does not count it. On Kafka and in files, events are as those of `producer events`.

    On Ctrl-C or SIGTERM, the producer finishes the current batch, writes the report and exits.
    """
    settings = load_settings()
    kind, place = _choose(data_sink, target, "clickstream", settings, topic)
    if receipts and kind is not SinkKind.HTTP:
        raise UsageError("--receipts is for --data-sink http.", "Add --data-sink http, or remove --receipts.")
    from producer.batches import Plan
    from producer.browsing import Browsing, make_shop
    from producer.faults import Chances
    from producer.sinks.http import connect

    plan = Plan(
        seed=secrets.randbits(32) if seed is None else seed,
        users=users,
        batch_size=batch_size,
        evolve_after=0,
        style=JsonStyle.COMPACT,
        chances=Chances(corruption_chance, invalid_schema_chance, extra_field_chance, duplicate_chance),
    )
    sink = connect(place, settings, receipts) if kind is SinkKind.HTTP else open_sink(kind, place, settings)
    pace = _Pace(batches, sleep_between_batches_seconds, start, report)
    _produce_records("clickstream", plan, Browsing(make_shop(plan.seed, users)), kind, sink, pace, settings)


@app.command()
def sensors(
    data_sink: DataSink = None,
    target: Target = None,
    topic: TopicName = None,
    report: Report = None,
    batches: Batches = None,
    batch_size: BatchSize = 100,
    sleep_between_batches_seconds: Pause = None,
    devices: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of devices, which take turns.", rich_help_panel="What")
    ] = 100,
    max_delay_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            max=86_400,
            metavar="S",
            help="How long before its batch a reading is made at most. Readings come out of order.",
            rich_help_panel="Pace",
        ),
    ] = 30.0,
    json_style: Annotated[
        JsonStyle,
        typer.Option(metavar="STYLE", help="compact, spaced or ndjson, as of events.", rich_help_panel="What"),
    ] = JsonStyle.COMPACT,
    seed: Seed = None,
    start: Start = None,
    anomaly_chance: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="0..1", help="Chance that a frequency is below 0.", rich_help_panel="Faults"
        ),
    ] = 0.01,
    duplicate_chance: DuplicateChance = 0.0,
) -> None:
    """Generate readings of devices: a frequency with drift and noise, and anomalies.

    Batches and signals are as of events. On Kafka, each reading is a message with the device as its key.
    """
    settings = load_settings()
    kind, place = _choose(data_sink, target, "sensors", settings, topic)
    if kind is SinkKind.HTTP:
        raise UsageError("The collector takes no readings.", "Use --data-sink local, s3 or kafka.")
    from producer.report import Tally
    from producer.sensors import ReadingsPlan, make_readings

    plan = ReadingsPlan(
        seed=secrets.randbits(32) if seed is None else seed,
        devices=devices,
        batch_size=batch_size,
        max_delay=timedelta(seconds=max_delay_seconds),
        style=json_style,
        anomaly=anomaly_chance,
        duplicate=duplicate_chance,
    )
    pace = _Pace(batches, sleep_between_batches_seconds, start, report)
    sink = open_sink(kind, place, settings)
    _produce(partial(make_readings, plan), Tally(plan.seed, anomalies=0), kind, sink, pace)


@dataclass(frozen=True)
class _Pace:
    """Options of a run."""

    batches: int | None
    pause: float | None
    start: datetime | None
    report: Path | None


def _choose(
    data_sink: SinkKind | None, target: str | None, stream: str, settings: Settings, topic: str | None
) -> tuple[SinkKind, str]:
    kind, place = choose_sink(data_sink, target, stream, settings, topic)
    if kind in (SinkKind.LOCAL, SinkKind.S3):
        check_environment(settings, Program.PRODUCER, landing=place)
    return kind, place


def _produce_records(
    stream: str, plan: "Plan", maker: "Maker | None", kind: SinkKind, sink: Sink, pace: _Pace, settings: Settings
) -> None:
    from lakeproof.contracts import load_contract
    from producer.batches import make_batches
    from producer.report import Tally

    make = partial(make_batches, plan, load_contract(settings.contracts, stream), maker=maker)
    _produce(make, Tally(plan.seed), kind, sink, pace)


def _produce(
    make: "Callable[[Iterable[datetime]], Iterator[Batch]]", tally: "Tally", kind: SinkKind, sink: Sink, pace: _Pace
) -> None:
    from producer.produce import Run, produce

    pause = pace.pause
    if pause is None:
        pause = _ENDLESS_PAUSE if pace.batches is None else 0.0
    console = Console(stderr=True)
    # Batches on the terminal would break the progress bar.
    prints_on_terminal = kind is SinkKind.STDOUT and sys.stdout.isatty()
    run = Run(pace.batches, pause, pace.start, pace.report, live=console.is_terminal and not prints_on_terminal)
    produce(make, tally, sink, run, console)


def main() -> None:
    """Run the program."""
    run(app)
