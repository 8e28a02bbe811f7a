"""Retention of landed files: those that the tables hold in full are removed, or moved to an archive, once old enough.

A file is kept while any part of it is or may be needed; the reasons are counted. It is checked again before it is
removed, and an archived copy is compared with the content that was read, so the command can be killed at any point.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from consumer.iceberg.newest import newest_marker, python_state
from consumer.removal.retain_rows import RetainedRows
from lakeproof.addresses import as_uri, folder_or_address
from lakeproof.catalog import catalog_errors, open_catalog, table_or_none
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts.duration import duration_text
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.landing.root import moved, record_archive
from lakeproof.landing.zone import LandingZone, content_hash, landing_zone, table_zones, zone_at
from lakeproof.settings import Settings
from lakeproof.state.lease import lease
from lakeproof.storage import StoredFile
from lakeproof.storage.errors import FileAbsentError, FileChangedError
from lakeproof.tables.expired import expired_of
from lakeproof.tables.names import (
    ATTEMPT,
    LANDED_AT,
    LANDING_ROOT,
    LETTER,
    OUTCOME,
    POSITION,
    RAW,
    REPLAY,
    SOURCE,
    ReplayOutcome,
    StreamTables,
    stream_tables,
)

NOT_READ = "not in the ledger yet"
CHANGED = "not what was read: overwritten since, or before"
UNEVEN = "ledger and tables differ: see `reader verify`"
NEEDED = "dead letters that a replay reads from there"
TAKEN = "the archive has another file of that name"
UNSAFE = "its name has a part . or .., which would lead elsewhere in an archive"
_AT_ONCE = 8  # files; each takes a few requests
compare: Any = expressions  # mypy does not see the arguments that pydantic takes
_CLOSED = compare.EqualTo(OUTCOME, str(ReplayOutcome.CLOSED))


@dataclass
class Retained:
    """The result of retention for a stream, or of its dry run."""

    stream: str
    older_than: str
    archive: str | None
    files: int = 0
    """Number of files in the landing zone before."""
    removed: int = 0
    bytes: int = 0
    """Bytes of the removed files."""
    kept: dict[str, int] = field(default_factory=dict)
    """Number of files that were old enough but kept, by reason."""
    rows: list[RetainedRows] = field(default_factory=list)
    """Results for rows of tables."""
    problem: str = ""
    """Why the stream was skipped."""
    is_unavailable: bool = False
    """Whether something outside the program was unavailable, so that the next retention may succeed."""


class NotOursError(UsageError):
    """Files would be removed from an address that may belong to somebody else."""


@dataclass
class _Source:
    """The entries of a file in the ledger."""

    landings: int = 0
    size: int = 0
    etag: str = ""
    content_hash: str | None = None
    bronze: int = 0
    dead_letters: int = 0
    landed_at: datetime | None = None


def retain(
    settings: Settings,
    stream: str,
    older_than: timedelta,
    archive: str | None = None,
    *,
    in_source: bool = False,
    dry_run: bool = False,
    is_ending: Callable[[], bool] = lambda: False,
    only: Container[str] | None = None,
) -> Retained:
    """Remove landed files of a stream that are older than a time and that its tables hold in full.

    `only` limits them to some names, also of files that the stream does not read. With an `archive`, each file is first
    copied below it, under the name of the stream and its own name. `is_ending` is called before each file. If the
    stream has its own address, files are removed with `in_source` only.
    """
    zone, target = landing_zone(settings, stream), archive_of(settings, stream, archive)
    if zone.is_own and not in_source:
        raise NotOursError(
            f"The files of {stream} are in {zone.root}, which may be somebody else's: none is removed there without "
            "--in-source.",
        )
    before = datetime.now(UTC) - older_than
    done = Retained(stream, duration_text(older_than), archive)
    with lease(settings.state.database, f"retention.{stream}"):
        with catalog_errors():
            catalog = open_catalog(settings)
            ledger = _ledger(catalog, stream, zone)
            # The other files are not kept in memory: a stream may have millions.
            old: dict[str, StoredFile] = {}
            ignored = set[str]()
            for name, file in zone.list():
                if only is not None and name not in only:
                    continue
                is_ignored = only is None and bool(zone.ignores(name, file))
                done.files += not is_ignored
                if file.modified_at < before:
                    old[name] = file
                    if is_ignored:
                        ignored.add(name)
            if not old:
                return done
            sources = sources_in(ledger, old)
            # The contract may have excluded files after they were read.
            done.files += len(ignored & sources.keys())
            for name in ignored - sources.keys():
                del old[name]
            if target and sources and not dry_run:
                record_archive(ledger, target.root)
            of_others = _needed_by_others(settings, catalog, stream, old, before)
            whole = _whole(catalog, stream, sources, before)

        def take(item: tuple[str, StoredFile]) -> str | None:
            """Remove a file; return why it is kept, or None if it was removed."""
            name, file = item
            source = sources.get(name)
            if source is None or source.landed_at is None or source.landed_at >= before:
                return NOT_READ
            if source.landings != 1 or source.size != file.size:
                return CHANGED if source.landings == 1 else UNEVEN
            if name in of_others:
                return of_others[name]
            if why := whole(name):
                return why
            if is_ending():
                return "the consumer was stopped"
            return _take(zone, target, name, file, source, dry_run=dry_run)

        kept: Counter[str] = Counter()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for file, why in zip(old.values(), pool.map(take, old.items()), strict=True):
                if why is None:
                    done.removed += 1
                    done.bytes += file.size
                else:
                    kept[why] += 1
    done.kept = dict(sorted(kept.items()))
    return done


def archive_of(settings: Settings, stream: str, archive: str | None) -> LandingZone | None:
    """Return the place where files of a stream are archived; None without an archive."""
    if archive is None:
        return None
    target = zone_at(f"{as_uri(folder_or_address(archive))}/{stream}", settings.s3)
    another = "Use another folder or prefix."
    for zone in table_zones(settings):
        if zone.overlaps(target):
            raise UsageError(
                f"The archive {archive} overlaps {zone.root}, where maintenance removes each file that no table uses.",
                another,
            )
    for name in settings.streams:
        zone = landing_zone(settings, name)
        if zone.overlaps(target):
            raise UsageError(
                f"The archive {archive} is in the landing zone {zone.root}: its files would land again.", another
            )
    return target


def _ledger(catalog: Catalog, stream: str, zone: LandingZone) -> Table:
    """Load the ledger of a stream that reads files from a landing zone."""
    name = stream_tables(stream).ledger
    if not catalog.table_exists(name):
        raise UsageError(f"{stream} has no tables yet.", f"Run `consumer run {stream}`.")
    ledger = catalog.load_table(name)
    if topic := recorded_topic(ledger.properties):
        raise UsageError(
            f"{stream} comes from the topic {topic.topic}, not from landed files.",
            "How long the topic keeps its messages is its own setting, retention.ms.",
        )
    recorded = ledger.properties.get(LANDING_ROOT)
    if recorded != zone.root:
        raise UsageError(*moved(stream, str(recorded), zone))
    return ledger


def sources_in(ledger: Table, wanted: Collection[str]) -> dict[str, _Source]:
    """Read the ledger's entries of some files."""
    if not wanted:
        return {}
    columns = ("source", "size", "etag", "content_hash", "bronze", "dead_letters", "landed_at", REPLAY)
    found: dict[str, _Source] = {}
    names = pa.array([*wanted], pa.string())
    for batch in ledger.scan(_between("source", wanted), selected_fields=columns).to_arrow_batch_reader():
        for row in batch.filter(pc.is_in(batch.column("source"), names)).to_pylist():
            source = found.setdefault(row["source"], _Source())
            source.bronze += row["bronze"]
            source.dead_letters += sum(count for _, count in row["dead_letters"] or ())
            if row[REPLAY] is None:
                source.landings += 1
                source.size, source.etag = row["size"], row["etag"]
                source.content_hash, source.landed_at = row["content_hash"], row["landed_at"]
    return found


def _needed_by_others(
    settings: Settings, catalog: Catalog, stream: str, files: Mapping[str, StoredFile], before: datetime
) -> dict[str, str]:
    """Return why other streams that read the same address still need some of the files."""
    # The address of `consumer run --source` is that of the stream which runs.
    settings = settings.model_copy(update={"landing": settings.landing.model_copy(update={"source": None})})
    found = {}
    for other in settings.streams:
        if other == stream:
            continue
        ledger = table_or_none(catalog, stream_tables(other).ledger)
        properties = ledger.properties if ledger else {}
        if recorded_topic(properties):
            continue
        zone = landing_zone(settings, other, properties)
        below = {zone.name_of(file.uri): name for name, file in files.items() if zone.contains(file.uri)}
        wanted = {theirs: name for theirs, name in below.items() if not zone.ignores(theirs, files[name])}
        read = sources_in(ledger, wanted) if ledger else {}
        whole = _whole(catalog, other, read, before)
        for theirs, name in wanted.items():
            if theirs not in read:
                found[name] = f"not in the ledger of {other} yet"
            elif why := whole(theirs):
                found[name] = f"{why} (stream {other})"
    return found


def _whole(
    catalog: Catalog, stream: str, sources: Mapping[str, _Source], before: datetime
) -> Callable[[str], str | None]:
    """Return a function that says why a file is still needed beside the tables; None if it is not."""
    if not sources:
        return lambda _: None
    names = stream_tables(stream)
    old = compare.And(compare.LessThan(LANDED_AT, before.isoformat()), _between(SOURCE, sources))
    bronze, letters = catalog.load_table(names.bronze), catalog.load_table(names.dead_letters)
    rows, dead = _rows_of(bronze, old), _rows_of(letters, old)
    _add_removed(catalog, names, rows, dead)
    _add_expired(catalog, names, letters, dead, sources)
    # The bytes of a unit that was too large are in no table.
    key = (SOURCE, POSITION, ATTEMPT)
    without = compare.And(old, compare.IsNull(RAW))
    bare = {(row[SOURCE], row[POSITION], row[ATTEMPT] or 1) for row in _rows(letters, without, key)}
    if bare and catalog.table_exists(names.attempts):
        # A replay commits its attempts first. Until the ledger has it, finishing it takes the file.
        newest = newest_marker(python_state(catalog.load_table(names.ledger)), bronze_query(stream), names.ledger)
        finished = compare.And(_CLOSED, compare.LessThanOrEqual(REPLAY, newest.marker.replays if newest else 0))
        attempts = _rows(catalog.load_table(names.attempts), finished, (SOURCE, POSITION, LETTER))
        bare -= {(row[SOURCE], row[POSITION], row[LETTER]) for row in attempts}
    needed = {source for source, _, _ in bare}

    def why(name: str) -> str | None:
        if name in needed:
            return NEEDED
        source = sources[name]
        return None if (rows[name], dead[name]) == (source.bronze, source.dead_letters) else UNEVEN

    return why


def _add_removed(catalog: Catalog, names: StreamTables, rows: Counter[str], dead: Counter[str]) -> None:
    """Count erased rows, which the account lists, as if they still existed."""
    if not catalog.table_exists(names.removals):
        return
    columns = ("table", "source", "rows")
    for row in _rows(catalog.load_table(names.removals), "rows > 0", columns):
        counted = {names.bronze: rows, names.dead_letters: dead}.get(str(row["table"]))
        if counted is not None:
            counted[str(row["source"])] += int(str(row["rows"]))


def _add_expired(
    catalog: Catalog, names: StreamTables, letters: Table, dead: Counter[str], sources: Mapping[str, _Source]
) -> None:
    """Count dead letters removed by retention, which the attempts list, as if they still existed."""
    if not expired_of(letters.properties).rows or not catalog.table_exists(names.attempts):
        return
    near = _between(SOURCE, sources)
    closed = _rows(catalog.load_table(names.attempts), compare.And(_CLOSED, near), (SOURCE, POSITION, LETTER))
    places = {(row[SOURCE], row[POSITION], row[LETTER]) for row in closed if row[SOURCE] in sources}
    held = _rows(letters, near, (SOURCE, POSITION, ATTEMPT))
    gone = {(row[SOURCE], row[POSITION], row[ATTEMPT] or 1) for row in held}
    if catalog.table_exists(names.removals):
        for row in _rows(
            catalog.load_table(names.removals), "rows > 0", ("table", "source", POSITION, LETTER, "facts")
        ):
            place = row["source"], row[POSITION], row[LETTER]
            if row["table"] == names.dead_letters:
                gone.add(place)
            elif row["table"] == names.attempts and json.loads(str(row["facts"]))[OUTCOME] == ReplayOutcome.CLOSED:
                places.update({place} if row["source"] in sources else ())
    places -= gone
    dead.update(str(source) for source, _, _ in places)


def remove_files(zone: LandingZone, names: Iterable[str]) -> int:
    """Remove existing files of an archive; return their number."""
    removed = 0
    for name in names:
        uri = _archive_uri(zone, name)
        if uri and zone.storage.stat(uri):
            zone.storage.remove(uri)
            removed += 1
    return removed


def _between(column: str, names: Collection[str]) -> Any:
    """Return a condition for sources between the given names: these sort by time, so other data files are not read."""
    first, last = min(names), max(names)
    return compare.And(compare.GreaterThanOrEqual(column, first), compare.LessThanOrEqual(column, last))


def _rows_of(table: Table, condition: Any) -> Counter[str]:
    """Count the rows of a table by source."""
    found: Counter[str] = Counter()
    for batch in table.scan(condition, selected_fields=(SOURCE,)).to_arrow_batch_reader():
        for each in pc.value_counts(batch.column(SOURCE)).to_pylist():
            found[each["values"]] += each["counts"]
    return found


def _rows(table: Table, condition: Any, columns: tuple[str, ...]) -> list[dict[str, object]]:
    reader: pa.RecordBatchReader = table.scan(condition, selected_fields=columns).to_arrow_batch_reader()
    return [row for batch in reader for row in batch.to_pylist()]


def _take(
    zone: LandingZone, target: LandingZone | None, name: str, file: StoredFile, source: _Source, *, dry_run: bool
) -> str | None:
    """Archive and remove a file; return why it is kept, or None."""
    copy = _archive_uri(target, name) if target else None
    if target and not copy:
        return UNSAFE
    is_touched = file.etag != source.etag
    if is_touched and not source.content_hash:
        return CHANGED
    if is_touched or (target and not dry_run):
        try:
            data = zone.storage.read(file.uri, file.etag)
        except FileAbsentError:
            return None  # somebody else removed it
        except FileChangedError:
            return CHANGED
        found = content_hash(data)
        if source.content_hash and found != source.content_hash:
            return CHANGED
        if target and copy and not dry_run and not _archived(target, copy, data, found):
            return TAKEN
    if dry_run:
        return None
    now = zone.storage.stat(file.uri)
    if now and now.etag != file.etag:
        return CHANGED
    zone.storage.remove(file.uri)
    return None


def _archived(target: LandingZone, uri: str, data: bytes, digest: str) -> bool:
    """Copy a file to the archive; return whether the archive has it."""
    try:
        target.storage.write_new(uri, data)
    except FileExistsError:  # from a retention that was killed or refused
        try:
            return content_hash(target.storage.read(uri)) == digest
        except LakeproofError:
            return False
    return True


def _archive_uri(archive: LandingZone, name: str) -> str | None:
    """Return the address of a file in an archive; None if a file system would resolve it to another one.

    Files in a linked folder have absolute names. Whoever may write to the bucket of a stream chooses the other names.
    """
    uri = archive.uri_of(name.lstrip("/"))
    parts = uri.removeprefix(f"{archive.root}/").split("/")
    return uri if archive.contains(uri) and not {".", ".."} & {*parts} else None
