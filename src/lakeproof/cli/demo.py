"""``lakeproof demo``, and its commands to end it."""

from enum import StrEnum
from typing import Annotated

import typer

from lakeproof.demo.run import clean, start, stop
from lakeproof.demo.streams import DemoStream
from lakeproof.settings import load_settings

demo_commands = typer.Typer(
    help="Start a producer, a consumer and the page of the lake in the background, and show what lands.",
    invoke_without_command=True,
)


class DemoSource(StrEnum):
    """How records reach the consumer."""

    FILES = "files"
    KAFKA = "kafka"


@demo_commands.callback()
def demo(
    context: typer.Context,
    stream: Annotated[DemoStream, typer.Option(help="Stream to produce.")] = DemoStream.EVENTS,
    source: Annotated[
        DemoSource | None,
        typer.Option(
            help="How records arrive. Default: kafka for clickstream, through a collector; files for other streams. A "
            "Kafka broker is started if LAKE_KAFKA_BOOTSTRAP_SERVERS is this machine and none listens there.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start a producer, a consumer and the page of the lake in the background, and show what lands.

    In an empty folder, the command first writes contracts, data products and settings. It retrieves Spark's jars if
    they are missing. The lake is on S3 if the settings say so, otherwise in local folders.
    """
    if context.invoked_subcommand is None:
        if stream is DemoStream.CLICKSTREAM and source is DemoSource.FILES:
            raise typer.BadParameter(
                "files cannot be used for clickstream: the collector sends events to a Kafka topic. "
                "To land them as files: producer clickstream",
                param_hint="--source",
            )
        raise typer.Exit(start(stream, kafka=source is DemoSource.KAFKA))


@demo_commands.command("stop")
def stop_demo() -> None:
    """Stop the programs of the demo. The data stays."""
    if not stop(load_settings()):
        typer.echo("Nothing is running.")


@demo_commands.command("clean")
def clean_demo() -> None:
    """Stop the demo, and remove the data of its lake. Contracts, settings and downloads are kept."""
    settings = load_settings()
    stop(settings)
    clean(settings)
