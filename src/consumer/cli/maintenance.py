"""`consumer maintain`."""

from typing import Annotated

import typer

from consumer.cli.shared import check
from lakeproof.errors import LakeproofError
from lakeproof.settings import load_settings
from lakeproof.standard_streams import printable


def maintain_tables(
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STREAM...]", help="Maintain the tables of these streams. Default: all tables."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Nothing is changed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compact small data files, expire old snapshots, and remove orphan files, while consumers run.

    A compaction is published only after all of its rows were read and proven equal to those before. The settings
    LAKE_MAINTENANCE_… define what is kept. If the command is interrupted, run it again.
    """
    settings = load_settings()
    check(settings)
    from consumer.app.run import run_maintenance
    from consumer.maintenance import maintain

    skipped: dict[str, LakeproofError] = {}
    done = run_maintenance(settings, streams or [], skipped.__setitem__, dry_run=dry_run)
    if as_json:
        typer.echo(maintain.as_json(done))
    else:
        for line in maintain.lines(done, dry_run=dry_run):
            typer.echo(printable(line))
    for name, error in skipped.items():
        left_out = f"{name} was" if "." in name else f"The tables of {name} were"
        typer.echo(printable(f"{left_out} not maintained: {error}"), err=True)
    if skipped:
        raise typer.Exit(max(error.exit_code for error in skipped.values()))
    if any(each.problem for each in done):
        raise typer.Exit(1)
