"""Start, stop and remove the demo of a lake."""

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import typer

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.demo.processes import Processes
from lakeproof.demo.streams import DemoStream, arguments
from lakeproof.doctor import Program, check_environment, find_java
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.http_server import address_of
from lakeproof.install.jars import hashes_of_kafka, holds_spark, retrieve
from lakeproof.install.project import STREAMS, init_project
from lakeproof.install.spark import prepare_spark
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import Settings, load_settings
from lakeproof.tables.names import LANDING_ROOT, stream_tables

_READY_SECONDS = 60.0
_ROWS_SECONDS = "240"  # two minutes were too short on a busy machine
_POLL_SECONDS = 0.2
_CLEAN = "Remove them with `lakeproof demo clean` (`make clean` in a clone), or choose another folder: "
_NEEDED = ("boto3", "duckdb", "faker", "pyspark", "supervisor")
_ONE_RECORD = ("--data-sink", "kafka", "--batches", "1", "--batch-size", "1")
_PARTS = {
    *("landing", "warehouse", "checkpoints", "silver-index", "published", "aside", "dedupe", "windows", "modes"),
    *("kafka", "logs", ".demo"),
}
_DATABASES = ("catalog.db", "landing-log.db", ".duckdb")


def start(stream: DemoStream, *, kafka: bool) -> int:
    """Start the demo unless it runs, and show what lands; return the exit code of `reader summary`."""
    if missing := sorted(name for name in _NEEDED if not find_spec(name)):
        raise UnavailableError(f"{missing[0]} is not installed.", 'Install it: pip install "lakeproof[all]"')
    settings = _project(stream)
    kafka = kafka or stream is DemoStream.CLICKSTREAM
    # Rows of an earlier start do not show that this one landed any.
    which = "--new" if (settings.home / "checkpoints").is_dir() else "--wait"
    what = f"{stream} from {'Kafka' if kafka else 'files'}"
    processes = Processes.running(settings)
    if processes and (processes.cut_off or processes.is_stopping):
        why = "was cut off" if processes.cut_off else "is being stopped"
        typer.echo(f"The previous start {why}. Stopping what it started …")
        processes.stop()
        processes = None
    if processes:
        if processes.what != what:
            raise UsageError(
                f"The demo on {settings.home} runs {processes.what}, not {what}.",
                "Stop it first: `lakeproof demo stop` (`make stop` in a clone).",
            )
        which = "--wait"
        typer.echo(f"The demo is already running on {settings.home}:\n{processes.status()}", nl=False)
    else:
        _require_same_origin(settings, stream, kafka=kafka)
        processes = _start(settings, stream, what, kafka=kafka)
    command = [sys.executable, "-m", "reader", "summary", stream, which, "--timeout", _ROWS_SECONDS]
    code = subprocess.run(command, check=False).returncode
    if page := _page(settings, processes):
        typer.echo(f"The page of the lake, which refreshes as commits arrive: {page}")
    return code


def stop(settings: Settings) -> bool:
    """Stop what the demo started; return whether something was running."""
    processes = Processes.running(settings)
    if processes is None:
        return False
    typer.echo("Stopping what the demo started. The consumer finishes its micro-batch first …")
    processes.stop()
    typer.echo(f"Stopped. The data is in {settings.home}.")
    return True


def clean(settings: Settings) -> None:
    """Remove the folder of the lake, unless it contains anything else."""
    home = settings.home
    if not home.exists():
        typer.echo(f"No data found in {home}.")
        return
    for entry in home.iterdir():
        if entry.name not in _PARTS and not entry.name.startswith(_DATABASES):
            raise UsageError(
                f"Nothing was removed: {home} contains {entry.name}, which is not part of a lake.",
                "Remove by hand what you do not need.",
            )
    shutil.rmtree(home.resolve())  # it refuses links
    if home.is_symlink():
        home.unlink()
    typer.echo(f"Removed {home}.")


def _project(stream: DemoStream) -> Settings:
    """Load the settings; in an empty folder, write contracts, data products and settings first."""
    settings = load_settings()
    if (settings.contracts / f"{stream}.yaml").exists():
        return settings
    if any(Path().iterdir()):
        raise UsageError(
            f"{Path().absolute()} has other files, and no contract of {stream}.",
            "Run this in an empty folder: mkdir demo && cd demo && lakeproof demo",
        )
    init_project(Path(), STREAMS)
    typer.echo("Wrote contracts/, gold/, .env and compose.yaml.")
    return load_settings()


def _start(settings: Settings, stream: DemoStream, what: str, *, kafka: bool) -> Processes:
    java = find_java()[0]
    if not holds_spark(settings.spark.jars):
        prepare_spark(java, settings.spark.jars.absolute())
    check_environment(settings, Program.PRODUCER)
    broker = settings.kafka.bootstrap_servers if kafka else ""
    own = kafka and not _has_broker(broker)
    jars = settings.spark.jars.absolute().parent / "kafka"
    if own:
        typer.echo(f"Starting a Kafka broker at {broker}.")
        retrieve(str(java), "kafka", jars, hashes_of_kafka())
    storage = "s3" if settings.landing.uri.startswith("s3://") else "local"
    given = arguments(stream, "kafka" if kafka else storage)
    processes = Processes.start(
        settings,
        what,
        {
            "PRODUCER": given.producer,
            "CONSUMER": given.consumer,
            "KAFKA": "true" if own else "false",
            "BROKER": broker,
            "JARS": str(jars),
        },
    )
    try:
        _launch(settings, processes, stream, broker=broker, own=own)
    except BaseException:
        processes.stop()
        raise
    processes.complete()
    return processes


def _launch(settings: Settings, processes: Processes, stream: DemoStream, *, broker: str, own: bool) -> None:
    """Start the programs in order, each when its requirements are ready."""
    if own:
        _until(lambda: _listens(broker), processes, "kafka")
    if stream is DemoStream.CLICKSTREAM:
        processes.launch("collector")
        ready = f"{address_of(settings.collector.host, settings.collector.port)}/readyz"
        _until(lambda: _responds(ready), processes, "collector")
    elif broker:
        # The consumer needs the topic: a first record creates it.
        first = [sys.executable, "-m", "producer", stream, *_ONE_RECORD]
        with (settings.logs / "producer.log").open("wb") as log:
            if subprocess.run(first, stdout=subprocess.DEVNULL, stderr=log, check=False).returncode:
                processes.fail("producer")
    processes.launch("consumer", "producer")
    collector = "collector, " if stream is DemoStream.CLICKSTREAM else ""
    typer.echo(f"Started {collector}producer and consumer under supervisord. Logs: {settings.logs}")


def _page(settings: Settings, processes: Processes) -> str | None:
    """Serve the page and return its address; print a line and return None if that fails: everything else works."""
    # Its version is small: the page may take longer than we wait for an answer.
    if processes.launched("page") and _becomes(lambda: bool(processes.page) and _responds(f"{processes.page}version")):
        return processes.page
    typer.echo(f"The page of the lake is not served. Why: {settings.logs / 'page.log'}")
    return None


def _until(condition: Callable[[], bool], processes: Processes, program: str) -> None:
    if not _becomes(condition):
        processes.fail(program)


def _becomes(condition: Callable[[], bool]) -> bool:
    """Whether a condition is true within a minute."""
    end = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _require_same_origin(settings: Settings, stream: DemoStream, *, kafka: bool) -> None:
    """Refuse a second source of a stream. The consumer refuses it, too, but only in its log."""
    if not (settings.home / "checkpoints").is_dir():
        return
    ledger = stream_tables(stream).ledger
    with catalog_errors():
        catalog = open_catalog(settings)
        properties = catalog.load_table(ledger).properties if catalog.table_exists(ledger) else {}
    before = "Kafka" if recorded_topic(properties) else "files" if LANDING_ROOT in properties else ""
    now = "Kafka" if kafka else "files"
    if before not in ("", now):
        raise UsageError(
            f"The tables of {stream} in {settings.home} were filled from {before}, not from {now}.",
            f"{_CLEAN}export LAKE_HOME=another, for the other commands as well.",
        )


def _has_broker(addresses: str) -> bool:
    """Whether to use existing brokers; False if the demo has to start one."""
    if "," in addresses or _listens(addresses):
        typer.echo(f"Using the Kafka brokers at {addresses}.")
        return True
    if addresses.startswith(("localhost:", "127.0.0.1:")):
        return False
    raise UnavailableError(
        f"No Kafka broker listens at {addresses}.",
        "Start it, or unset LAKE_KAFKA_BOOTSTRAP_SERVERS to use one of the demo.",
    )


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError):  # no name of a host is a ValueError
        return False
    return True


def _responds(address: str) -> bool:
    try:
        with closing(urllib.request.urlopen(address, timeout=5)):  # noqa: S310 - of the settings
            return True
    except (urllib.error.URLError, OSError):
        return False
