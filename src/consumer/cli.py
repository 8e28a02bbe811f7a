"""The command line of the consumer."""

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from consumer.asked import (
    STREAM,
    DataSource,
    LayerName,
    asked_to_rebuild,
    asked_to_run,
    last_layer,
    period_of,
    refuse_others,
    with_landing,
    with_sinks,
    with_source,
)
from consumer.condition import COLUMNS, spark_condition, spark_expression
from consumer.mode_options import option_of, with_mode_options
from consumer.queries.trigger import Trigger
from consumer.removal.condition import read_condition
from lakeproof.cluster import check_reachable, is_submitted, places_of
from lakeproof.command import application, run
from lakeproof.contracts import load_contract
from lakeproof.contracts.duration import read_option
from lakeproof.contracts.model import Removable
from lakeproof.doctor import Program, check_environment
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.kafka.modes import ModeName, load_mode
from lakeproof.landing.zone import landing_zone
from lakeproof.move.outside import check_tables
from lakeproof.settings import Settings, load_settings
from lakeproof.signals import AskedToEnd, asked_to_end
from lakeproof.streams import printable

app = application(
    "consumer",
    "Judge landed batches with Spark, and append each record once: to bronze or to the dead letters.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CATALOG_URI", "LAKE_WAREHOUSE", "LAKE_CONTRACTS", "LAKE_DRIVER_MEMORY"],
    judges=True,
)

StreamArgument = Annotated[
    str, typer.Argument(help="Name of the stream; its contract is contracts/STREAM.yaml.", show_default=False)
]


class Rebuildable(StrEnum):
    """A layer that is filled from another one."""

    SILVER = "silver"
    GOLD = "gold"


def _topic_option(rows: str, setting: str) -> Any:
    """The option of a sink."""
    return typer.Option(
        metavar="TOPIC",
        help=f"Kafka topic to send the {rows} to. {STREAM} is the name of the stream. Default: {setting}.",
        show_default=False,
    )


@app.command("run")
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
            asked = asked_to_run(settings, streams, None if period else last_layer(to))
            if settings.spark.is_remote:
                _check_reachable(settings, [] if data_source is DataSource.KAFKA else streams)
            _check(settings)
            if accept_bad:
                _accept_bad(settings, streams, of_past=period is not None)
            from consumer.app.run import run_streams as run_asked

            kind = "kafka" if data_source is DataSource.KAFKA else "files"
            run_asked(asked, when, kind, period, maintained=maintain)
    except AskedToEnd:  # while it started: nothing was begun
        structlog.get_logger().info("stopped", streams=streams, micro_batches=0, on_signal=True)


@app.command("replay")
def replay_dead_letters(
    stream: StreamArgument,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Only dead letters that meet this condition, in DuckDB's SQL: "
            "\"list_contains(codes, 'wrong_type') AND _source LIKE '2026/11/%'\". "
            f"The columns are {', '.join(COLUMNS)}.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Only the first N of them, in the order of arrival."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, by reason, with examples. Nothing is changed.")
    ] = False,
    max_attempts: Annotated[
        int, typer.Option(metavar="N", min=1, help="Park a dead letter after N failed attempts.")
    ] = 3,
    parked: Annotated[bool, typer.Option("--parked", help="Replay parked dead letters, too.")] = False,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="Take the complete records of a truncated batch or gzip file. The rest stays."),
    ] = False,
    transform: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Correct the bytes first, with a .py file that has a function transform(raw: bytes, letter: dict) -> "
            "bytes, or with a .sql file that has an expression over raw.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Judge the open dead letters of STREAM again, by the current contract, and append valid records to bronze.

    A record keeps the _source and _position with which it landed. Silver and gold are filled as in a run. A record that
    fails again stays a dead letter, and dead_letters.STREAM_attempts says why. Stop the consumer of the stream first.
    If the command is interrupted, run it again.
    """
    settings = load_settings()
    asked = asked_to_run(settings, [stream], None)
    condition = spark_condition("--where", where) if where is not None else None
    from consumer.layers.bronze.transform import read_transform

    read = read_transform(transform) if transform else None
    expression = spark_expression(f"--transform {read.name}", read.text) if read and read.is_sql else None
    _check(settings)
    from consumer.app.run import run_preview, run_replay
    from consumer.layers.bronze.letters import Choice
    from consumer.layers.bronze.replay import Replay

    wanted = Replay(Choice(condition, limit, parked), max_attempts, salvage, read, expression)
    typer.echo(run_preview(asked, wanted) if dry_run else run_replay(asked, wanted))


@app.command("maintain")
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
    _check(settings)
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


@app.command("erase")
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
    asked = asked_to_run(settings, [stream], None)
    condition = read_condition(where, asked.contracts[stream])
    if certificate and not dry_run:
        certificate.touch()  # fails before anything is removed: no later command could write this certificate
    _check(settings)
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


@app.command("retain")
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


@app.command("reset")
def reset_stream(stream: StreamArgument) -> None:
    """Remove the checkpoint of STREAM, so that the next run resumes from the position in its tables.

    Use this if checkpoint, landing log and tables were restored from different points in time. Nothing is read twice:
    the tables record which files were read. The next run reads the files that are in no table.
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
    letter with the reason `absent`, unless it is back by then. If a topic's retention has removed messages, each range
    of offsets becomes such a dead letter, and the stream resumes after it.
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


@app.command("accept")
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


@app.command("status")
def show_status(
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STREAM...]", help="Streams or modes. Default: all that have tables or have run."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh the output until Ctrl-C.")] = False,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="With --watch: seconds between updates. Default: 2."),
    ] = None,
) -> None:
    """Show every query: whether it runs, how far it is behind, rows per second, last commit and watermark.

    Exit codes: 0 all queries run, 1 a query failed, 3 the lake cannot be reached, 4 a query is stopped, 5 a breaker has
    paused a query. 1 takes precedence over 5, and 5 over 4.
    """
    settings = load_settings()
    for stream in streams or ():
        if stream not in list(ModeName):
            load_contract(settings.contracts, stream)
    if as_json and watch:
        raise UsageError("--json cannot be used with --watch.", "LAKE_METRICS serves the same to programs.")
    if every is not None and not watch:
        raise UsageError("--every is for --watch.", "Add --watch.")
    from consumer.monitoring import status_table
    from consumer.monitoring.query_status import exit_code
    from consumer.monitoring.status import status

    if watch:
        status_table.watch(lambda: status(settings, streams or []), every or 2.0, sys.stdout)
    found = status(settings, streams or [])
    if as_json:
        typer.echo(status_table.as_json(found))
    else:
        status_table.write_table(found, sys.stdout)
    raise typer.Exit(exit_code(found))


@app.command("resend")
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


@app.command("rebuild")
def rebuild_layer(
    layer: Annotated[Rebuildable, typer.Argument(help="Layer to fill again.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Name of the stream; for gold, of the data product.", show_default=False)],
) -> None:
    """Fill a layer again from the layer before it, then replace its tables.

    For silver, use this after a change of the primary key, the event time or the horizon in the contract. For gold, use
    it after a change of the keys, windows or measures of the product, and after a rebuild of silver. Readers see the
    old tables until the new ones are complete. If the command is interrupted, run it again.
    """
    settings = load_settings()
    asked = asked_to_rebuild(settings, LayerName(layer), name)
    _check(settings)
    from consumer.app.run import run_rebuild

    typer.echo(run_rebuild(asked))


@app.command("archive")
def archive() -> None:
    """Archive the JVM classes that a run loads, so that later starts take about half the time.

    `lakeproof setup` does this. The archive only works with the same Java and the same jars. Otherwise it is ignored.
    """
    settings = load_settings()
    from consumer.app.archive import archive_classes

    typer.echo(f"archived: {archive_classes(settings)}")


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


def _check(settings: Settings) -> None:
    """Check the environment and the tables, before Spark is imported."""
    check_environment(settings, Program.CONSUMER)
    check_tables(settings)


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


def _as_submitted(**options: Any) -> Any:
    """Run in the JVM that spark-submit has started."""
    from consumer.spark.cluster import adopt_submitted

    adopt_submitted()
    return app(**options)


def main() -> None:
    """Run the program."""
    run(_as_submitted if is_submitted() else app, logs=["run", "rebuild", "replay"])
