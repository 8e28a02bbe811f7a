"""Data waiting for the consumer, and the state database's records of a stream; the database is not migrated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice

from sqlalchemy import Connection, func, select

from lakeproof.errors import LakeproofError
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded
from lakeproof.kafka.topic import Topic
from lakeproof.landing.zone import LandingZone, landing_zone
from lakeproof.settings import Settings
from lakeproof.state.landing_log import Position
from lakeproof.state.lease import QueryState, state_in
from lakeproof.state.proofs import Proof, proofs_of
from lakeproof.state.schema import BREAKER_TRIPS, FILES, QUERY_FAILURES
from lakeproof.storage import StoredFile, scheme_of
from reader.connect import Session
from reader.page.ledgers import LEDGER
from reader.verify.book.book import read_book

_MOST_FILES = 100_000  # a landing zone with more files is not listed
_LOOKED_AT = 20  # number of files to look up that a listing of recent files lacks
_BROKER_SECONDS = 3.0


@dataclass(frozen=True)
class Waiting:
    """Landed files or messages that are in no table."""

    count: int | None  # number of files or messages; None if unknown
    since: datetime | None = None  # when the oldest landed
    lost: Sequence[str] = ()  # files that the consumer has passed, but that are not in the ledger
    lost_since: datetime | None = None  # when the first lost file landed
    gone: Sequence[str] = ()  # files that the consumer found, but that disappeared before they were read
    removed: int | None = None  # number of files in the ledger that are no longer in the landing zone
    problem: str = ""  # why the numbers are unknown


@dataclass(frozen=True)
class Listing:
    """The files of a landing zone."""

    zone: LandingZone
    is_whole: bool  # False on S3, where only recent files are listed
    files: Mapping[str, StoredFile]


@dataclass(frozen=True)
class Known:
    """The state database's records of a stream."""

    lease: QueryState = QueryState.NEVER
    failures: Mapping[str, tuple[str, datetime]] = field(default_factory=dict)  # by lease
    paused: datetime | None = None  # when the breaker paused the stream
    proofs: Sequence[Proof] = ()
    files: Sequence[tuple[int, str, datetime]] = ()  # the landing log: position, name, time


def known(settings: Settings, stream: str, leases: Sequence[str]) -> Known:
    """Read the state database; return an empty result if it cannot be used."""

    def read(connection: Connection) -> Known:
        failed = connection.execute(select(QUERY_FAILURES).where(QUERY_FAILURES.c.query.in_([stream, *leases])))
        trips = BREAKER_TRIPS.c
        paused = select(func.min(trips.tripped_at)).where(
            trips.stream == stream, trips.action == "pause", trips.ended_at.is_(None), trips.query == "stream"
        )
        tripped = connection.scalar(paused)
        files = select(FILES.c.seq, FILES.c.name, FILES.c.landed_at).where(FILES.c.stream == stream)
        return Known(
            state_in(connection, stream),
            {row.query: (row.message, datetime.fromtimestamp(row.failed_at, UTC)) for row in failed},
            datetime.fromtimestamp(tripped, UTC) if tripped else None,
            proofs_of(connection, stream, most=1),
            [
                (row.seq, row.name, row.landed_at.replace(tzinfo=UTC))
                for row in connection.execute(files.limit(_MOST_FILES + 1))
            ],
        )

    return read_book(settings, read) or Known()


def look(
    settings: Settings,
    stream: str,
    leases: Sequence[str],
    ledger: Mapping[str, str],
    recorded: Recorded | None,
    end: str,
    sources: int,
) -> tuple[Known, Waiting | Listing]:
    """Read everything except tables: the state database, then the landing zone or the topic.

    `ledger` has the properties of the ledger, `end` is the position of its marker (empty without a marker), and
    `sources` is its number of rows. This takes as long as reading the tables with DuckDB, so each has its own thread.
    """
    found = known(settings, stream, leases)
    try:
        if recorded:
            return found, _messages(settings, recorded, Offsets.parse(end) if end else recorded.start)
        return found, _listing(settings, stream, ledger, max(sources, len(found.files)), found.files)
    except LakeproofError as error:
        return found, Waiting(None, problem=error.message)


def waiting(
    session: Session, found: Waiting | Listing, end: str, files: Sequence[tuple[int, str, datetime]]
) -> Waiting:
    """Return what has landed but is in no table; `files` is the landing log, which was read before the listing."""
    if isinstance(found, Waiting):
        return found
    try:
        return _files(session, found, Position.parse(end).seq if end else 0, files)
    except LakeproofError as error:
        return Waiting(None, problem=error.message)


def _messages(settings: Settings, recorded: Recorded, at: Offsets) -> Waiting:
    seconds = min(settings.kafka.timeout_seconds, _BROKER_SECONDS)
    topic = Topic(settings.kafka.model_copy(update={"timeout_seconds": seconds}), recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    count = topic.behind(at, partitions)
    return Waiting(count, topic.waiting_since(at, partitions) if count else None)


def _listing(
    settings: Settings, stream: str, ledger: Mapping[str, str], most: int, files: Sequence[tuple[int, str, datetime]]
) -> Waiting | Listing:
    """List the landing zone, unless it has too many files."""
    if most > _MOST_FILES:
        return Waiting(None, problem=f"more than {_MOST_FILES:,} files have landed: see `consumer status {stream}`")
    zone = landing_zone(settings, stream, ledger)
    if not zone.is_there():
        return Waiting(None, problem=f"the landing zone {zone.root} is not there")
    is_local = scheme_of(zone.root) == "file"
    newest = max((name for _, name, _ in files), default=None)
    listing = zone.list() if is_local else zone.list_recent(newest)
    return Listing(zone, is_local, dict(islice(listing, _MOST_FILES + 1)))


def _files(session: Session, listing: Listing, passed: int, files: Sequence[tuple[int, str, datetime]]) -> Waiting:
    accounted = {name for (name,) in session.fetch(f"SELECT source FROM {LEDGER} WHERE replay IS NULL")}
    zone, is_whole = listing.zone, listing.is_whole
    logged = {name for _, name, _ in files}  # the consumer reads what it has found, whatever the globs are now
    listed = {
        name: file.modified_at
        for name, file in listing.files.items()
        if name in accounted or name in logged or not zone.ignores(name, file)
    }
    passed_by = {name: at for seq, name, at in files if seq <= passed and name not in accounted}
    found = {name: at for _, name, at in files if name not in accounted}
    landed = {name: at for name, at in chain(found.items(), listed.items()) if name not in accounted}
    for name in passed_by:
        landed.pop(name, None)
    absent = (name for name in found if name in landed and name not in listed)
    gone = [name for name in islice(absent, None if is_whole else _LOOKED_AT) if is_whole or not zone.stat(name)]
    return Waiting(
        len(landed),
        min(landed.values(), default=None),
        list(passed_by),
        min(passed_by.values(), default=None),
        gone,
        len(accounted - listed.keys()) if is_whole else None,
    )
