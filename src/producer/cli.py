"""The command line of the producer."""

import secrets
import sys
from datetime import UTC, datetime
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
    "Make batches of records, with the faults that real producers have, and land them.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CONTRACTS", "AWS_ENDPOINT_URL"],
)


@app.callback()
def _program() -> None:
    """Make batches of records, with the faults that real producers have, and land them."""


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no ISO 8601 time, like 2026-01-31T12:00:00Z.") from None
    if time.year not in _YEARS:
        raise typer.BadParameter(f"{text!r} is not within the years {_YEARS[0]} to {_YEARS[-1]}.")
    return time


@app.command()
def events(
    data_sink: Annotated[
        SinkKind | None,
        typer.Option(help="Where batches go; by default what fits the target.", rich_help_panel="Where"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|URI",
            help="Folder or URI to land in; by default events/ in the landing zone (LAKE_LANDING).",
            rich_help_panel="Where",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write what was made, and what should become of it, to this file as JSON.",
            dir_okay=False,
            rich_help_panel="Where",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Batches to make; without it there is no end.", rich_help_panel="What"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Records in a batch.", rich_help_panel="What")
    ] = 100,
    sleep_between_batches_seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            metavar="S",
            help="Pause between batches; by default 1 without --batches, else 0.",
            rich_help_panel="Pace",
            show_default=False,
        ),
    ] = None,
    users: Annotated[
        int, typer.Option(min=1, metavar="N", help="Users that events draw from.", rich_help_panel="What")
    ] = 1000,
    evolve_after: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Batches made before purchases begin to have a product_id.",
            rich_help_panel="What",
        ),
    ] = 0,
    json_style: Annotated[
        JsonStyle,
        typer.Option(
            metavar="STYLE",
            help="compact: an array without spaces; spaced: an array as Python's json.dumps writes it; "
            "ndjson: a record a line.",
            rich_help_panel="What",
        ),
    ] = JsonStyle.COMPACT,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Fixes every choice; with --start also every byte and name. By default another each time.",
            rich_help_panel="What",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        datetime | None,
        typer.Option(
            parser=_time,
            metavar="TIME",
            help="Time of the first batch, ISO 8601 (UTC unless it says otherwise); the next ones follow at the pause, "
            "or at 1 s. By default the real time.",
            rich_help_panel="Pace",
            show_default=False,
        ),
    ] = None,
    corruption_chance: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="0..1", help="For a batch: it is cut short.", rich_help_panel="Faults"),
    ] = 0.0,
    invalid_schema_chance: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="0..1",
            help="For a record: a required field missing or null, a wrong type, no timestamp.",
            rich_help_panel="Faults",
        ),
    ] = 0.0,
    extra_field_chance: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="0..1", help="For a record: a field nobody announced.", rich_help_panel="Faults"
        ),
    ] = 0.0,
    duplicate_chance: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="0..1",
            help="For a record: the copy of an earlier one, of this batch or another, faults and all.",
            rich_help_panel="Faults",
        ),
    ] = 0.0,
) -> None:
    """Make events of users: page views and purchases.

    A batch is a file that appears whole or not at all, under dt=…/hh=…/, and never replaces another.

    Ctrl-C or SIGTERM finishes the batch being written, reports and ends.
    """
    pause = sleep_between_batches_seconds
    if pause is None:
        pause = _ENDLESS_PAUSE if batches is None else 0.0
    chances = (corruption_chance, invalid_schema_chance, extra_field_chance, duplicate_chance)
    settings = load_settings()
    kind, uri = choose_sink(data_sink, target, "events", settings)
    if kind is not SinkKind.STDOUT:
        check_environment(settings, Program.PRODUCER, landing=uri)

    # Faker takes a second to import: only when everything cheap has been checked.
    from lakeproof.contracts import load_contract
    from producer.batches import Plan
    from producer.faults import Chances
    from producer.run import Run, produce

    console = Console(stderr=True)
    # Batches there would tear the progress bar.
    prints_on_terminal = kind is SinkKind.STDOUT and sys.stdout.isatty()
    produce(
        Plan(
            seed=secrets.randbits(32) if seed is None else seed,
            users=users,
            batch_size=batch_size,
            evolve_after=evolve_after,
            style=json_style,
            chances=Chances(*chances),
        ),
        load_contract(settings.contracts, "events"),
        open_sink(kind, uri, settings),
        Run(batches, pause, start, report, live=console.is_terminal and not prints_on_terminal),
        console,
    )


def main() -> None:
    """Run the program."""
    run(app)
