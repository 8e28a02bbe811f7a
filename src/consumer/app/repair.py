"""An operator's repairs of a stopped stream: resume from the tables, or give up files that are gone."""

from typing import NamedTuple

from consumer.iceberg.newest import standing
from consumer.layers.bronze.trips import described
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query, checkpoint_folder, remove_checkpoint
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.kafka.offsets import Offsets, Range, past_between, without
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.kafka.topic import Topic, are_removed
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog, QueryKind
from lakeproof.state.given_up import give_up_before, given_up_before
from lakeproof.state.landing_log import LandingLog, Position, is_origin
from lakeproof.state.lease import lease
from lakeproof.state.sink_positions import SinkPositions, sink_lease
from lakeproof.storage.local import local_path
from lakeproof.tables.names import stream_tables


def reset(settings: Settings, stream: str) -> str:
    """Remove a stream's checkpoint; return a line that describes the result."""
    query = bronze_query(stream)
    with lease(settings.state.database, stream):
        removed = remove_checkpoint(settings, query)
    where = checkpoint_folder(settings, query)
    return (
        f"Removed {where}. The next run resumes from the position in the tables."
        if removed
        else f"No checkpoint found in {where}. The next run resumes from the position in the tables."
    )


def accept(settings: Settings, stream: str, *queries: QueryKind) -> list[str]:
    """Accept the paused micro-batches of a stream, once; return a line for each of them."""
    found = BreakerLog(settings.state.database, stream).accept(*queries)
    return [f"{stream}: {described(trip.found)}." for trip in found]


def resend(settings: Settings, table: str) -> str:
    """Forget the positions of a table's topics; return a line that describes the result."""
    positions = SinkPositions(settings.state.database)
    sinks = positions.sinks_of(table)
    if not sinks:
        raise UsageError(
            f"Nothing of {table!r} was sent to a topic yet.", "Name a table: silver.STREAM, dead_letters.STREAM, gold.…"
        )
    for sink in sinks:
        with lease(settings.state.database, sink_lease(sink)):
            positions.forget(sink)
    topics = ", ".join(sink.removeprefix(f"{table}-to-") for sink in sinks)
    return f"The next run sends all of {table} to {topics} again."


def absent_files(settings: Settings, stream: str) -> list[str]:
    """Return the discovered files, not given up, that are neither in a table nor in the landing zone."""
    zone = landing_zone(settings, stream)
    if not zone.is_there():
        raise UnavailableError(f"The landing folder {local_path(zone.root)} does not exist.", "Mount its disk.")
    log = LandingLog(settings.state.database, stream)
    there = {name for name, _ in zone.list()}
    given_up = log.given_up()
    waiting = log.files(_accounted(settings, stream, log).seq, log.head().seq)
    return [file.name for file in waiting if file.name not in there and file.name not in given_up]


class Lost(NamedTuple):
    """A range of lost offsets, and the first offset that its partition still has."""

    partition: int
    start: int
    end: int
    first: int


def lost_offsets(settings: Settings, stream: str) -> list[Lost]:
    """Return the ranges of offsets that were removed before they were read and are not given up."""
    with catalog_errors():
        catalog, names = open_catalog(settings), stream_tables(stream)
        recorded = recorded_topic(catalog.load_table(names.ledger).properties)
        if recorded is None:
            return []
        found = standing(catalog, names, bronze_query(stream), str(recorded.start).__eq__)
    position = Offsets.parse(found.accounted) if found.accounted else recorded.start
    topic = Topic(settings.kafka, recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    extents = topic.extents(partitions)
    past: list[Range] = []  # of batches over the past, which precede the position
    if found.unfinished:
        past += past_between(found.unfinished.start, found.unfinished.end)
    for trip in BreakerLog(settings.state.database, stream).paused(QueryKind.PAST):
        paused = without(past_between(trip.start, trip.end), position.past)
        if not are_removed(paused, extents):
            past += paused  # otherwise the next batch ends the pause
    first = {partition: extent.first for partition, extent in extents.items()}
    lost = [(partition, start, min(end, first[partition])) for partition, start, end in past]
    lost += [(partition, position.next(partition), first[partition]) for partition in partitions]
    return [
        Lost(partition, start, end, first[partition])
        for partition, start, end in without(lost, ())
        if given_up_before(settings.state.database, stream, partition) < first[partition]
    ]


def topic_of(settings: Settings, stream: str) -> str | None:
    """Return the name of the topic that a stream comes from; None for files."""
    with catalog_errors():
        catalog, name = open_catalog(settings), stream_tables(stream).ledger
        recorded = recorded_topic(catalog.load_table(name).properties) if catalog.table_exists(name) else None
    return recorded.topic if recorded else None


def give_up_offsets(settings: Settings, stream: str, lost: list[Lost]) -> None:
    """Let lost offsets become dead letters, so that the stream resumes after them."""
    for each in lost:
        give_up_before(settings.state.database, stream, each.partition, each.first)


def give_up(settings: Settings, stream: str, names: list[str]) -> None:
    """Let files become dead letters if they are missing when the consumer reads them."""
    LandingLog(settings.state.database, stream).give_up(names)


def _accounted(settings: Settings, stream: str, log: LandingLog) -> Position:
    names = stream_tables(stream)
    with catalog_errors():
        catalog = open_catalog(settings)
        read = catalog.table_exists(names.ledger)
        accounted = standing(catalog, names, bronze_query(stream), is_origin).accounted if read else None
    position = Position.parse(accounted) if accounted else log.base
    return position if log.has(position) else log.base
