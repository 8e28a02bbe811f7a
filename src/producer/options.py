"""Common options of the producer's commands."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from producer.sinks import SinkKind

_YEARS = range(1970, 3000)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"expected an ISO 8601 time like 2026-01-31T12:00:00Z, got {text!r}.") from None
    if time.year not in _YEARS:
        raise typer.BadParameter(f"expected a time in the years {_YEARS[0]} to {_YEARS[-1]}, got {text!r}.")
    return time


DataSink = Annotated[
    SinkKind | None,
    typer.Option(help="Where to write batches. Default: what matches the target.", rich_help_panel="Where"),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER|URI|URL",
        help="Folder or URI to land in, or address of the collector. Default: the stream's folder in the landing zone "
        "(LAKE_LANDING), or the local collector.",
        rich_help_panel="Where",
        show_default=False,
    ),
]
TopicName = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC",
        help="Kafka topic to send to, with --data-sink kafka. Default: LAKE_KAFKA_TOPIC, or the stream's topic.",
        rich_help_panel="Where",
        show_default=False,
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        help="Write what was generated, and the expected rows, to this file as JSON.",
        dir_okay=False,
        rich_help_panel="Where",
    ),
]
Batches = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Number of batches. Default: no limit.", rich_help_panel="What"),
]
BatchSize = Annotated[int, typer.Option(min=1, metavar="N", help="Records per batch.", rich_help_panel="What")]
Pause = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=86_400,
        metavar="S",
        help="Pause between batches. Default: 0 with --batches, otherwise 1.",
        rich_help_panel="Pace",
        show_default=False,
    ),
]
Users = Annotated[int, typer.Option(min=1, metavar="N", help="Number of different users.", rich_help_panel="What")]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Random seed. Together with --start, it fixes every byte and file name. Default: random.",
        rich_help_panel="What",
        show_default=False,
    ),
]
Start = Annotated[
    datetime | None,
    typer.Option(
        parser=_time,
        metavar="TIME",
        help="Time of the first batch, ISO 8601 (UTC if it has no offset). The next ones follow at the interval of "
        "the pause, or 1 s. Default: the current time.",
        rich_help_panel="Pace",
        show_default=False,
    ),
]
CorruptionChance = Annotated[
    float,
    typer.Option(min=0, max=1, metavar="0..1", help="Chance that a batch is truncated.", rich_help_panel="Faults"),
]
InvalidSchemaChance = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        metavar="0..1",
        help="Chance that a record has a field that is missing or null, or of the wrong type or format.",
        rich_help_panel="Faults",
    ),
]
ExtraFieldChance = Annotated[
    float,
    typer.Option(
        min=0, max=1, metavar="0..1", help="Chance that a record has an unknown field.", rich_help_panel="Faults"
    ),
]
DuplicateChance = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        metavar="0..1",
        help="Chance that a record is a copy of an earlier one, in any batch, including its faults.",
        rich_help_panel="Faults",
    ),
]
Receipts = Annotated[
    Path | None,
    typer.Option(
        help="Append the collector's answers to this file, with --data-sink http.",
        dir_okay=False,
        rich_help_panel="Where",
    ),
]
