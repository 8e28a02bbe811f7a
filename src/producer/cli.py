"""The command line of the producer."""

import secrets
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lakeproof.command import application, run
from lakeproof.doctor import Program, check_environment
from lakeproof.settings import load_settings
from producer.encoding import JsonStyle
from producer.sinks import SinkKind, choose_sink, open_sink

_ENDLESS_PAUSE = 1.0
_YEARS = range(1970, 3000)

app = application(
    "producer",
    "Generate batches of records, with the faults that real producers have, and land them.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CONTRACTS", "AWS_ENDPOINT_URL", "LAKE_KAFKA_BOOTSTRAP_SERVERS"],
)


@app.callback()
def _program() -> None:
    """Generate batches of records, with the faults that real producers have, and land them."""


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"expected an ISO 8601 time like 2026-01-31T12:00:00Z, got {text!r}.") from None
    if time.year not in _YEARS:
        raise typer.BadParameter(f"expected a time in the years {_YEARS[0]} to {_YEARS[-1]}, got {text!r}.")
    return time


@app.command()
def events(
    data_sink: Annotated[
        SinkKind | None,
        typer.Option(help="Where to write batches. Default: what matches the target.", rich_help_panel="Where"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|URI",
            help="Folder or URI to land in. Default: events/ in the landing zone (LAKE_LANDING).",
            rich_help_panel="Where",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Kafka topic to send to, with --data-sink kafka. Default: LAKE_KAFKA_TOPIC, or events.",
            rich_help_panel="Where",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write what was generated, and the expected rows, to this file as JSON.",
            dir_okay=False,
            rich_help_panel="Where",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of batches. Default: no limit.", rich_help_panel="What"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Records per batch.", rich_help_panel="What")
    ] = 100,
    sleep_between_batches_seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            metavar="S",
            help="Pause between batches. Default: 0 with --batches, otherwise 1.",
            rich_help_panel="Pace",
            show_default=False,
        ),
    ] = None,
    users: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of different users.", rich_help_panel="What")
    ] = 1000,
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
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Random seed. Together with --start, it fixes every byte and file name. Default: random.",
            rich_help_panel="What",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        datetime | None,
        typer.Option(
            parser=_time,
            metavar="TIME",
            help="Time of the first batch, ISO 8601 (UTC if it has no offset). The next ones follow at the interval of "
            "the pause, or 1 s. Default: the current time.",
            rich_help_panel="Pace",
            show_default=False,
        ),
    ] = None,
    corruption_chance: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="0..1", help="Chance that a batch is truncated.", rich_help_panel="Faults"),
    ] = 0.0,
    invalid_schema_chance: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="0..1",
            help="Chance that a record has a field that is missing or null, or of the wrong type or format.",
            rich_help_panel="Faults",
        ),
    ] = 0.0,
    extra_field_chance: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="0..1", help="Chance that a record has an unknown field.", rich_help_panel="Faults"
        ),
    ] = 0.0,
    duplicate_chance: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="0..1",
            help="Chance that a record is a copy of an earlier one, in any batch, including its faults.",
            rich_help_panel="Faults",
        ),
    ] = 0.0,
) -> None:
    """Generate events of users: page views and purchases.

    A batch is a file below dt=…/hh=…/. It appears as a whole or not at all, and never replaces another file.
    On Kafka, each event is a message with the event_id as its key, and a truncated batch is one message.

    On Ctrl-C or SIGTERM, the producer finishes the current batch, writes the report and exits.
    """
    pause = sleep_between_batches_seconds
    if pause is None:
        pause = _ENDLESS_PAUSE if batches is None else 0.0
    chances = (corruption_chance, invalid_schema_chance, extra_field_chance, duplicate_chance)
    settings = load_settings()
    kind, uri = choose_sink(data_sink, target, "events", settings, topic)
    if kind in (SinkKind.LOCAL, SinkKind.S3):
        check_environment(settings, Program.PRODUCER, landing=uri)

    # Faker takes a second to import: only when everything cheap has been checked.
    from lakeproof.contracts import load_contract
    from producer.batches import Plan, make_batches
    from producer.faults import Chances
    from producer.report import Tally
    from producer.run import Run, produce

    plan = Plan(
        seed=secrets.randbits(32) if seed is None else seed,
        users=users,
        batch_size=batch_size,
        evolve_after=evolve_after,
        style=json_style,
        chances=Chances(*chances),
    )
    console = Console(stderr=True)
    produce(
        partial(make_batches, plan, load_contract(settings.contracts, "events")),
        Tally(plan.seed),
        open_sink(kind, uri, settings),
        Run(batches, pause, start, report, live=_draws(console, kind)),
        console,
    )


@app.command()
def sensors(
    data_sink: Annotated[
        SinkKind | None,
        typer.Option(help="Where to write batches. Default: what matches the target.", rich_help_panel="Where"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|URI",
            help="Folder or URI to land in. Default: sensors/ in the landing zone (LAKE_LANDING).",
            rich_help_panel="Where",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            help="Kafka topic to send to, with --data-sink kafka. Default: LAKE_KAFKA_TOPIC, or sensors.",
            rich_help_panel="Where",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write what was generated, and the expected rows, to this file as JSON.",
            dir_okay=False,
            rich_help_panel="Where",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of batches. Default: no limit.", rich_help_panel="What"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Readings per batch.", rich_help_panel="What")
    ] = 100,
    sleep_between_batches_seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            metavar="S",
            help="Pause between batches. Default: 0 with --batches, otherwise 1.",
            rich_help_panel="Pace",
            show_default=False,
        ),
    ] = None,
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
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Random seed. Together with --start, it fixes every byte and file name. Default: random.",
            rich_help_panel="What",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        datetime | None,
        typer.Option(
            parser=_time,
            metavar="TIME",
            help="Time of the first batch, ISO 8601 (UTC if it has no offset). The next ones follow at the interval of "
            "the pause, or 1 s. Default: the current time.",
            rich_help_panel="Pace",
            show_default=False,
        ),
    ] = None,
    anomaly_chance: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="0..1", help="Chance that a frequency is below 0.", rich_help_panel="Faults"
        ),
    ] = 0.01,
    duplicate_chance: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="0..1",
            help="Chance that a reading is a copy of an earlier one.",
            rich_help_panel="Faults",
        ),
    ] = 0.0,
) -> None:
    """Generate readings of devices: a frequency with drift and noise, and anomalies.

    Batches and signals are as of events. On Kafka, each reading is a message with the device as its key.
    """
    pause = sleep_between_batches_seconds
    if pause is None:
        pause = _ENDLESS_PAUSE if batches is None else 0.0
    settings = load_settings()
    kind, uri = choose_sink(data_sink, target, "sensors", settings, topic)
    if kind in (SinkKind.LOCAL, SinkKind.S3):
        check_environment(settings, Program.PRODUCER, landing=uri)

    from producer.report import Tally
    from producer.run import Run, produce
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
    console = Console(stderr=True)
    produce(
        partial(make_readings, plan),
        Tally(plan.seed, anomalies=0),
        open_sink(kind, uri, settings),
        Run(batches, pause, start, report, live=_draws(console, kind)),
        console,
    )


def _draws(console: Console, kind: SinkKind) -> bool:
    """Whether to draw progress: batches that are printed there would tear the bar."""
    return console.is_terminal and not (kind is SinkKind.STDOUT and sys.stdout.isatty())


def main() -> None:
    """Run the program."""
    run(app)
