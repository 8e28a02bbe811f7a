"""The command line of the consumer."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from consumer.mode_options import option_of, with_mode_options
from lakeproof.command import application, run
from lakeproof.contracts import Contract, load_contract
from lakeproof.doctor import Program, check_environment
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.model import Kind, Product
from lakeproof.gold.product_file import is_of_kind, load_product, load_products
from lakeproof.gold.samples import Samples
from lakeproof.gold.samples_file import load_all_samples, load_samples
from lakeproof.kafka.modes import ModeName, load_mode
from lakeproof.move.outside import check_tables
from lakeproof.settings import Settings, load_settings
from lakeproof.signals import AskedToEnd, asked_to_end
from lakeproof.topics import time_with_zone, topic_name

if TYPE_CHECKING:
    from consumer.app.application import Query

app = application(
    "consumer",
    "Judge landed batches with Spark, and append each record once: to bronze or to the dead letters.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CATALOG_URI", "LAKE_WAREHOUSE", "LAKE_CONTRACTS", "LAKE_DRIVER_MEMORY"],
)

StreamArgument = Annotated[
    str, typer.Argument(help="Name of the stream; its contract is contracts/STREAM.yaml.", show_default=False)
]

STREAM = "{stream}"
"""What the name of a topic has in place of the name of the stream."""

_TRIGGER = re.compile(r"\d+(\.\d+)? (millisecond|second|minute|hour)s?")


class Layer(StrEnum):
    """How far a stream is taken."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


class Rebuildable(StrEnum):
    """A layer that is filled from another one."""

    SILVER = "silver"
    GOLD = "gold"


class DataSource(StrEnum):
    """Where the batches of a stream lie."""

    LOCAL = "local"
    S3 = "s3"
    KAFKA = "kafka"


@app.command("run")
@with_mode_options
def run_streams(
    streams: Annotated[
        list[str],
        typer.Argument(metavar="STREAM...", help="Names of the streams; or dedupe, or windows.", show_default=False),
    ],
    data_source: Annotated[
        DataSource | None,
        typer.Option(help="Where the batches are. Default: the landing zone, of the kind of LAKE_LANDING."),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(help="Topic, for --data-source kafka. Default: LAKE_KAFKA_TOPIC, or the name of the stream."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="bronze|silver|gold|TIME",
            help="Last layer to fill. With --from: the time at which the range ends.",
            show_default="silver, if the contract has a primary key; gold, if a data product reads it",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Read the messages of the topic from this time on, up to that of --to, then exit: those from before "
            "the beginning of the stream. What is in the tables is skipped.",
            show_default=False,
        ),
    ] = None,
    silver_topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Kafka topic that gets the rows of silver. {stream} is the name of the stream. "
            "Default: LAKE_SILVER_TOPIC.",
            show_default=False,
        ),
    ] = None,
    dead_letter_topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Kafka topic that gets the dead letters. {stream} is the name of the stream. "
            "Default: LAKE_DEAD_LETTER_TOPIC.",
            show_default=False,
        ),
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what has landed so far, then exit.")
    ] = False,
    trigger: Annotated[str, typer.Option(help="Interval between checks for new files or messages.")] = "1 second",
    config: Annotated[
        Path | None,
        typer.Option(help="Settings file, for dedupe and windows.", show_default="dedupe.yaml or windows.yaml"),
    ] = None,
    *,
    fields: Mapping[str, str],
) -> None:
    """Run streams from their landing zones or topics into bronze, silver and gold, in one Spark application.

    `consumer run dedupe` and `consumer run windows` need no lake: they read a Kafka topic, and write Parquet files and
    topics. See docs/modes.md.

    On Ctrl-C or SIGTERM, the consumer finishes and commits the current micro-batch, then exits.
    """
    try:
        with asked_to_end():
            _check_trigger(trigger)
            if mode := _mode_of(streams):
                others = {
                    "--to": to,
                    "--from": since,
                    "--data-source": None if data_source is DataSource.KAFKA else data_source,
                    "--silver-topic": silver_topic,
                    "--dead-letter-topic": dead_letter_topic,
                }
                _refuse_others(others, f"with {mode}", f"`consumer run {mode}` reads a Kafka topic into sinks.")
                _run_mode(mode, config, {"topic": topic or "", **fields}, available_now, trigger)
            else:
                of_modes: dict[str, object] = {"--config": config, **{option_of(name): name for name in fields}}
                _refuse_others(of_modes, "with streams", "Set the LAKE_ variables.")
                settings = _with_sinks(load_settings(), silver_topic, dead_letter_topic, streams)
                period = _period(since, to, streams, data_source) if since else None
                layer = None if period else _layer(to)
                now = available_now or period is not None
                _run(settings, list(dict.fromkeys(streams)), layer, data_source, topic, now, trigger, period)
    except AskedToEnd:  # while it started: nothing was begun
        structlog.get_logger().info("stopped", streams=streams, micro_batches=0, on_signal=True)


@app.command("reset")
def reset_stream(stream: StreamArgument) -> None:
    """Remove the checkpoint of STREAM, so that the next run resumes from the position in its tables.

    Use this if the checkpoint, landing log or tables were restored from different points in time. Nothing is read
    twice: the tables record which files were read. The next run reads the files that are in no table.
    """
    settings = load_settings()
    load_contract(settings.contracts, stream)
    from consumer.app.repair import reset

    typer.echo(reset(settings, stream))


@app.command("give-up")
def give_up_files(
    stream: StreamArgument,
    yes: Annotated[
        bool, typer.Option("--yes", help="Give them up. Without this option, they are only listed.")
    ] = False,
) -> None:
    """List the files or messages that disappeared before they were read. With --yes, give them up.

    The consumer waits for a missing file, because its disk may not be mounted. A file that was given up becomes a dead
    letter with the reason `absent`, unless it is back by then. Of messages that a topic's retention removed, each range
    of offsets becomes such a dead letter, and the stream resumes behind it.
    """
    settings = load_settings()
    load_contract(settings.contracts, stream)
    from consumer.app.repair import absent_files, give_up, give_up_offsets, lost_offsets, topic_of

    if topic := topic_of(settings, stream):
        lost = lost_offsets(settings, stream)
        for partition, (first, behind) in lost.items():
            typer.echo(f"{topic}/{partition}: offsets {first:,} to {behind - 1:,}")
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


@app.command("status")
def show_status(
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STREAM...]", help="Streams or modes. Default: all that have tables or have run."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every query: whether it runs, how far it is behind, rows per second, last commit and watermark.

    The exit code is 0 if all run, 1 if one failed, 3 if the lake cannot be reached, and 4 if none failed and one is
    stopped.
    """
    settings = load_settings()
    for stream in streams or ():
        if stream not in list(ModeName):
            load_contract(settings.contracts, stream)
    from consumer.app import status

    found = status.status(settings, streams or [])
    if as_json:
        typer.echo(status.as_json(found))
    else:
        status.write_table(found, sys.stdout)
    raise typer.Exit(status.exit_code(found))


@app.command("resend")
def resend_table(
    table: Annotated[
        str, typer.Argument(help="silver.STREAM, dead_letters.STREAM or gold.PRODUCT", show_default=False)
    ],
) -> None:
    """Let the topics that show TABLE get all of its rows again.

    Use this if a table was restored from an older copy than its topic shows. The messages that a topic has stay, and
    repeated ones have the same lakeproof-id. The next run sends them.
    """
    settings = load_settings()
    from consumer.app.repair import resend

    typer.echo(resend(settings, table))


@app.command("rebuild")
def rebuild_layer(
    layer: Annotated[Rebuildable, typer.Argument(help="The layer.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Name of the stream; for gold, of the data product.", show_default=False)],
) -> None:
    """Fill a layer again from the one before it, and replace its tables once that is done.

    For silver, use this after a change of the primary key, the event time or the horizon in the contract. For gold, use
    it after a change of the keys, windows or measures of the product, and after silver was rebuilt. Readers see the old
    tables until it is done. If it is interrupted, run it again.
    """
    settings = load_settings()
    product: Product | Samples | None = None
    if layer is Rebuildable.GOLD:
        load = load_samples if is_of_kind(settings.gold, name, Kind.SAMPLES) else load_product
        product = load(settings.gold, name, partial(load_contract, settings.contracts))
    contract = load_contract(settings.contracts, product.stream if product else name)
    _has_silver(contract, Layer(layer))
    check_environment(settings, Program.CONSUMER)
    check_tables(settings)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from consumer.app.failures import explained
    from consumer.app.session import start_session
    from consumer.layers.rebuild import gold_layer, rebuild, samples_layer, silver_layer

    session = partial(start_session, settings, f"lakeproof rebuild {layer} {name}")
    if isinstance(product, Samples):
        asked = samples_layer(settings, product)
    else:
        asked = gold_layer(settings, product) if product else silver_layer(settings, contract)
    try:
        typer.echo(rebuild(settings, asked, session))
    except (Py4JError, PySparkException) as error:
        raise explained(error, settings, contract.stream) from error


@app.command("archive")
def archive(
    stream: Annotated[str, typer.Argument(help="A stream to warm up with.")] = "events",
) -> None:
    """Archive the JVM classes that a run loads, so that later starts take about half the time.

    `lakeproof setup` does this. The archive only works with the same Java and the same jars; otherwise it is ignored.
    """
    settings = load_settings()
    from consumer.app.archive import archive_classes

    typer.echo(f"archived: {archive_classes(settings, stream)}")


def _run(
    settings: Settings,
    streams: list[str],
    to: Layer | None,
    data_source: DataSource | None,
    topic: str | None,
    available_now: bool,
    every: str,
    period: "tuple[datetime, datetime] | None",
) -> None:
    settings = _with_topic(settings, data_source, topic, streams)
    _check_data_source(settings, data_source)
    source = "kafka" if data_source is DataSource.KAFKA else "files"
    # An invalid contract is reported before anything else.
    contracts = {stream: load_contract(settings.contracts, stream) for stream in streams}
    with_silver = [stream for stream in streams if _has_silver(contracts[stream], to)]
    products, samples = _products(settings, with_silver, to)
    check_environment(settings, Program.CONSUMER)
    check_tables(settings)

    # Spark takes a second to import: only when everything cheap has been checked.
    from consumer.layers.sinks.changes import dead_letters_followed, silver_followed
    from consumer.queries.alerts import AlertsQuery
    from consumer.queries.bronze import BronzeQuery, Trigger
    from consumer.queries.gold import GoldQuery
    from consumer.queries.past import PastQuery, Period
    from consumer.queries.publishing import sinks_of, to_topic
    from consumer.queries.samples import SamplesQuery
    from consumer.queries.silver import SilverQuery

    when, sinks = Trigger(available_now, every), settings.sinks
    queries: list[Query] = [
        *(
            PastQuery(settings, stream, Period(*period)) if period else BronzeQuery(settings, stream, when, source)
            for stream in streams
        ),
        *(SilverQuery(settings, stream, when) for stream in with_silver),
        *(GoldQuery(settings, product, when) for product in products),
        *(SamplesQuery(settings, each, when) for each in samples),
    ]
    for stream in streams if sinks.dead_letter_topic else ():
        own = str(sinks.dead_letter_topic).replace(STREAM, stream)
        queries.append(to_topic(settings, dead_letters_followed(stream), own, when))
    for stream in with_silver if sinks.silver_topic else ():
        own = str(sinks.silver_topic).replace(STREAM, stream)
        queries.append(to_topic(settings, silver_followed(contracts[stream]), own, when))
    for product in products:
        queries += sinks_of(settings, product, contracts[product.stream], when)
    alerts = [
        AlertsQuery(settings, each, contracts[each.stream], when)
        for each in samples
        if each.alerts and source == "kafka" and not period
    ]
    queries += alerts
    settings = _with_cores(settings, sum(each.slots for each in alerts))
    _run_queries(settings, queries, " ".join(streams), available_now, urgent=[each.name for each in alerts])


def _run_mode(name: ModeName, config: Path | None, fields: Mapping[str, str], available_now: bool, every: str) -> None:
    settings, mode = load_mode(name, config, fields)
    check_environment(settings, Program.CONSUMER, lake=False)
    from consumer.queries.bronze import Trigger
    from consumer.queries.modes import ModeQuery

    _run_queries(settings, [ModeQuery(settings, mode, Trigger(available_now, every))], name, available_now)


def _run_queries(
    settings: Settings, queries: Sequence["Query"], what: str, available_now: bool, urgent: Sequence[str] = ()
) -> None:
    from py4j.protocol import Py4JNetworkError

    from consumer.app.application import run_queries
    from consumer.app.screen import screen
    from consumer.app.session import PLANNING_ONLY, start_session

    start = partial(start_session, settings, f"lakeproof consumer {what}", PLANNING_ONLY, urgent=urgent)
    try:
        with screen(available_now=available_now):
            run_queries(settings, queries, start, available_now=available_now)
    except (Py4JNetworkError, ConnectionError) as error:
        raise LakeproofError(
            "Spark's JVM exited: it was killed or ran out of memory.",
            f"Committed data is safe. Run the command again to resume. Details: {settings.logs / 'spark.log'}",
        ) from error


def _check_trigger(every: str) -> None:
    if not _TRIGGER.fullmatch(every):
        raise UsageError(
            f"--trigger: expected a duration, got {every!r}.", 'Use a value like "5 seconds" or "500 milliseconds".'
        )


def _layer(text: str | None) -> Layer | None:
    if text is None or text in list(Layer):
        return Layer(text) if text else None
    raise UsageError(
        f"--to: expected one of {', '.join(Layer)}, got {text!r}.",
        "For a batch over a past range of a topic, add --from with the time at which it begins.",
    )


def _period(since: str, to: str | None, streams: list[str], source: DataSource | None) -> tuple[datetime, datetime]:
    """The range of a batch over the past."""
    if source is not DataSource.KAFKA:
        raise UsageError("--from is only for Kafka.", "Add --data-source kafka, or leave out --from.")
    if len(set(streams)) > 1:
        raise UsageError("--from reads one stream at a time.", "Run the command for each.")
    if to is None:
        raise UsageError(
            "--from requires --to.", "Add the time at which the range ends, like --to 2026-11-22T06:00:00Z."
        )
    begin, end = _time("--from", since), _time("--to", to)
    if end <= begin:
        raise UsageError("--to is not after --from.", "Use a later time.")
    if end > datetime.now(UTC):
        raise UsageError(f"--to: {to} is in the future.", "The stream reads what is yet to come. Use a past time.")
    return begin, end


def _time(option: str, text: str) -> datetime:
    if time := time_with_zone(text):
        return time
    raise UsageError(f"{option}: expected a time with its zone, got {text!r}.", "Write it like 2026-11-22T06:00:00Z.")


def _mode_of(streams: list[str]) -> ModeName | None:
    """The mode that is to be run; None for streams."""
    modes = [name for name in streams if name in list(ModeName)]
    if not modes:
        return None
    if len(set(streams)) > 1:
        raise UsageError(
            f"{modes[0]} is a mode of its own, and cannot run with {' and '.join(set(streams) - {modes[0]})}.",
            "Run each in a process of its own.",
        )
    return ModeName(modes[0])


def _refuse_others(options: Mapping[str, object], where: str, hint: str) -> None:
    """Refuse options that would be ignored."""
    for option, value in options.items():
        if value:
            raise UsageError(f"{option} cannot be used {where}.", hint)


def _with_cores(settings: Settings, held: int) -> Settings:
    """The settings with more cores of Spark's on this machine: those that are held or kept free mostly wait."""
    if not held or settings.spark.master != "local[*]":
        return settings
    master = f"local[{(os.cpu_count() or 1) + held}]"
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"master": master})})


def _has_silver(contract: Contract, to: Layer | None) -> bool:
    if to in (Layer.SILVER, Layer.GOLD) and contract.no_silver:
        raise UsageError(f"{contract.stream} has no silver: {contract.no_silver}.", "Use --to bronze.")
    return contract.silver is not None and to is not Layer.BRONZE


def _products(settings: Settings, streams: list[str], to: Layer | None) -> tuple[list[Product], list[Samples]]:
    """The data products that read silver of these streams."""
    if to not in (None, Layer.GOLD) or not streams:
        return [], []
    contract_of = partial(load_contract, settings.contracts)
    found = load_products(settings.gold, streams, contract_of)
    samples = load_all_samples(settings.gold, streams, contract_of)
    read = {product.stream for product in found} | {product.stream for product in samples}
    without = [stream for stream in streams if stream not in read]
    if to is Layer.GOLD and without:
        raise UsageError(f"No data product in {settings.gold} reads {without[0]}.", "Use --to silver.")
    return found, samples


def _with_topic(settings: Settings, data_source: DataSource | None, topic: str | None, streams: list[str]) -> Settings:
    """The settings with the topic of the command line, which wins."""
    if data_source is not DataSource.KAFKA:
        if topic:
            raise UsageError("--topic is only for Kafka.", "Add --data-source kafka, or leave out --topic.")
        return settings
    if topic:
        settings = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"topic": topic})})
    if settings.kafka.topic and len(streams) > 1:
        raise UsageError(
            f"One topic, {settings.kafka.topic}, cannot fill {len(streams)} streams.",
            "Leave out --topic and LAKE_KAFKA_TOPIC: then each stream is read from the topic of its name.",
        )
    return settings


def _with_sinks(
    settings: Settings, silver_topic: str | None, dead_letter_topic: str | None, streams: list[str]
) -> Settings:
    """The settings with the topics of the command line, which win."""
    asked = {"silver_topic": silver_topic, "dead_letter_topic": dead_letter_topic}
    sinks = settings.sinks.model_copy(update={name: topic for name, topic in asked.items() if topic})
    for option, topic in (("--silver-topic", sinks.silver_topic), ("--dead-letter-topic", sinks.dead_letter_topic)):
        if topic and STREAM not in topic and len(streams) > 1:
            raise UsageError(
                f"{option}: one topic, {topic}, cannot show {len(streams)} streams.", f"Use a name with {STREAM} in it."
            )
        if topic:
            topic_name(topic.replace(STREAM, streams[0]))
    return settings.model_copy(update={"sinks": sinks})


def _check_data_source(settings: Settings, data_source: DataSource | None) -> None:
    if data_source is DataSource.KAFKA:
        return
    scheme = {None: "", DataSource.LOCAL: "file://", DataSource.S3: "s3://"}[data_source]
    if not settings.landing.uri.startswith(scheme):
        raise UsageError(
            f"--data-source {data_source} does not match the landing zone {settings.landing.uri}.",
            f"Set LAKE_LANDING to {'s3://BUCKET/PREFIX' if data_source is DataSource.S3 else 'a folder'}.",
        )


def main() -> None:
    """Run the program."""
    run(app, logs=["run", "rebuild"])
