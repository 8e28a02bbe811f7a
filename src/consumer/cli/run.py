"""`consumer run`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from consumer.cli.mode_options import option_of, with_mode_options
from consumer.cli.shared import check
from consumer.queries.trigger import Trigger
from consumer.scope import (
    STREAM,
    DataSource,
    last_layer,
    period_of,
    refuse_others,
    scope_of_run,
    with_landing,
    with_sinks,
    with_source,
)
from lakeproof.cluster import check_reachable, places_of
from lakeproof.doctor import Program, check_environment
from lakeproof.errors import UsageError
from lakeproof.kafka.modes import ModeName, load_mode
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings, load_settings
from lakeproof.signals import AskedToEnd, asked_to_end


def _topic_option(rows: str, setting: str) -> Any:
    """The option of a sink."""
    return typer.Option(
        metavar="TOPIC",
        help=f"Kafka topic to send the {rows} to. {STREAM} is the name of the stream. Default: {setting}.",
        show_default=False,
    )


@with_mode_options
def run_streams(
    streams: Annotated[
        list[str],
        typer.Argument(metavar="STREAM...", help="Names of streams, or dedupe, or windows.", show_default=False),
    ],
    data_source: Annotated[
        DataSource | None,
        typer.Option(help="Where the batches come from. Default: the landing zone, local or s3 as LAKE_LANDING."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|URI",
            help="Location of the stream's files, if not below LAKE_LANDING, like s3://BUCKET/PREFIX. The first run "
            "records it. A contract can set it, too.",
            show_default=False,
        ),
    ] = None,
    starting_files: Annotated[
        str | None,
        typer.Option(
            metavar="earliest|latest|TIME",
            help="Which files the first run reads: all, those that land from now on, or those last modified at this "
            "time or later. Default: LAKE_STARTING_FILES.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(help="Topic for --data-source kafka. Default: LAKE_KAFKA_TOPIC, or the name of the stream."),
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
            help="Read older messages of the topic, from before the beginning of the stream: from this time to that of "
            "--to. Then exit. Messages that are in the tables are skipped.",
            show_default=False,
        ),
    ] = None,
    silver_topic: Annotated[str | None, _topic_option("rows of silver", "LAKE_SILVER_TOPIC")] = None,
    dead_letter_topic: Annotated[str | None, _topic_option("dead letters", "LAKE_DEAD_LETTER_TOPIC")] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what has landed so far, then exit.")
    ] = False,
    accept_bad: Annotated[
        bool,
        typer.Option(
            "--accept-bad", help="Commit the paused micro-batch, once. See `consumer accept`.", show_default=False
        ),
    ] = False,
    maintain: Annotated[
        bool,
        typer.Option("--maintain", help="Also maintain the tables. See `consumer maintain`.", show_default=False),
    ] = False,
    trigger: Annotated[str, typer.Option(help="Interval between checks for new files or messages.")] = "1 second",
    config: Annotated[
        Path | None,
        typer.Option(help="Settings file of dedupe or windows.", show_default="dedupe.yaml or windows.yaml"),
    ] = None,
    *,
    fields: Mapping[str, str],
) -> None:
    """Run streams from their landing zones or topics into bronze, silver and gold, in one Spark application.

    `consumer run dedupe` and `consumer run windows` need no lake: they read a Kafka topic, and write Parquet files and
    topics. See docs/modes.md.

    On Ctrl-C or SIGTERM, the consumer finishes and commits the current micro-batch, then exits. The exit code is 5 if
    the breaker of a contract has paused a stream.
    """
    try:
        with asked_to_end():
            when = Trigger(available_now or since is not None, trigger)
            if mode := _mode_of(streams):
                others = {
                    "--to": to,
                    "--from": since,
                    "--data-source": None if data_source is DataSource.KAFKA else data_source,
                    "--source": source,
                    "--starting-files": starting_files,
                    "--silver-topic": silver_topic,
                    "--dead-letter-topic": dead_letter_topic,
                    "--accept-bad": accept_bad,
                    "--maintain": maintain,
                }
                refuse_others(others, f"with {mode}", f"`consumer run {mode}` reads a Kafka topic into sinks.")
                _run_mode(mode, config, {"topic": topic or "", **fields}, when)
                return
            of_modes: dict[str, object] = {"--config": config, **{option_of(name): name for name in fields}}
            refuse_others(of_modes, "with streams", "Set the LAKE_ variables.")
            streams = list(dict.fromkeys(streams))
            if maintain and when.available_now:
                raise UsageError(
                    "--maintain cannot be used with --available-now or --from.", "Run `consumer maintain` after it."
                )
            settings = with_sinks(load_settings(), silver_topic, dead_letter_topic, streams)
            period = period_of(since, to, streams, data_source) if since else None
            settings = with_landing(settings, data_source, source, starting_files, streams)
            settings = with_source(settings, data_source, topic, streams)
            scope = scope_of_run(settings, streams, None if period else last_layer(to))
            if settings.spark.is_remote:
                _check_reachable(settings, [] if data_source is DataSource.KAFKA else streams)
            check(settings)
            if accept_bad:
                _accept_bad(settings, streams, of_past=period is not None)
            from consumer.app.run import run_streams as run_in_scope

            kind = "kafka" if data_source is DataSource.KAFKA else "files"
            run_in_scope(scope, when, kind, period, maintained=maintain)
    except AskedToEnd:  # while it started: nothing was begun
        structlog.get_logger().info("stopped", streams=streams, micro_batches=0, on_signal=True)


def _check_reachable(settings: Settings, streams: list[str]) -> None:
    """Refuse a lake, and landing zones of streams of files, that the executors of a cluster cannot see."""
    places = places_of(settings)
    try:
        check_reachable(settings, places)
    except UsageError:  # the catalog, which may know another landing zone, need not exist: list what is set as well
        zones = [landing_zone(settings, each, {}) for each in streams]
        check_reachable(settings, {str(zone.given_by): zone.root for zone in zones} | places)
        raise
    zones = [landing_zone(settings, each) for each in streams]
    check_reachable(settings, {str(zone.given_by): zone.root for zone in zones})


def _accept_bad(settings: Settings, streams: list[str], *, of_past: bool) -> None:
    """Accept the paused micro-batches of the streams that run."""
    from consumer.app.repair import accept
    from lakeproof.state.breaker_log import QueryKind

    accepted = [
        line for each in streams for line in accept(settings, each, QueryKind.PAST if of_past else QueryKind.STREAM)
    ]
    if not accepted:
        raise UsageError(f"Nothing of {' and '.join(streams)} is paused.", "Run it without --accept-bad.")
    for line in accepted:
        structlog.get_logger().info("accepted", what=line)


def _run_mode(name: ModeName, config: Path | None, fields: Mapping[str, str], trigger: Trigger) -> None:
    settings, mode = load_mode(name, config, fields)
    check_reachable(settings, mode.places | {"LAKE_LANDING_LOG_URI": settings.state.database})
    check_environment(settings, Program.CONSUMER, lake=False)
    from consumer.app.run import run_mode

    run_mode(settings, mode, trigger)


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
