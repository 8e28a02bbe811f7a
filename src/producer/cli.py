"""The command line of the producer."""

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from lakeproof.command import application, run
from lakeproof.doctor import Program, check_environment
from lakeproof.errors import UsageError
from lakeproof.settings import Settings, load_settings
from producer.encoding import JsonStyle
from producer.options import RunOptions, Style, UserOptions, chance, pace, what, where, with_shared_options
from producer.sinks import Sink, SinkKind, choose_sink, open_sink

if TYPE_CHECKING:
    from producer.batches import Batch, BatchPlan, Maker
    from producer.report import Tally

_ENDLESS_PAUSE = 1.0

app = application(
    "producer",
    "Generate batches of records with the faults of real producers, and land them.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CONTRACTS", "AWS_ENDPOINT_URL", "LAKE_KAFKA_BOOTSTRAP_SERVERS"],
)


@app.command()
@with_shared_options
def events(
    options: RunOptions,
    of_users: UserOptions,
    evolve_after: Annotated[int, what("Number of batches before purchases get a product_id.", min=0)] = 0,
    json_style: Style = JsonStyle.COMPACT,
) -> None:
    """Generate events of users: page views and purchases.

    A batch is a file below dt=…/hh=…/. It appears as a whole or not at all, and never replaces another file. On Kafka,
    each event is a message with the event_id as its key, and a truncated batch is one message.

    On Ctrl-C or SIGTERM, the producer finishes the current batch, writes the report and exits.
    """
    settings = load_settings()
    kind, place = _choose(options, "events", settings)
    plan = _plan(options, of_users, evolve_after, json_style)
    _produce_records("events", plan, None, kind, open_sink(kind, place, settings), options, settings)


@app.command()
@with_shared_options
def clickstream(
    options: RunOptions,
    of_users: UserOptions,
    receipts: Annotated[
        Path | None, where("Append the collector's answers to this file, with --data-sink http.", dir_okay=False)
    ] = None,
) -> None:
    """Generate the clickstream of visitors who browse a shop: sessions with referrers, searches, products, a cart.

    With --data-sink http, a batch is a post to the collector, which is repeated until it is accepted. A truncated batch
    is refused, and the report does not count it. Messages and files have the form of those of `producer events`.

    On Ctrl-C or SIGTERM, the producer finishes the current batch, writes the report and exits.
    """
    settings = load_settings()
    kind, place = _choose(options, "clickstream", settings)
    if receipts and kind is not SinkKind.HTTP:
        raise UsageError("--receipts is for --data-sink http.", "Add --data-sink http, or remove --receipts.")
    from producer.browsing import Browsing, make_shop
    from producer.sinks.http import connect

    plan = _plan(options, of_users)
    sink = connect(place, settings, receipts) if kind is SinkKind.HTTP else open_sink(kind, place, settings)
    shop = Browsing(make_shop(plan.seed, plan.users))
    _produce_records("clickstream", plan, shop, kind, sink, options, settings)


@app.command()
@with_shared_options
def sensors(
    options: RunOptions,
    devices: Annotated[int, what("Number of devices, which take turns.", min=1)] = 100,
    max_delay_seconds: Annotated[
        float,
        pace(
            "Maximum age of a reading when its batch is made. Readings arrive out of order.",
            min=0,
            max=86_400,
            metavar="S",
        ),
    ] = 30.0,
    json_style: Style = JsonStyle.COMPACT,
    anomaly_chance: Annotated[float, chance("a frequency is below 0")] = 0.01,
) -> None:
    """Generate readings of devices: a frequency with drift and noise, and anomalies.

    Batches and signals work as in `producer events`. On Kafka, each reading is a message with the device as its key.
    """
    settings = load_settings()
    kind, place = _choose(options, "sensors", settings)
    if kind is SinkKind.HTTP:
        raise UsageError("The collector takes no readings.", "Use --data-sink local, s3 or kafka.")
    from producer.report import Tally
    from producer.sensors import ReadingsPlan, make_readings

    plan = ReadingsPlan(
        seed=options.chosen_seed(),
        devices=devices,
        batch_size=options.batch_size,
        max_delay=timedelta(seconds=max_delay_seconds),
        style=json_style,
        anomaly=anomaly_chance,
        duplicate=options.duplicate_chance,
    )
    tally = Tally(plan.seed, anomalies=0)
    _produce(partial(make_readings, plan), tally, kind, open_sink(kind, place, settings), options)


def _choose(options: RunOptions, stream: str, settings: Settings) -> tuple[SinkKind, str]:
    kind, place = choose_sink(options.data_sink, options.target, stream, settings, options.topic)
    if kind in (SinkKind.LOCAL, SinkKind.S3):
        check_environment(settings, Program.PRODUCER, landing=place)
    return kind, place


def _plan(
    options: RunOptions, of_users: UserOptions, evolve_after: int = 0, style: JsonStyle = JsonStyle.COMPACT
) -> "BatchPlan":
    # Importing Faker takes a second, so options are checked first.
    from producer.batches import BatchPlan
    from producer.faults import Chances

    chances = Chances(
        of_users.corruption_chance,
        of_users.invalid_schema_chance,
        of_users.extra_field_chance,
        options.duplicate_chance,
    )
    return BatchPlan(options.chosen_seed(), of_users.users, options.batch_size, evolve_after, style, chances)


def _produce_records(
    stream: str,
    plan: "BatchPlan",
    maker: "Maker | None",
    kind: SinkKind,
    sink: Sink,
    options: RunOptions,
    settings: Settings,
) -> None:
    from lakeproof.contracts import load_contract
    from producer.batches import make_batches
    from producer.report import Tally

    make = partial(make_batches, plan, load_contract(settings.contracts, stream), maker=maker)
    _produce(make, Tally(plan.seed), kind, sink, options)


def _produce(
    make: "Callable[[Iterable[datetime]], Iterator[Batch]]",
    tally: "Tally",
    kind: SinkKind,
    sink: Sink,
    options: RunOptions,
) -> None:
    from producer.produce import Run, produce

    pause = options.sleep_between_batches_seconds
    if pause is None:
        pause = _ENDLESS_PAUSE if options.batches is None else 0.0
    console = Console(stderr=True)
    # Batches on the terminal would break the progress bar.
    prints_on_terminal = kind is SinkKind.STDOUT and sys.stdout.isatty()
    live = console.is_terminal and not prints_on_terminal
    produce(make, tally, sink, Run(options.batches, pause, options.start, options.report, live), console)


def main() -> None:
    """Run the program."""
    run(app)
