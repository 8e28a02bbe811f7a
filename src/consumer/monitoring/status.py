"""The status of each query, from leases, tables, landing log and topics, without Spark."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from consumer.iceberg.marker import Committed, committed, property_of
from consumer.layers.bronze.trips import BadUnit, described, ways_on
from consumer.modes.checkpoint import Checkpoint
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import alerts_queries, bronze_query, read_checkpoint
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import LakeproofError, PausedError, UsageError
from lakeproof.gold.model import Kind, Publish
from lakeproof.gold.product_file import load_product, names_of_kind
from lakeproof.gold.samples import AlertMode
from lakeproof.gold.samples_file import load_samples
from lakeproof.kafka.modes import ModeName
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded, recorded_topic
from lakeproof.kafka.topic import Topic
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog, QueryKind
from lakeproof.state.failures import failures
from lakeproof.state.landing_log import LandingLog, Position
from lakeproof.state.lease import (
    QueryState,
    alerts_lease,
    gold_lease,
    mode_lease,
    modes_with_leases,
    silver_lease,
    state_of,
)
from lakeproof.state.sink_positions import SinkPositions, sink_lease
from lakeproof.storage import scheme_of
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
    from pyiceberg.table.snapshots import Snapshot
    from rich.console import Console

_RATE_OVER = timedelta(minutes=1)
_WARNED_FOR = timedelta(days=1)
_SAID = {
    "warned": "the breaker warned",
    "paused": "paused",
    "paused past": "a batch over the past was paused",
    "accepted": "accepted, and committed by the next run. Paused",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECENT_FILES = 1000
_WIDE = 10_000  # characters: wide enough that nothing is cut off
_HEADINGS = ("query", "state", "behind", "rows/s", "last commit", "watermark")


class Doing(StrEnum):
    """The state of a query."""

    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    FAILED = "failed"


_COLOURS = {Doing.RUNNING: "green", Doing.STOPPED: "yellow", Doing.PAUSED: "red", Doing.FAILED: "red"}


@dataclass(frozen=True)
class QueryStatus:
    """The status of a query."""

    query: str  # its name
    state: Doing = Doing.STOPPED
    # number of files, messages or micro-batches that it has not taken yet; None if unknown, as for alerts that are sent
    # in real time: Spark notes their offsets every two minutes
    lag: int | None = None
    unit: str = "micro-batches"
    rows_per_second: float | None = None  # rows committed in the last minute, per second; None for a sink
    last_commit: datetime | None = None  # UTC
    # the greatest event time that silver has seen, or the time before which windows are final, UTC
    watermark: datetime | None = None
    # how long the oldest item that it has not taken has been waiting, 0 if it has taken all; None if unknown
    lag_seconds: float | None = None
    # how long the oldest landed item has been waiting, for this query or for one before it
    freshness_seconds: float | None = None
    problem: str = ""  # why it failed or is paused, or why the lag is unknown
    # Findings of the stream's breaker: a current pause, or the last warning within a day.
    breaker: Mapping[str, Any] | None = None


class NothingYetError(UsageError):
    """No query has run yet."""


Found = Iterator[tuple[str, QueryStatus]]
"""Queries with the names of their leases."""


def status(
    settings: Settings, names: Sequence[str], *, recent: bool = False, sinks: Collection[str] | None = None
) -> list[QueryStatus]:
    """Return the status of the queries of streams and modes; if none is named, of all that have tables or have run.

    With `recent`, a prefix on S3 is listed from its newest known keys on: a running consumer finds the other files.
    Of the sinks, only those in `sinks` count; by default, all that have a position.
    """
    modes = [mode for mode in ModeName if mode in names or not names]
    found = list(_of_modes(settings, modes))
    streams = [name for name in names if name not in modes]
    if names and not streams and not found:
        raise NothingYetError(f"{' and '.join(modes)} has not run yet.", f"Run `consumer run {modes[0]}`.")
    if streams or not names:
        found = [*_of_streams(settings, streams, needed=not found, recent=recent), *found]
    if sinks is not None:
        found = [(lease, each) for lease, each in found if lease != sink_lease(each.query) or each.query in sinks]
    database = settings.state.database
    failed = failures(database)
    return [_with_state(each, state_of(database, lease), failed.get(lease)) for lease, each in found]


def _with_state(query: QueryStatus, held: QueryState, failure: str | None) -> QueryStatus:
    """Add the state of the lease to the status of a query, and the reason if it failed."""
    if held is QueryState.RUNNING:
        return replace(query, state=Doing.RUNNING)
    if query.state is Doing.PAUSED:
        return query
    if held is QueryState.DIED:
        return replace(query, state=Doing.FAILED, problem="It was killed, or its machine died.")
    return query if failure is None else replace(query, state=Doing.FAILED, problem=failure)


def exit_code(found: Sequence[QueryStatus]) -> int:
    """Return 0 if all queries run, 1 if one failed, 5 if none failed and one is paused, 4 if one is only stopped."""
    states = {each.state for each in found}
    if Doing.FAILED in states:
        return 1
    if Doing.PAUSED in states:
        return PausedError.exit_code
    return 4 if Doing.STOPPED in states else 0


def as_json(found: Sequence[QueryStatus]) -> str:
    """Return the status as JSON."""
    return json.dumps([asdict(each) for each in found], default=str, indent=2)


def write_table(found: Sequence[QueryStatus], out: TextIO) -> None:
    """Write the status as a table for people."""
    from rich.console import Console

    _print(found, Console(file=out, soft_wrap=True))


def watch(look: Callable[[], Sequence[QueryStatus]], every: float, out: TextIO) -> NoReturn:
    """Write the status for people repeatedly, until Ctrl-C; on a terminal, in place."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, has_shown = Console(file=out, soft_wrap=True), False
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            shown = StringIO()
            page = Console(file=shown, soft_wrap=True, width=console.width, force_terminal=console.is_terminal)
            try:
                _print(look(), page)
                has_shown = True
            except LakeproofError as error:
                # The server may be available again soon, and a file that was right before is being edited.
                if not (has_shown or error.retryable):
                    raise
                page.print(printable(str(error)), markup=False, highlight=False)
            page.print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, every {every:g} s", highlight=False)
            if console.is_terminal:
                live.update(Text.from_ansi(shown.getvalue()), refresh=True)
            else:
                out.write(shown.getvalue())
                out.flush()
            time.sleep(every)


def _print(found: Sequence[QueryStatus], console: "Console") -> None:
    from rich.markup import escape
    from rich.table import Table as Printed
    from rich.text import Text

    table = Printed(*_HEADINGS)
    for each in found:
        name, state, *others = _cells(each)
        table.add_row(escape(name), Text(state, _COLOURS[each.state]), *others)
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
        if each.breaker:
            console.print(printable(f"{each.query}: {_of_breaker(each.breaker)}"), markup=False)


def _of_breaker(breaker: Mapping[str, Any]) -> str:
    """Describe the findings of the breaker for people."""
    said = f"{_SAID[breaker['state']]} at {breaker['at']:%Y-%m-%d %H:%M:%S}: {described(breaker)}."
    return "\n  ".join([said, *(str(BadUnit(**each)) for each in breaker["examples"])])


def _cells(each: QueryStatus) -> list[str]:
    """Return the texts of a row, in the order of the headings."""
    return [
        each.query,
        str(each.state),
        "?" if each.lag is None else f"{each.lag:,} {each.unit}",
        "" if each.rows_per_second is None else f"{each.rows_per_second:,.1f}",
        _time(each.last_commit),
        _time(each.watermark),
    ]


def _of_modes(settings: Settings, modes: Sequence[ModeName]) -> Found:
    """Yield the modes that have run and still have a checkpoint, from checkpoints and topics."""
    for mode in modes:
        for root in modes_with_leases(settings.state.database, mode):
            try:
                found = _of_mode(settings, mode, root)
            except LakeproofError as error:
                found = QueryStatus(f"{mode} {root}", unit="messages", problem=error.message)
            if found:
                yield mode_lease(mode, root), found


def _of_mode(settings: Settings, mode: ModeName, root: str) -> QueryStatus | None:
    checkpoint = Checkpoint(root, settings.s3)
    identity = checkpoint.identity()
    if identity is None:
        return None
    recent = checkpoint.commits()
    newest, at = recent[-1] if recent else (None, None)
    position, lag, age, problem = newest.end if newest else identity.start, None, None, ""
    topic = Topic(settings.kafka, position.topic)
    try:
        topic_id, partitions = topic.identity()
        if topic_id == identity.topic_id:
            lag, age = _behind_in(topic, position, partitions)
        else:
            problem = f"The topic {topic.name} was deleted and created again."
    except LakeproofError as error:
        problem = error.message
    rate = per_second([(when, commit.totals.kept, commit.counts.kept) for commit, when in recent], datetime.now(UTC))
    watermark = _from_micros(newest.watermark) if newest else None
    return QueryStatus(
        f"{mode} {root}", lag=lag, unit="messages", rows_per_second=rate, last_commit=at, watermark=watermark,
        lag_seconds=age, freshness_seconds=age, problem=problem,
    )  # fmt: skip


def per_second(commits: Sequence[tuple[datetime, int, int]], now: datetime) -> float:
    """Return the events per second of the last minute.

    `commits` has, for each retained commit, its time, the total of events kept by then, and the events kept by it.
    """
    new = [(at, total, own) for at, total, own in commits if at >= now - _RATE_OVER]
    if not new:
        return 0.0
    first, total, own = new[0]
    counted = new[-1][1] - total
    if len(new) < len(commits) or total == own:
        return round((counted + own) / _RATE_OVER.total_seconds(), 1)
    # A busy mode keeps fewer commits than it makes in a minute.
    return round(counted / max((now - first).total_seconds(), 1.0), 1)


def _of_streams(settings: Settings, streams: Sequence[str], *, needed: bool, recent: bool) -> Found:
    catalog = open_catalog(settings)
    with catalog_errors():
        names = sorted(path.stem for path in settings.contracts.glob("*.yaml"))
        known = [name for name in streams or names if catalog.table_exists(stream_tables(name).ledger)]
        if not known and needed:
            raise NothingYetError("No stream has tables yet.", "Run `consumer run STREAM`.")
        for stream in known:
            yield from _of_stream(settings, catalog, stream, recent=recent)


@dataclass(frozen=True)
class _Filled:
    """A table, and the query that fills it."""

    table: "Table"
    query: str

    @classmethod
    def of(cls, catalog: "Catalog", table: str, query: str) -> "_Filled | None":
        return cls(catalog.load_table(table), query) if catalog.table_exists(table) else None

    @property
    def newest(self) -> Committed | None:
        return committed(self.table.properties, self.query)

    def status(self, lag: int | None, watermark: datetime | None = None, problem: str = "") -> QueryStatus:
        commits = list(self._commits())
        since = datetime.now(UTC) - _RATE_OVER
        rate = round(sum(rows for at, rows in commits if at >= since) / _RATE_OVER.total_seconds(), 1)
        last = max((at for at, _ in commits), default=None)
        if last is None and self.newest:
            # The snapshot of the last commit has expired, so this commit is older than the oldest snapshot.
            last = min(map(_time_of, self.table.snapshots()), default=None)
        return QueryStatus(
            self.query, lag=lag, rows_per_second=rate, last_commit=last, watermark=watermark, problem=problem
        )

    def first_after(self, follower: Committed | None) -> datetime | None:
        """Return the commit time of the first micro-batch that a follower lacks; None if it has all."""
        number, key, first = follower.next_number if follower else 0, property_of(self.query), None
        for snapshot in reversed(self.table.snapshots()):
            text = _summary(snapshot).get(key)
            if text is None:
                continue
            marker = Committed.parse(text).marker
            if marker.micro_batch_id >= number:
                first = _time_of(snapshot)
            if marker.micro_batch_id <= number:
                return first
        # The snapshot of this micro-batch has expired, so its commit is at least as old as the oldest snapshot.
        return min(map(_time_of, self.table.snapshots()), default=None)

    def _commits(self) -> Iterator[tuple[datetime, int]]:
        """Yield the time and number of rows of each commit of the query, without commits of compaction."""
        for snapshot in self.table.snapshots():
            if property_of(self.query) in _summary(snapshot):
                yield _time_of(snapshot), int(_summary(snapshot).get("added-records") or 0)


def _summary(snapshot: "Snapshot") -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _time_of(snapshot: "Snapshot") -> datetime:
    return _EPOCH + timedelta(milliseconds=snapshot.timestamp_ms)


def _behind_another(
    query: QueryStatus, before: QueryStatus, followed: _Filled, newest: Committed | None
) -> QueryStatus:
    """Add to a query that follows another one's table how long the rows that it lacks have been waiting."""
    age = _age(query.lag, followed.first_after(newest) if query.lag else None)
    ages = [each for each in (age, before.freshness_seconds) if each is not None]
    return replace(query, lag_seconds=age, freshness_seconds=max(ages) if len(ages) == 2 else None)


def _age(lag: int | None, since: datetime | None) -> float | None:
    """Return how long the oldest item that a query lacks has been waiting."""
    if since is None:
        return 0.0 if lag == 0 else None
    return max((datetime.now(UTC) - since).total_seconds(), 0.0)


def _of_stream(settings: Settings, catalog: "Catalog", stream: str, *, recent: bool) -> Found:
    """Yield the queries of a stream in the order in which its tables are filled."""
    names, query = stream_tables(stream), bronze_query(stream)
    ledger, bronze = (_Filled(catalog.load_table(name), query) for name in (names.ledger, names.bronze))
    landed = bronze.status(None)
    try:
        lag, age, unit = _behind(settings, stream, ledger.table, ledger.newest, recent=recent)
        landed = replace(landed, lag=lag, unit=unit, lag_seconds=age, freshness_seconds=age)
    except LakeproofError as error:
        landed = replace(landed, unit="", problem=error.message)
    yield stream, _with_breaker(settings, stream, landed)

    followed = {names.dead_letters: (_Filled(catalog.load_table(names.dead_letters), query), landed)}
    kept = _Filled.of(catalog, silver_tables(stream).kept, silver_query(stream))
    if kept:
        found = kept.status(_behind_of(ledger.newest, kept.newest), _watermark(kept.newest))
        decided = _behind_another(found, landed, ledger, kept.newest)
        followed[silver_tables(stream).kept] = kept, decided
        yield silver_lease(stream), decided
    for product in names_of_kind(settings.gold, [stream], Kind.WINDOWS):
        if table := _Filled.of(catalog, gold_table(product), gold_query(product)):
            found = _of_windows(settings, product, table, kept.newest if kept else None)
            if kept:
                found = _behind_another(found, decided, kept, table.newest)
            followed[gold_table(product)] = table, found
            yield gold_lease(product), found
    for product in names_of_kind(settings.gold, [stream], Kind.SAMPLES):
        table = _Filled.of(catalog, gold_table(product), gold_query(product))
        of_samples = _of_samples(
            settings, stream, product, table, kept.newest if kept else None, recorded_topic(ledger.table.properties)
        )
        for lease, found in of_samples:
            if table and kept and found.query == table.query:
                found = _behind_another(found, decided, kept, table.newest)
            yield lease, found
    positions = SinkPositions(settings.state.database)
    for table_name, (table, filled) in followed.items():
        for sink in positions.sinks_of(table_name):
            position = positions.get(sink)
            sent = Committed.parse(position.marker) if position else None
            at = positions.recorded_at(sink)
            found = QueryStatus(sink, lag=_behind_of(table.newest, sent), last_commit=at)
            yield sink_lease(sink), _behind_another(found, filled, table, sent)


def _with_breaker(settings: Settings, stream: str, query: QueryStatus) -> QueryStatus:
    """Add the findings of the breaker to a query of bronze."""
    breakers = BreakerLog(settings.state.database, stream)
    waiting = breakers.paused(QueryKind.STREAM)
    if newest := next(iter(waiting or breakers.paused(QueryKind.PAST)), None):
        state = "accepted" if newest.accepted_at else "paused" if waiting else "paused past"
        problem = "" if newest.accepted_at else ways_on(stream)
        found = dict(newest.found) | {"state": state, "at": newest.tripped_at}
        return replace(query, state=Doing.PAUSED if waiting else query.state, problem=problem, breaker=found)
    warning = breakers.warning()
    if warning and warning.tripped_at > datetime.now(UTC) - _WARNED_FOR:
        return replace(query, breaker=dict(warning.found) | {"state": "warned", "at": warning.tripped_at})
    return query


def _of_windows(settings: Settings, product: str, table: _Filled, decided: Committed | None) -> QueryStatus:
    """Return the status of a product of windows."""
    contract_of = partial(load_contract, settings.contracts)
    try:
        declared = load_product(settings.gold, product, contract_of)
    except LakeproofError as error:  # the contract was changed: the query keeps running, and the others are shown
        return table.status(_behind_of(decided, table.newest), problem=error.message)
    if declared.publish is Publish.FINAL:
        every = declared.window.every // timedelta(microseconds=1)
        lag = _closed_behind(contract_of(declared.stream), decided, table.newest, every)
        return table.status(lag, _watermark(table.newest))
    return table.status(_behind_of(decided, table.newest))


def _of_samples(
    settings: Settings,
    stream: str,
    product: str,
    table: _Filled | None,
    decided: Committed | None,
    recorded: Recorded | None,
) -> Found:
    """Yield the status of a product of samples, and of its alerts."""
    contract_of = partial(load_contract, settings.contracts)
    try:
        samples = load_samples(settings.gold, product, contract_of)
    except LakeproofError as error:
        if table:
            yield gold_lease(product), table.status(None, problem=error.message)
        return
    if table:
        lag = _closed_behind(contract_of(stream), decided, table.newest)
        yield gold_lease(product), table.status(lag, _watermark(table.newest))
    if samples.alerts and recorded and state_of(settings.state.database, alerts_lease(product)) is not QueryState.NEVER:
        yield alerts_lease(product), _of_alerts(settings, product, samples.alerts.mode, recorded)


def _of_alerts(settings: Settings, product: str, mode: AlertMode, recorded: Recorded) -> QueryStatus:
    """Return the status of a product's alerts, from the checkpoints of its two queries."""
    queries, lag, age, last, problem = alerts_queries(product), None, None, None, ""
    try:
        checkpoints = [read_checkpoint(settings, query, Offsets.from_spark) for query in queries]
        last = max((each.committed_at for each in checkpoints if each and each.committed_at), default=None)
        runs = state_of(settings.state.database, alerts_lease(product)) is QueryState.RUNNING
        if mode is AlertMode.MICRO_BATCH or not runs:
            passed = [(each.passed if each else None) or recorded.start for each in checkpoints]
            lag, age = max((_messages_behind(settings, recorded, each) for each in passed), key=lambda each: each[0])
    except LakeproofError as error:
        problem = error.message
    return QueryStatus(
        queries[0], lag=lag, unit="messages", last_commit=last, lag_seconds=age, freshness_seconds=age, problem=problem
    )


def _behind(
    settings: Settings, stream: str, ledger: "Table", accounted: Committed | None, *, recent: bool
) -> tuple[int, float | None, str]:
    """Return the amount of landed data that is in no table yet, the age of the oldest item, and the unit."""
    if recorded := recorded_topic(ledger.properties):
        at = Offsets.parse(accounted.marker.end) if accounted else recorded.start
        return *_messages_behind(settings, recorded, at), "messages"
    log = LandingLog(settings.state.database, stream)
    seq = Position.parse(accounted.marker.end).seq if accounted else 0
    zone = landing_zone(settings, stream, ledger.properties)
    if recent and scheme_of(zone.root) == "s3":
        newest = log.newest_names(_RECENT_FILES)
        listed = zone.list_recent(newest[0] if newest else None)
    else:
        listed = zone.list()
    landed = [file.modified_at for name, file in log.new_among(listed) if not zone.ignores(name, file)]
    waiting = len(landed) + max(log.head().seq - seq, 0)
    landed += (file.landed_at for file in log.files(seq, seq + 1))
    return waiting, _age(waiting, min(landed, default=None)), "files"


def _behind_of(followed: Committed | None, follower: Committed | None) -> int:
    """Return the number of micro-batches that one table has and another one lacks."""
    return max((followed.next_number if followed else 0) - (follower.next_number if follower else 0), 0)


def _closed_behind(contract: Contract, decided: Committed | None, computed: Committed | None, every: int = 1) -> int:
    """Return the number of micro-batches that a product lacks; 0 until silver's horizon passes its next multiple.

    The marker of samples and final windows has a horizon, and only moves when more of them are final: at each multiple
    of `every`, in microseconds.
    """
    length = contract.silver.horizon if contract.silver else None
    if length is None or decided is None or not decided.marker.contents:
        return 0
    horizon = int(decided.marker.contents) - length // timedelta(microseconds=1)
    done = computed.marker.contents if computed else ""
    return 0 if done and horizon // every <= int(done) // every else _behind_of(decided, computed)


def _messages_behind(settings: Settings, recorded: Recorded, at: Offsets) -> tuple[int, float | None]:
    """Return the number of messages after offsets of a stream's topic, and how long the oldest has been waiting."""
    topic = Topic(settings.kafka, recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    return _behind_in(topic, at, partitions)


def _behind_in(topic: Topic, at: Offsets, partitions: Sequence[int]) -> tuple[int, float | None]:
    lag = topic.behind(at, partitions)
    return lag, _age(lag, topic.waiting_since(at, partitions) if lag else None)


def _watermark(newest: Committed | None) -> datetime | None:
    """Return the time in a marker."""
    return _from_micros(int(newest.marker.contents)) if newest and newest.marker.contents else None


def _from_micros(time: int | None) -> datetime | None:
    try:
        return None if time is None else _EPOCH + timedelta(microseconds=time)
    except OverflowError:  # a time in a year that Python does not support
        return None


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else ""
