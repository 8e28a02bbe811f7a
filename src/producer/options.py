"""Common options of the producer's commands."""

import functools
import inspect
import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from producer.encoding import JsonStyle
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


def where(description: str, **others: Any) -> Any:
    """Declare an option about the target of batches."""
    return typer.Option(help=description, rich_help_panel="Where", show_default=False, **others)


def what(description: str, **others: Any) -> Any:
    """Declare an option about the content of batches."""
    return typer.Option(help=description, metavar="N", rich_help_panel="What", **others)


def pace(description: str, **others: Any) -> Any:
    """Declare an option about the pace of batches."""
    return typer.Option(help=description, rich_help_panel="Pace", **others)


def chance(description: str) -> Any:
    """Declare an option for the probability of a fault."""
    return typer.Option(min=0, max=1, metavar="0..1", help=f"Chance that {description}.", rich_help_panel="Faults")


Style = Annotated[
    JsonStyle,
    typer.Option(
        metavar="STYLE",
        help="compact: an array without spaces; spaced: an array as Python's json.dumps writes it; "
        "ndjson: one record per line.",
        rich_help_panel="What",
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """Options of all commands."""

    data_sink: Annotated[SinkKind | None, where("Where to write batches. Default: derived from the target.")] = None
    target: Annotated[
        str | None,
        where(
            "Folder or URI to land in, or address of the collector. Default: the stream's folder in the landing zone "
            "(LAKE_LANDING), or the local collector.",
            metavar="FOLDER|URI|URL",
        ),
    ] = None
    topic: Annotated[
        str | None,
        where(
            "Kafka topic to send to, with --data-sink kafka. Default: LAKE_KAFKA_TOPIC, or the stream's topic.",
            metavar="TOPIC",
        ),
    ] = None
    report: Annotated[
        Path | None,
        where("Write what was generated, and the expected rows, to this file as JSON.", dir_okay=False),
    ] = None
    batches: Annotated[int | None, what("Number of batches. Default: no limit.", min=1)] = None
    batch_size: Annotated[int, what("Records per batch.", min=1)] = 100
    seed: Annotated[
        int | None,
        what(
            "Random seed. Together with --start, it fixes every byte and file name. Default: random.",
            show_default=False,
        ),
    ] = None
    sleep_between_batches_seconds: Annotated[
        float | None,
        pace(
            "Pause between batches. Default: 0 with --batches, otherwise 1.",
            min=0,
            max=86_400,
            metavar="S",
            show_default=False,
        ),
    ] = None
    start: Annotated[
        datetime | None,
        pace(
            "Time of the first batch, ISO 8601 (UTC if it has no offset). Later batches follow at the interval of the "
            "pause, or 1 s. Default: the current time.",
            parser=_time,
            metavar="TIME",
            show_default=False,
        ),
    ] = None
    duplicate_chance: Annotated[
        float, chance("a record is a copy of an earlier one, in any batch, including its faults")
    ] = 0.0

    def chosen_seed(self) -> int:
        """Return the given seed, or a random one."""
        return secrets.randbits(32) if self.seed is None else self.seed


@dataclass(frozen=True)
class UserOptions:
    """Options of commands that generate events of users."""

    users: Annotated[int, what("Number of different users.", min=1)] = 1000
    corruption_chance: Annotated[float, chance("a batch is truncated")] = 0.0
    invalid_schema_chance: Annotated[
        float, chance("a record has a field that is missing or null, or of the wrong type or format")
    ] = 0.0
    extra_field_chance: Annotated[float, chance("a record has an unknown field")] = 0.0


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the fields of parameters that are dataclasses into options of the Typer command."""
    own = inspect.signature(command).parameters
    groups: dict[str, type[Any]] = {}
    for name, each in own.items():
        if isinstance(each.annotation, type) and is_dataclass(each.annotation):
            groups[name] = each.annotation

    @functools.wraps(command)
    def run(**values: Any) -> None:
        made = {
            name: group(**{each.name: values.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **values)

    parameters = [each for group in groups.values() for each in inspect.signature(group).parameters.values()]
    parameters += [each for name, each in own.items() if name not in groups]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
