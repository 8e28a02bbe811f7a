"""The command line of the collector."""

import sys
from typing import Annotated

import typer

from lakeproof.command import application, run
from lakeproof.settings import load_settings

app = application(
    "collector",
    "Accept events over HTTP, and answer when Kafka has stored them.",
    ["LAKE_KAFKA_BOOTSTRAP_SERVERS", "LAKE_COLLECTOR_HOST", "LAKE_COLLECTOR_PORT", "LAKE_COLLECTOR_TOPIC"],
)


@app.command("run")
def run_collector() -> None:
    """Serve POST /collect until Ctrl-C or SIGTERM. Posts that have begun are finished first."""
    settings = load_settings()
    # FastAPI takes a second to import.
    from collector.server import run as serve

    serve(settings)


@app.command()
def topics() -> None:
    """Create missing topics, and print how existing topics differ from the settings. Exits with 1 if any differs."""
    settings = load_settings()
    from collector.sender import topics_of
    from lakeproof.kafka.client import client_properties
    from lakeproof.kafka.create import create_topics

    found = create_topics(client_properties(settings.kafka), topics_of(settings))
    for each in found:
        sys.stdout.write(f"{each.topic}: {each.what}: expected {each.expected}, found {each.found}\n")
    raise typer.Exit(1 if found else 0)


@app.command("new-key")
def new_key(client: Annotated[str, typer.Argument(help="Name of the client.")]) -> None:
    """Create an API key. Prints the key, and the line for the file of LAKE_COLLECTOR_KEYS."""
    from collector.keys import new_key as make

    made = make(client)
    sys.stdout.write(f"key:  {made.key}\nline: {made.line}\n")


def main() -> None:
    """Run the program."""
    run(app, logs=["run"])
