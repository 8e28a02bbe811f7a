"""The status of each query, from leases, tables, landing log and topics, without Spark."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from consumer.iceberg.marker import Committed, committed, property_of
from consumer.layers.bronze.trips import ways_on
from consumer.modes.checkpoint import Checkpoint
from consumer.monitoring.lag import (
    RATE_OVER,
    age_of_oldest,
    behind_in_topic,
    closed_behind,
    landed_behind,
    messages_behind,
    micro_batches_behind,
    per_second,
)
from consumer.monitoring.query_status import Doing, NothingYetError, QueryStatus
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import alerts_queries, bronze_query, read_checkpoint
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import Kind, Publish
from lakeproof.gold.product_file import load_product, names_of_kind
from lakeproof.gold.samples import AlertMode
from lakeproof.gold.samples_file import load_samples
from lakeproof.kafka.modes import ModeName
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded, recorded_topic
from lakeproof.kafka.topic import Topic
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog, QueryKind
from lakeproof.state.failures import failures
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

_WARNED_FOR = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Found = Iterator[tuple[str, QueryStatus]]
"""Queries with the names of their leases."""


def status(
    settings: Settings, names: Sequence[str], *, recent: bool = False, leases: Collection[str] | None = None
) -> list[QueryStatus]:
    """Return the status of the queries of streams and modes; by default, of all that have tables or have run.

    With `recent`, a prefix on S3 is listed from its newest known keys on: a running consumer finds the other files.
    Of the sinks and modes, only those with these leases count; by default, all that have a position or a checkpoint.
    """
    modes = [mode for mode in ModeName if mode in names or not names]
    found = list(_of_modes(settings, modes, leases))
    streams = [name for name in names if name not in modes]
    if names and not streams and not found:
        raise NothingYetError(f"{' and '.join(modes)} has not run yet.", f"Run `consumer run {modes[0]}`.")
    if streams or not names:
        found = [*_of_streams(settings, streams, needed=not found, recent=recent), *found]
    if leases is not None:
        found = [(lease, each) for lease, each in found if lease != sink_lease(each.query) or lease in leases]
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


def _of_modes(settings: Settings, modes: Sequence[ModeName], leases: Collection[str] | None) -> Found:
    """Yield the modes that have run and still have a checkpoint, from checkpoints and topics."""
    for mode in modes:
        for root in modes_with_leases(settings.state.database, mode):
            if leases is not None and mode_lease(mode, root) not in leases:
                continue
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
            lag, age = behind_in_topic(topic, position, partitions)
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


def _of_streams(settings: Settings, streams: Sequence[str], *, needed: bool, recent: bool) -> Found:
    catalog = open_catalog(settings)
    with catalog_errors():
        names = settings.streams
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
        since = datetime.now(UTC) - RATE_OVER
        rate = round(sum(rows for at, rows in commits if at >= since) / RATE_OVER.total_seconds(), 1)
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
    age = age_of_oldest(query.lag, followed.first_after(newest) if query.lag else None)
    ages = [each for each in (age, before.freshness_seconds) if each is not None]
    return replace(query, lag_seconds=age, freshness_seconds=max(ages) if len(ages) == 2 else None)


def _of_stream(settings: Settings, catalog: "Catalog", stream: str, *, recent: bool) -> Found:
    """Yield the queries of a stream in the order in which its tables are filled."""
    names, query = stream_tables(stream), bronze_query(stream)
    ledger, bronze = (_Filled(catalog.load_table(name), query) for name in (names.ledger, names.bronze))
    landed = bronze.status(None)
    try:
        lag, age, unit = landed_behind(settings, stream, ledger.table, ledger.newest, recent=recent)
        landed = replace(landed, lag=lag, unit=unit, lag_seconds=age, freshness_seconds=age)
    except LakeproofError as error:
        landed = replace(landed, unit="", problem=error.message)
    yield stream, _with_breaker(settings, stream, landed)

    followed = {names.dead_letters: (_Filled(catalog.load_table(names.dead_letters), query), landed)}
    kept = _Filled.of(catalog, silver_tables(stream).kept, silver_query(stream))
    if kept:
        found = kept.status(micro_batches_behind(ledger.newest, kept.newest), _watermark(kept.newest))
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
            if position is None:  # a former sink, or one that gets the whole table in the next run
                continue
            sent = Committed.parse(position.marker)
            at = positions.recorded_at(sink)
            found = QueryStatus(sink, lag=micro_batches_behind(table.newest, sent), last_commit=at)
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
        return table.status(micro_batches_behind(decided, table.newest), problem=error.message)
    if declared.publish is Publish.FINAL:
        every = declared.window.every // timedelta(microseconds=1)
        lag = closed_behind(contract_of(declared.stream), decided, table.newest, every)
        return table.status(lag, _watermark(table.newest))
    return table.status(micro_batches_behind(decided, table.newest))


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
        lag = closed_behind(contract_of(stream), decided, table.newest)
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
            lag, age = max((messages_behind(settings, recorded, each) for each in passed), key=lambda each: each[0])
    except LakeproofError as error:
        problem = error.message
    return QueryStatus(
        queries[0], lag=lag, unit="messages", last_commit=last, lag_seconds=age, freshness_seconds=age, problem=problem
    )


def _watermark(newest: Committed | None) -> datetime | None:
    """Return the time in a marker."""
    return _from_micros(int(newest.marker.contents)) if newest and newest.marker.contents else None


def _from_micros(time: int | None) -> datetime | None:
    try:
        return None if time is None else _EPOCH + timedelta(microseconds=time)
    except OverflowError:  # a time in a year that Python does not support
        return None
