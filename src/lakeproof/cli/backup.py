"""The commands `lakeproof backup` and `lakeproof restore`."""

import json
import sys
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer

from lakeproof.command import wide_console
from lakeproof.errors import UsageError
from lakeproof.settings import Settings, load_settings
from lakeproof.standard_streams import printable
from lakeproof.wording import count_of


def backup(
    to: Annotated[
        str | None,
        typer.Argument(metavar="[TO]", help="Folder or s3:// address. Default: LAKE_HOME/backups.", show_default=False),
    ] = None,
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="How long tags keep the tables' files, like 7d or '12 hours'.")
    ] = "7d",
    only_list: Annotated[bool, typer.Option("--list", help="List the backups in TO instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Back up the catalog and the state database to a new folder in TO, while consumers run.

    The files of the tables are not copied: an Iceberg tag keeps those of the current snapshot for the time --keep.
    Contracts and data products are copied. Checkpoints are not: a restored lake resumes from the position in its
    tables.
    """
    from lakeproof.backup.manifest import folder_at
    from lakeproof.backup.take import back_up
    from lakeproof.contracts.duration import read_option

    settings = load_settings()
    place = folder_at(settings, to)
    if only_list:
        _list(settings, to, as_json=as_json)
        return
    kept = read_option(keep)
    with wide_console().status("Backing up …"):
        made, folder = back_up(settings, place, kept)
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), **asdict(made)}, indent=2, default=datetime.isoformat))
        return
    typer.echo(printable(f"{count_of(len(made.tables), 'table')} backed up to {folder}."))
    typer.echo(f"Their files are kept until {made.kept_until:%Y-%m-%d %H:%M} UTC.")


def restore(
    backup_folder: Annotated[str, typer.Argument(metavar="FROM", help="Folder of the backup.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Nothing is changed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Restore even if records landed after the backup cannot be read again."),
    ] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Do not back up the current lake first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Restore the catalog and the state database from the backup in FROM. Stop all consumers first.

    Before anything is changed, the command checks the backup, the files of its tables, and whether records that landed
    after it can be read again. No data file is removed. The next run of the consumer reads what landed after the
    backup. If the command is interrupted, run it again.
    """
    from lakeproof.backup.manifest import folder_at
    from lakeproof.backup.restore import as_json as plan_as_json
    from lakeproof.backup.restore import lines, plan_restore
    from lakeproof.backup.restore import restore as restore_backup

    settings = load_settings()
    folder = folder_at(settings, backup_folder)
    asks = not (yes or dry_run)
    if asks and (as_json or not sys.stdin.isatty()):
        raise UsageError("The restore was not confirmed.", "Use --yes, or --dry-run to see what it would do.")
    if not yes or dry_run:
        with wide_console().status("Checking …"):
            plan = plan_restore(settings, folder, accept_loss=accept_loss)
        typer.echo(plan_as_json(plan) if as_json else printable("\n".join(lines(plan))))
        if refused := plan.refusal(accept_loss=accept_loss):
            raise refused
        if dry_run:
            if not as_json:
                typer.echo("Nothing was changed.")
            return
        typer.confirm("Restore it?", abort=True)
    with wide_console().status("Restoring …"):
        done = restore_backup(settings, folder, accept_loss=accept_loss, way_back=not no_backup)
    typer.echo(plan_as_json(done) if as_json else printable("\n".join(lines(done))))


def _list(settings: Settings, to: str | None, *, as_json: bool) -> None:
    from lakeproof.backup.manifest import folder_at, now

    found = list(folder_at(settings, to).backups())
    if as_json:
        listed = [
            {
                "folder": str(folder),
                "taken_at": each.taken_at,
                "kept_until": each.kept_until,
                "tables": len(each.tables),
            }
            for each, folder in found
        ]
        typer.echo(json.dumps(listed, indent=2, default=datetime.isoformat))
        return
    for each, folder in found:
        kept = "kept until" if each.kept_until > now() else "kept only until"
        tables = count_of(len(each.tables), "table")
        typer.echo(printable(f"{folder}: {tables}, {kept} {each.kept_until:%Y-%m-%d %H:%M} UTC"))
    if not found:
        typer.echo("There are no backups.", err=True)
