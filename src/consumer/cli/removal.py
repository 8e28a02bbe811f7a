"""`consumer erase` and `consumer retain`."""

from pathlib import Path
from typing import Annotated

import typer

from consumer.cli.shared import StreamArgument, check
from consumer.removal.condition import read_condition
from consumer.scope import scope_of_run
from lakeproof.contracts.duration import read_option
from lakeproof.contracts.model import Removable
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.move.outside import check_tables
from lakeproof.settings import load_settings
from lakeproof.standard_streams import printable


def erase_person(
    stream: StreamArgument,
    where: Annotated[
        str,
        typer.Option(
            metavar="SQL",
            help="Whom to erase: FIELD = VALUE or FIELD IN (VALUE, …), joined by AND and OR, like \"user_id = 'u1'\".",
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed. Nothing is changed.")] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the certificate, as JSON, to a file.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate.")] = False,
    keep_landed: Annotated[
        bool, typer.Option("--keep-landed", help="Keep landed files until retention. The erasure is then incomplete.")
    ] = False,
    in_source: Annotated[
        bool,
        typer.Option(
            "--in-source",
            help="Also remove files from the stream's own address, set by --source or by its contract.",
        ),
    ] = False,
) -> None:
    """Remove the data of a person from all tables, landed files and snapshots of STREAM.

    Stop the consumer of the stream first. Silver and gold are filled again, as if the data had never landed. `reader
    verify` then counts the units as erased. The exit code is 6 if the erasure is incomplete; the command says why. In
    that case, or if the command was interrupted, run it again.
    """
    settings = load_settings()
    scope = scope_of_run(settings, [stream], None)
    condition = read_condition(where, scope.contracts[stream])
    if certificate and not dry_run:
        certificate.touch()  # fails before anything is removed: no later command could write this certificate
    check(settings)
    from consumer.app.run import run_erasure
    from consumer.removal.certificate import INCOMPLETE, lines
    from consumer.removal.certificate import as_json as certificate_json

    done = run_erasure(settings, stream, condition, dry_run=dry_run, keep_landed=keep_landed, in_source=in_source)
    if certificate and not dry_run:
        certificate.write_text(certificate_json(done) + "\n")
    if as_json:
        typer.echo(certificate_json(done))
    else:
        for line in lines(done, dry_run=dry_run):
            typer.echo(printable(line))
    if not dry_run and not done.is_complete:
        raise typer.Exit(INCOMPLETE)


def retain_landed_files(
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STREAM...]", help="Default: all streams whose contracts have a retention."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Remove only what is older than this, like 30d or '12 hours'.",
            show_default="retention of the contract",
        ),
    ] = None,
    what: Annotated[
        list[Removable] | None,
        typer.Option(
            "--of",
            help="Remove only this; can be repeated. dead_letters: those that a replay has closed.",
            show_default="landed with --older-than, otherwise everything in the contract's retention",
        ),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|URI", help="Copy each file there before it is removed, under STREAM/.", show_default=False
        ),
    ] = None,
    in_source: Annotated[
        bool,
        typer.Option(
            "--in-source",
            help="Also remove files from the stream's own address, set by --source or by its contract.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Nothing is changed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove or archive old landed files of STREAM after all of their records are in the tables, while consumers run.

    A file stays if it is not in the ledger yet, if it was overwritten, if ledger and tables differ, or if a replay of a
    dead letter needs it. With --of, the command removes rows: dead letters that a replay has closed, conflicts, late
    rows. `reader verify` then counts removed files and rows as expired. If the command is interrupted, run it again.
    """
    settings = load_settings()
    age = read_option(older_than) if older_than is not None else None
    check_tables(settings)
    from consumer.app.run import run_retention
    from consumer.removal import retain

    names = list(dict.fromkeys(streams or retain.streams_with_retention(settings)))
    if not names:
        raise UsageError(
            "No contract says how long landed files are kept.", "Name streams: consumer retain STREAM --older-than 30d."
        )
    done = run_retention(settings, names, age, archive, what=what or [], in_source=in_source, dry_run=dry_run)
    if as_json:
        typer.echo(retain.as_json(done))
    else:
        for line in retain.lines(done, dry_run=dry_run):
            typer.echo(printable(line))
    if failed := [each for each in done if each.problem]:
        raise typer.Exit(UnavailableError.exit_code if all(each.is_unavailable for each in failed) else 1)
