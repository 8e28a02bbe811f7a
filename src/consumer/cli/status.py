"""`consumer status`."""

import sys
from typing import Annotated

import typer

from lakeproof.contracts import load_contract
from lakeproof.errors import UsageError
from lakeproof.kafka.modes import ModeName
from lakeproof.settings import load_settings


def show_status(
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STREAM...]", help="Streams or modes. Default: all that have tables or have run."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh the output until Ctrl-C.")] = False,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="With --watch: seconds between updates. Default: 2."),
    ] = None,
) -> None:
    """Show every query: whether it runs, how far it is behind, rows per second, last commit and watermark.

    Exit codes: 0 all queries run, 1 a query failed, 3 the lake cannot be reached, 4 a query is stopped, 5 a breaker has
    paused a query. 1 takes precedence over 5, and 5 over 4.
    """
    settings = load_settings()
    for stream in streams or ():
        if stream not in list(ModeName):
            load_contract(settings.contracts, stream)
    if as_json and watch:
        raise UsageError("--json cannot be used with --watch.", "LAKE_METRICS serves the same to programs.")
    if every is not None and not watch:
        raise UsageError("--every is for --watch.", "Add --watch.")
    from consumer.monitoring import status_table
    from consumer.monitoring.query_status import exit_code
    from consumer.monitoring.status import status

    if watch:
        status_table.watch(lambda: status(settings, streams or []), every or 2.0, sys.stdout)
    found = status(settings, streams or [])
    if as_json:
        typer.echo(status_table.as_json(found))
    else:
        status_table.write_table(found, sys.stdout)
    raise typer.Exit(exit_code(found))
