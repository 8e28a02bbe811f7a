"""What each query is doing, without Spark: what leases, tables, landing log and topics say of it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, TextIO

from consumer.iceberg.marker import Committed, committed, property_of
from consumer.modes.pipelines import Pipeline, pipelines
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import alerts_queries, bronze_query, read_checkpoint
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.model import Kind, Publish
from lakeproof.gold.product_file import load_product, names_of_kind
from lakeproof.gold.samples import AlertMode, Samples
from lakeproof.gold.samples_file import load_samples
from lakeproof.kafka.modes import ModeName
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded, recorded_topic
from lakeproof.kafka.topic import Topic
from lakeproof.landing.zone import is_hidden, landing_zone
from lakeproof.settings import Settings
from lakeproof.state.failures import failures
from lakeproof.state.landing_log import LandingLog, Position
from lakeproof.state.lease import State, alerts_lease, gold_lease, silver_lease, state_of
from lakeproof.state.sink_positions import SinkPositions, sink_lease
from lakeproof.streams import printable
from lakeproof.tables.names import (
    gold_query,
    gold_table,
    silver_query,
    silver_tables,
    stream_tables,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_RATE_OVER = timedelta(minutes=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE = 10_000  # characters: nothing is cut off there
_HEADINGS = ("query", "state", "behind", "rows/s", "last commit", "watermark")


class Doing(StrEnum):
    """What a query is doing."""

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


_COLOURS = {Doing.RUNNING: "green", Doing.STOPPED: "yellow", Doing.FAILED: "red"}


@dataclass(frozen=True)
class QueryStatus:
    """What is known of a query."""

    query: str  # its name
    state: Doing  # Running, stopped or failed
    # how much it has not taken yet: files, messages or micro-batches; None where that is not known, as of alerts that
    # are sent in real time: Spark notes their offsets every two minutes
    lag: int | None = None
    unit: str = "micro-batches"
    rows_per_second: float | None = None  # rows that it committed in the last minute, per second; None of a sink
    last_commit: datetime | None = None  # when it committed, UTC
    # the greatest event time that silver has seen, or the time before which windows are final, UTC
    watermark: datetime | None = None
    problem: str = ""  # why it failed, or why the lag is not known


def status(settings: Settings, names: Sequence[str]) -> list[QueryStatus]:
    """Look at the queries of streams and modes; of all that have tables or have run, if none is named."""
    modes = [mode for mode in ModeName if mode in names or not names]
    failed = failures(settings.state.database)
    found = [_of_mode(each, settings.state.database, failed) for each in pipelines(settings, modes)]
    streams = [name for name in names if name not in modes]
    if names and not streams:
        if not found:
            raise UsageError(f"{' and '.join(modes)} has not run yet.", f"Run `consumer run {modes[0]}`.")
        return found
    return [*_of_streams(settings, streams, failed, needed=not found), *found]


def _of_streams(
    settings: Settings, streams: Sequence[str], failed: dict[str, str], *, needed: bool
) -> list[QueryStatus]:
    catalog = open_catalog(settings)
    with catalog_errors():
        names = sorted(path.stem for path in settings.contracts.glob("*.yaml"))
        known = [name for name in streams or names if catalog.table_exists(stream_tables(name).ledger)]
        if not known and needed:
            raise UsageError("No stream has tables yet.", "Run `consumer run STREAM`.")
        return [each for stream in known for each in _of_stream(settings, catalog, stream, failed)]


def exit_code(found: Sequence[QueryStatus]) -> int:
    """0 if all queries run, 1 if one failed, 4 if none failed and one is stopped."""
    states = {each.state for each in found}
    if Doing.FAILED in states:
        return 1
    return 4 if Doing.STOPPED in states else 0


def as_json(found: Sequence[QueryStatus]) -> str:
    """The status for programs."""
    return json.dumps([asdict(each) for each in found], default=str, indent=2)


def write_table(found: Sequence[QueryStatus], out: TextIO) -> None:
    """The status for people."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as Printed
    from rich.text import Text

    table = Printed(*_HEADINGS)
    for each in found:
        name, state, *others = _cells(each)
        table.add_row(escape(name), Text(state, _COLOURS[each.state]), *others)
    console = Console(file=out, soft_wrap=True)
    if console.measure(table, options=console.options.update(width=_WIDE)).maximum <= console.width:
        console.print(table)
    else:  # no name is cut off to fit
        for each in found:
            name, state, *others = _cells(each)
            console.print(escape(name), Text(state, _COLOURS[each.state]))
            named = zip(_HEADINGS[2:], others, strict=True)
            console.print("  " + ", ".join(f"{heading} {cell}" for heading, cell in named if cell))
    for each in found:
        if each.problem:
            console.print(printable(f"{each.query}: {each.problem}"), markup=False)


def _cells(each: QueryStatus) -> list[str]:
    """The texts of a line, in the order of the headings."""
    return [
        each.query,
        str(each.state),
        "?" if each.lag is None else f"{each.lag:,} {each.unit}",
        "" if each.rows_per_second is None else f"{each.rows_per_second:,.1f}",
        _time(each.last_commit),
        _time(each.watermark),
    ]


def _of_mode(each: Pipeline, database: str, failed: dict[str, str]) -> QueryStatus:
    watermark = None if each.watermark is None else _from_micros(str(each.watermark))
    return _status(
        each.name, database, each.lease, failed, each.behind, "messages", each.per_second, each.last_commit, watermark,
        each.problem,
    )  # fmt: skip


def _of_stream(settings: Settings, catalog: "Catalog", stream: str, failed: dict[str, str]) -> Iterator[QueryStatus]:
    database = settings.state.database
    names, query = stream_tables(stream), bronze_query(stream)
    ledger = catalog.load_table(names.ledger)
    bronze = catalog.load_table(names.bronze)
    accounted = committed(ledger.properties, query)
    try:
        lag, unit, problem = *_behind(settings, stream, ledger, accounted), ""
    except LakeproofError as error:
        lag, unit, problem = None, "", error.message
    newest = _last(bronze, query)
    yield _status(query, database, stream, failed, lag, unit, _rate(bronze, query), newest, None, problem)

    kept = _found(catalog, silver_tables(stream).kept)
    decided = committed(kept.properties, silver_query(stream)) if kept else None
    if kept:
        name = silver_query(stream)
        watermark = _from_micros(decided.marker.contents) if decided else None
        yield _status(
            name, database, silver_lease(stream), failed, _behind_of(accounted, decided), "micro-batches",
            _rate(kept, name), _last(kept, name), watermark,
        )  # fmt: skip
    tables = {names.dead_letters: committed(catalog.load_table(names.dead_letters).properties, query)}
    if kept:
        tables[silver_tables(stream).kept] = decided
    contract_of = partial(load_contract, settings.contracts)
    for product_name in names_of_kind(settings.gold, [stream], Kind.WINDOWS):
        table = _found(catalog, gold_table(product_name))
        if table is None:
            continue
        try:
            # The marker of final windows only moves when windows close.
            final, problem = load_product(settings.gold, product_name, contract_of).publish is Publish.FINAL, ""
        except LakeproofError as error:  # its contract was changed: the query runs on, and the others are shown
            final, problem = False, error.message
        name = gold_query(product_name)
        computed = committed(table.properties, name)
        tables[gold_table(product_name)] = computed
        yield _status(
            name, database, gold_lease(product_name), failed, 0 if final else _behind_of(decided, computed),
            "micro-batches", _rate(table, name), _last(table, name),
            _from_micros(computed.marker.contents) if final and computed else None, problem,
        )  # fmt: skip
    for product_name in names_of_kind(settings.gold, [stream], Kind.SAMPLES):
        name, table = gold_query(product_name), _found(catalog, gold_table(product_name))
        try:
            samples = load_samples(settings.gold, product_name, contract_of)
        except LakeproofError as error:
            if table:
                lease_name = gold_lease(product_name)
                yield _status(
                    name, database, lease_name, failed, None, "", None, _last(table, name), None, error.message
                )
            continue
        if table:
            computed = committed(table.properties, name)
            yield _status(
                name, database, gold_lease(samples.name), failed,
                _samples_behind(contract_of(stream), decided, computed), "micro-batches", _rate(table, name),
                _last(table, name), _from_micros(computed.marker.contents) if computed else None,
            )  # fmt: skip
        if alerts := _of_alerts(settings, samples, recorded_topic(ledger.properties), failed):
            yield alerts
    positions = SinkPositions(database)
    for table_name, newest_marker in tables.items():
        for sink in positions.sinks_of(table_name):
            position = positions.get(sink)
            sent = Committed.parse(position.marker) if position else None
            lag = _behind_of(newest_marker, sent)
            yield _status(
                sink, database, sink_lease(sink), failed, lag, "micro-batches", None, positions.recorded_at(sink), None
            )


def _status(
    name: str,
    database: str,
    lease: str,
    failed: dict[str, str],
    lag: int | None,
    unit: str,
    rate: float | None,
    last: datetime | None,
    watermark: datetime | None,
    problem: str = "",
) -> QueryStatus:
    held = state_of(database, lease)
    doing = {State.RUNNING: Doing.RUNNING, State.DIED: Doing.FAILED}.get(held, Doing.STOPPED)
    if held is State.DIED:
        problem = "It was killed, or its machine died."
    if doing is Doing.STOPPED and lease in failed:
        doing, problem = Doing.FAILED, failed[lease]
    return QueryStatus(name, doing, lag, unit, rate, last, watermark, problem)


def _behind(settings: Settings, stream: str, ledger: "Table", accounted: Committed | None) -> tuple[int, str]:
    """What has landed and is in no table yet."""
    if recorded := recorded_topic(ledger.properties):
        at = Offsets.parse(accounted.marker.end) if accounted else recorded.start
        return _messages_behind(settings, recorded, at), "messages"
    log = LandingLog(settings.state.database, stream)
    seq = Position.parse(accounted.marker.end).seq if accounted else 0
    undiscovered = sum(not log.knows(name) for name, _ in landing_zone(settings, stream).list() if not is_hidden(name))
    return max(log.head().seq - seq, 0) + undiscovered, "files"


def _behind_of(followed: Committed | None, follower: Committed | None) -> int:
    """Micro-batches that one table has and another one does not."""
    return max((followed.next_number if followed else 0) - (follower.next_number if follower else 0), 0)


def _samples_behind(contract: Contract, decided: Committed | None, computed: Committed | None) -> int:
    """Micro-batches that samples have not taken; none while the horizon of silver has not passed theirs."""
    length = contract.silver.horizon if contract.silver else None
    if length is None or decided is None or not decided.marker.contents:
        return 0
    horizon = int(decided.marker.contents) - length // timedelta(microseconds=1)
    return 0 if computed and horizon <= int(computed.marker.contents) else _behind_of(decided, computed)


def _of_alerts(
    settings: Settings, samples: Samples, recorded: Recorded | None, failed: dict[str, str]
) -> QueryStatus | None:
    """The alerts of a product, as the checkpoints of its two queries show them; None if they have never run."""
    database, lease, queries = settings.state.database, alerts_lease(samples.name), alerts_queries(samples.name)
    if samples.alerts is None or recorded is None or state_of(database, lease) is State.NEVER:
        return None
    lag, last, problem = None, None, ""
    try:
        checkpoints = [read_checkpoint(settings, query, Offsets.from_spark) for query in queries]
        last = max((each.committed_at for each in checkpoints if each and each.committed_at), default=None)
        if samples.alerts.mode is AlertMode.MICRO_BATCH or state_of(database, lease) is not State.RUNNING:
            lag = max(
                _messages_behind(settings, recorded, (each.passed if each else None) or recorded.start)
                for each in checkpoints
            )
    except LakeproofError as error:
        problem = error.message
    return _status(queries[0], database, lease, failed, lag, "messages", None, last, None, problem)


def _messages_behind(settings: Settings, recorded: Recorded, at: Offsets) -> int:
    """Messages of the topic of a stream behind some offsets."""
    topic = Topic(settings.kafka, recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    return topic.behind(at, partitions)


def _found(catalog: "Catalog", name: str) -> "Table | None":
    return catalog.load_table(name) if catalog.table_exists(name) else None


def _last(table: "Table", query: str) -> datetime | None:
    """When the query committed to the table."""
    times = [at for at, _ in _commits(table, query)]
    return max(times) if times else None


def _rate(table: "Table", query: str) -> float:
    """Rows that the query added to the table in the last minute, per second."""
    since = datetime.now(UTC) - _RATE_OVER
    return round(sum(rows for at, rows in _commits(table, query) if at >= since) / _RATE_OVER.total_seconds(), 1)


def _commits(table: "Table", query: str) -> Iterator[tuple[datetime, int]]:
    """When the query committed, and how many rows. Commits of compaction are left out."""
    for snapshot in table.snapshots():
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if property_of(query) in summary:
            yield _EPOCH + timedelta(milliseconds=snapshot.timestamp_ms), int(summary.get("added-records") or 0)


def _from_micros(text: str) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=int(text)) if text else None
    except OverflowError:  # a time of a year that Python does not have
        return None


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else ""
