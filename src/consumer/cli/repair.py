"""Repairs of a stopped stream: `consumer reset`, `give-up`, `accept` and `resend`."""

from typing import Annotated

import typer

from consumer.cli.shared import StreamArgument
from lakeproof.contracts import load_contract
from lakeproof.settings import load_settings


def reset_stream(stream: StreamArgument) -> None:
    """Remove the checkpoint of STREAM, so that the next run resumes from the position in its tables.

    Use this if checkpoint, landing log and tables were restored from different points in time. Nothing is read twice:
    the tables record which files were read. The next run reads the files that are in no table.
    """
    settings = load_settings()
    load_contract(settings.contracts, stream)
    from consumer.app.repair import reset

    typer.echo(reset(settings, stream))


def give_up_files(
    stream: StreamArgument,
    yes: Annotated[
        bool, typer.Option("--yes", help="Give them up. Without this option, they are only listed.")
    ] = False,
) -> None:
    """List the files or messages that disappeared before they were read. With --yes, give them up.

    The consumer waits for a missing file, because its disk may not be mounted. A file that was given up becomes a dead
    letter with the reason `absent`, unless it is back by then. If a topic's retention has removed messages, each range
    of offsets becomes such a dead letter, and the stream resumes after it.
    """
    settings = load_settings()
    load_contract(settings.contracts, stream)
    from consumer.app.repair import absent_files, give_up, give_up_offsets, lost_offsets, topic_of

    if topic := topic_of(settings, stream):
        lost = lost_offsets(settings, stream)
        for each in lost:
            typer.echo(f"{topic}/{each.partition}: offsets {each.start:,} to {each.end - 1:,}")
        if yes:
            give_up_offsets(settings, stream, lost)
        said = "given up" if yes else "lost; use --yes to give them up"
        typer.echo(f"{len(lost):,} ranges of offsets {said}" if lost else "No offsets are lost.", err=True)
        return
    absent = absent_files(settings, stream)
    for name in absent:
        typer.echo(name)
    if yes and absent:
        give_up(settings, stream, absent)
    said = "given up" if yes else "missing; use --yes to give them up"
    typer.echo(f"{len(absent):,} files {said}" if absent else "No files are missing.", err=True)


def accept_paused(stream: StreamArgument) -> None:
    """Let the next run commit the micro-batch that the breaker of STREAM has paused, once.

    Its bad units become dead letters. A stream is paused, with exit code 5, if too many units are bad and its contract
    says `pause`. Nothing of the micro-batch was committed. Instead of accepting it, you can correct the contract, apply
    it, and run the stream again.
    """
    settings = load_settings()
    load_contract(settings.contracts, stream)
    from consumer.app.repair import accept

    accepted = accept(settings, stream)
    for line in accepted:
        typer.echo(line)
    said = "Accepted. The next run commits it." if accepted else f"Nothing of {stream} is paused."
    typer.echo(said, err=True)


def resend_table(
    table: Annotated[
        str, typer.Argument(help="silver.STREAM, dead_letters.STREAM or gold.PRODUCT", show_default=False)
    ],
) -> None:
    """Send all rows of TABLE to its topics again, in the next run.

    Use this if a table was restored from an older copy than its topic shows. Messages in the topic stay, and repeated
    ones have the same lakeproof-id.
    """
    settings = load_settings()
    from consumer.app.repair import resend

    typer.echo(resend(settings, table))
