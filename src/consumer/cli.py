"""The command line of the consumer."""

import re
from enum import StrEnum
from typing import Annotated

import typer

from lakeproof.command import application, run
from lakeproof.contracts import contract_text
from lakeproof.doctor import Program, check_environment
from lakeproof.errors import UsageError
from lakeproof.settings import Settings, load_settings

app = application(
    "consumer", "Judge landed batches with Spark; append each record once, to bronze or to the dead letters."
)

_TRIGGER = re.compile(r"\d+(\.\d+)? (millisecond|second|minute|hour)s?")


class DataSource(StrEnum):
    """Where the batches of a stream lie."""

    LOCAL = "local"
    S3 = "s3"


@app.callback()
def _program() -> None:
    """Judge landed batches with Spark; append each record once, to bronze or to the dead letters."""


@app.command("run")
def run_stream(
    stream: Annotated[str, typer.Argument(help="Name of the stream; its contract is contracts/STREAM.yaml.")],
    data_source: Annotated[
        DataSource | None, typer.Option(help="Kind of landing zone; by default that of LAKE_LANDING.")
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Take what has landed by now, then end.")
    ] = False,
    trigger: Annotated[str, typer.Option(help="Time between two looks for new files.")] = "1 second",
) -> None:
    """Run STREAM from its landing zone into bronze, the dead letters and the ledger.

    Ctrl-C or SIGTERM finishes the micro-batch, commits it and ends.
    """
    if not _TRIGGER.fullmatch(trigger):
        raise UsageError(f"--trigger {trigger!r} is not a time.", 'Write it like "5 seconds" or "500 milliseconds".')
    settings = load_settings()
    landing = f"{_landing_root(settings, data_source)}/{stream}"
    contract_text(settings.contracts, stream)  # a name that is none is told before anything else
    check_environment(settings, Program.CONSUMER)

    # Spark takes a second to import: only when everything cheap has been checked.
    from consumer.queries.bronze import BronzeQuery, run_bronze
    from consumer.session import PLANNING_ONLY, start_session

    query = BronzeQuery(stream, landing, available_now, trigger)
    run_bronze(settings, query, lambda: start_session(settings, f"lakeproof consumer {stream}", PLANNING_ONLY))


@app.command("archive")
def archive(
    stream: Annotated[str, typer.Argument(help="A stream to warm up with.")] = "events",
) -> None:
    """Archive the JVM classes that a run loads, so that later starts take about half the time.

    `make setup` does this. The archive fits one Java and one set of jars; any other start ignores it.
    """
    settings = load_settings()
    from consumer.archive import archive_classes

    typer.echo(f"archived: {archive_classes(settings, stream)}")


def _landing_root(settings: Settings, data_source: DataSource | None) -> str:
    scheme = {None: "", DataSource.LOCAL: "file://", DataSource.S3: "s3://"}[data_source]
    if not settings.landing_uri.startswith(scheme):
        raise UsageError(
            f"--data-source {data_source} does not fit the landing zone {settings.landing_uri}.",
            f"Set LAKE_LANDING to {'s3://BUCKET/PREFIX' if data_source is DataSource.S3 else 'a folder'}.",
        )
    return settings.landing_uri


def main() -> None:
    """Run the program."""
    run(app)
