"""`consumer replay`."""

from pathlib import Path
from typing import Annotated

import typer

from consumer.cli.shared import StreamArgument, check
from consumer.layers.bronze.letter_condition import COLUMNS, spark_condition, spark_expression
from consumer.scope import scope_of_run
from lakeproof.settings import load_settings


def replay_dead_letters(
    stream: StreamArgument,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Only dead letters that meet this condition, in DuckDB's SQL: "
            "\"list_contains(codes, 'wrong_type') AND _source LIKE '2026/11/%'\". "
            f"The columns are {', '.join(COLUMNS)}.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Only the first N of them, in the order of arrival."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, by reason, with examples. Nothing is changed.")
    ] = False,
    max_attempts: Annotated[
        int, typer.Option(metavar="N", min=1, help="Park a dead letter after N failed attempts.")
    ] = 3,
    parked: Annotated[bool, typer.Option("--parked", help="Replay parked dead letters, too.")] = False,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="Take the complete records of a truncated batch or gzip file. The rest stays."),
    ] = False,
    transform: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Correct the bytes first, with a .py file that has a function transform(raw: bytes, letter: dict) -> "
            "bytes, or with a .sql file that has an expression over raw.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Judge the open dead letters of STREAM again, by the current contract, and append valid records to bronze.

    A record keeps the _source and _position with which it landed. Silver and gold are filled as in a run. A record that
    fails again stays a dead letter, and dead_letters.STREAM_attempts says why. Stop the consumer of the stream first.
    If the command is interrupted, run it again.
    """
    settings = load_settings()
    scope = scope_of_run(settings, [stream], None)
    condition = spark_condition("--where", where) if where is not None else None
    from consumer.layers.bronze.transform import read_transform

    read = read_transform(transform) if transform else None
    expression = spark_expression(f"--transform {read.name}", read.text) if read and read.is_sql else None
    check(settings)
    from consumer.app.run import run_preview, run_replay
    from consumer.layers.bronze.letters import Choice
    from consumer.layers.bronze.replay import Replay

    wanted = Replay(Choice(condition, limit, parked), max_attempts, salvage, read, expression)
    typer.echo(run_preview(scope, wanted) if dry_run else run_replay(scope, wanted))
