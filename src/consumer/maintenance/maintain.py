"""Maintenance of the tables: compaction, expiry of snapshots, removal of orphan files.

Iceberg's own actions do the work. This module chooses the tables, the time and what is kept, and proves that a
compaction changed no row.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog
from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.expire import expire, expiring, remove_orphans
from consumer.iceberg.jvm import failed_outside, first_cause, is_cancelled, is_missing
from consumer.iceberg.rewrite import CollisionError, Compacted, NotEqualError, compact, drop_branches, work
from consumer.maintenance.folders import Folders, folders_of, promised, remove_replaced, sharing
from consumer.maintenance.landing_logs import shorten_logs
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.clocks import ClockError
from lakeproof.contracts import Maintenance
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.holds import held_since, named, references
from lakeproof.references import Metadata
from lakeproof.settings import MaintenanceSettings, Settings
from lakeproof.state.lease import lease
from lakeproof.tables.names import NAMESPACES, REBUILDING, silver_tables, stream_tables
from lakeproof.tables.of_stream import tables_of_stream
from lakeproof.wording import count_of

log = structlog.get_logger()

LEASE = "tables.maintenance"
"""Lease of the one maintenance of a lake; names of streams have no dot."""
_QUERY = "maintenance"
# A compaction that collided with a writer is tried again: the writer may have been busy with an older partition.
_TRIES = 3
_PARTITIONS = 4  # for each core
# Maximum number of files that one compaction replaces: the driver holds a task for each file.
_MOST_FILES = 10_000
LEAST_FILES = 5
"""Minimum number of small files in a partition for a compaction."""
Skipped = Callable[[str, LakeproofError], object]
"""Is called with a stream or the table of a product that is left out, and the error in its file."""


@dataclass(frozen=True)
class Size:
    """The size of a table."""

    files: int
    bytes: int
    snapshots: int


@dataclass
class Maintained:
    """The result of maintenance for a table, or of its dry run."""

    table: str
    before: Size
    after: Size
    compacted: list[Compacted] = field(default_factory=list)
    to_compact: int = 0
    """Data files that would be compacted."""
    to_expire: int = 0
    """Snapshots that nobody needs anymore."""
    orphans: int = 0
    shared_with: list[str] = field(default_factory=list)
    """Tables with files in the same folder, so that no file there is known to be an orphan."""
    promised_to: list[str] = field(default_factory=list)
    """Backups, tags and branches of dropped tables with files in the same folder, which are no orphans."""
    kept_by: list[str] = field(default_factory=list)
    """Readers, branches and tags that keep snapshots older than those that are kept anyway."""
    old_folders: list[str] = field(default_factory=list)
    """Folders of tables that a rebuild has replaced by this table."""
    remark: str = ""
    """Work that was skipped because of a property of the table."""
    busy: str = ""
    """Why a compaction was left to the next maintenance: a writer changed the same files."""
    problem: str = ""
    """The error, if maintenance failed."""


def maintain(
    settings: Settings,
    names: Sequence[str],
    session: Callable[[], SparkSession],
    skipped: Skipped | None = None,
    *,
    dry_run: bool = False,
) -> list[Maintained]:
    """Maintain the tables of streams, or all tables of the lake if none is named.

    If no stream is named, `skipped` is called for each stream or product that an error in its file leaves out.
    """
    with lease(settings.state.database, LEASE):
        errors: dict[str, LakeproofError] = {}
        tables = tables_of(settings, names, errors.__setitem__ if skipped and not names else None)
        if skipped:
            for stream, error in errors.items():
                skipped(stream, error)
        if errors and not tables:
            return []
        if not tables:
            missing = f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'}" if names else "There are"
            raise UsageError(f"{missing} no tables yet.", f"Run `consumer run {' '.join(names) or 'STREAM'}`.")
        with catalog_errors():
            folders = folders_of(settings, open_catalog(settings))
        spark = session()
        prepare(spark)
        shared = sharing(folders)
        kept_for = partial(promised, settings)
        done = [maintain_table(spark, name, own, shared, kept_for, dry_run=dry_run) for name, own in tables.items()]
        if not names:
            _remove_replaced(settings, folders, done, dry_run=dry_run)
        if not dry_run:
            shorten_logs(settings, names)
        return done


def _remove_replaced(settings: Settings, folders: Folders, done: list[Maintained], *, dry_run: bool) -> None:
    """Remove folders left by rebuilds, and note them in the results of the rebuilt tables."""
    by_table = {each.table: each for each in done}
    for uri in remove_replaced(settings, folders, _before(settings.maintenance.orphan_hours), dry_run=dry_run):
        namespace, name = uri.split("/")[-2:]
        table = f"{namespace}.{name.partition(REBUILDING)[0]}"
        by_table.get(table, done[0]).old_folders.append(uri)
        if not dry_run:
            log.info("folder of a replaced table removed", table=table, folder=uri)


def tables_of(
    settings: Settings, names: Sequence[str], skipped: Skipped | None = None
) -> dict[str, MaintenanceSettings]:
    """Return tables of streams, or all tables of the lake if no stream is named, with their maintenance settings.

    With `skipped`, a stream or a product whose file cannot be read is left out: only it says what may be removed.
    """
    own: dict[str, Maintenance] = {}
    unknown: set[str] = set()
    errors: dict[str, LakeproofError] = {}  # a product's file may be faulty for each stream
    for stream in names or settings.streams:
        try:
            own |= tables_of_stream(settings, stream, errors.__setitem__ if skipped else None)
        except LakeproofError as error:
            if skipped is None:
                raise
            errors[stream] = error
            unknown |= {*astuple(stream_tables(stream)), *astuple(silver_tables(stream))}
    if skipped:
        for name, why in errors.items():
            skipped(name, why)

    def is_wanted(table: str) -> bool:
        if table in own:
            return True
        # Other tables of gold may belong to a product that is left out, or to those of a stream that is.
        return not names and table not in unknown and not (errors and table.startswith("gold."))

    with catalog_errors():
        found = filter(is_wanted, _tables(open_catalog(settings)))
        return {table: _with(settings.maintenance, own.get(table, Maintenance())) for table in found}


def _with(settings: MaintenanceSettings, own: Maintenance) -> MaintenanceSettings:
    return settings.model_copy(update=own.model_dump(exclude_none=True))


def prepare(spark: SparkSession) -> None:
    """Set up a session for tables of any size: shuffle partitions with few rows are merged."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism * _PARTITIONS))


def maintain_table(
    spark: SparkSession,
    name: str,
    settings: MaintenanceSettings,
    shared: Callable[[str], list[str]] | None,
    kept_for: Callable[[Metadata], list[str]] = lambda _: [],
    *,
    dry_run: bool = False,
) -> Maintained:
    """Maintain one table. A failure is noted in the result, so that other tables are maintained.

    To find orphan files, all files in the folder of the table are listed, unless `shared` names other tables with files
    there, or `kept_for` names what keeps files of dropped tables. Without `shared`, orphan files are left alone.
    """
    nothing = Size(0, 0, 0)
    done = Maintained(name, nothing, nothing)
    try:
        table = open_table(spark, name, _QUERY)
        done.before = done.after = _size(table)
        if not done.before.snapshots:
            return done
        is_kept = table.property("gc.enabled") == "false"
        done.remark = "Nothing is removed: its property gc.enabled is false." * is_kept
        if dry_run:
            done.to_compact = work(table, options_of(settings)).files if settings.compact else 0
        else:
            _compact(table, settings, done)
        if not is_kept:
            _expire(table, settings, done, dry_run=dry_run)
        if shared and not is_kept:
            done.shared_with = shared(name)
            if not done.shared_with and _may_have_orphans(table, kept_for, done):
                done.orphans = remove_orphans(table, _before(settings.orphan_hours), dry_run=dry_run)
        done.after = _size(table)
    except NotEqualError as error:
        done.problem = f"A compaction would have changed rows, so it was not published: {error}"
    except (Py4JError, PySparkException, ClockError) as error:
        if is_cancelled(error):  # the stream ends without waiting for maintenance
            log.info("maintenance interrupted", table=name)
            return done
        # A missing or damaged file is a problem of its table. If the table cannot be opened for another reason, other
        # tables cannot be opened either.
        if failed_outside(error) and not _can_be_read(spark, name):
            raise UnavailableError(f"Cannot maintain {name}: {first_cause(error)}", "Run it again later.") from error
        done.problem = first_cause(error)
    # While a stream runs, a line is logged after each maintenance: it has only what was done, and problems.
    said = {name: value for name, value in asdict(done).items() if value}
    if done.problem:
        log.warning("maintenance failed", **said)
    elif not dry_run:
        log.info("maintained", **said)
    return done


def _can_be_read(spark: SparkSession, name: str) -> bool:
    """Return whether catalog and storage respond, even if only to report that a table is missing."""
    try:
        _size(open_table(spark, name, _QUERY))
    except (Py4JError, PySparkException) as error:
        return is_missing(error)
    return True


def _compact(table: OpenTable, settings: MaintenanceSettings, done: Maintained) -> None:
    drop_branches(table)
    for _ in range(_TRIES if settings.compact else 0):
        done.busy = ""
        try:
            while found := compact(table, options_of(settings)):
                done.compacted.append(found)
                if found.before.files < _MOST_FILES:
                    break
            break
        except CollisionError as error:
            done.busy = str(error)


def _expire(table: OpenTable, settings: MaintenanceSettings, done: Maintained, *, dry_run: bool) -> None:
    """Expire snapshots that are old enough, and note who keeps others.

    A registered reader may be a stream that continues from its snapshot: later snapshots are kept, too.
    """
    metadata = table.metadata()
    limit, found = _before(settings.keep_hours), references(metadata)
    kept = [each for each in found if each.at < limit and not each.has_passed]
    done.kept_by = named(kept)
    limit = min([limit, *held_since(metadata)])
    done.to_expire = expiring(table, limit)
    if not dry_run and (done.to_expire or any(each.has_passed for each in found)):
        expire(table, limit)


def _may_have_orphans(table: OpenTable, kept_for: Callable[[Metadata], list[str]], done: Maintained) -> bool:
    """Return whether no file in the folder of a table is kept for a dropped one; note why not."""
    try:
        done.promised_to = kept_for(table.metadata())
    except LakeproofError as error:  # Spark may have another access to the files
        done.problem = f"Orphan files are not looked for: {error.message}"
        return False
    return not done.promised_to


def _before(hours: float) -> datetime:
    return datetime.now(UTC) - timedelta(hours=hours)


def options_of(settings: MaintenanceSettings) -> dict[str, str]:
    """Return the options of Iceberg's ``rewrite_data_files``."""
    return {
        "target-file-size-bytes": str(settings.file_mib << 20),
        # The default is three quarters: two files of a bit more than half the size would be rewritten each time.
        "min-file-size-bytes": str(settings.file_mib << 19),
        "min-input-files": str(LEAST_FILES),
        "max-files-to-rewrite": str(_MOST_FILES),
    }


def _size(table: OpenTable) -> Size:
    table.loaded.refresh()
    snapshot = table.loaded.currentSnapshot()
    total = snapshot.summary().get if snapshot else lambda _: None
    files, size = (int(total(key) or 0) for key in ("total-data-files", "total-files-size"))
    return Size(files, size, int(table.loaded.snapshots().size()))


def _tables(catalog: Catalog) -> Iterator[str]:
    """Yield the tables of the lake. Tables of an unfinished rebuild are left out."""
    for namespace in NAMESPACES:
        if catalog.namespace_exists(namespace):
            for _, name in sorted(catalog.list_tables(namespace)):
                if REBUILDING not in name:
                    yield f"{namespace}.{name}"


def as_json(done: Sequence[Maintained]) -> str:
    """Return the results as JSON."""
    return json.dumps([asdict(each) for each in done], indent=2)


def lines(done: Sequence[Maintained], *, dry_run: bool) -> Iterator[str]:
    """Yield the results as lines for people."""
    from rich.filesize import decimal

    for each in done:
        files, size, kept = zip(astuple(each.before), astuple(each.after), strict=True)
        if dry_run:
            said = [
                f"{count_of(files[0], 'data file')}, {each.to_compact:,} to compact",
                decimal(size[0]),
                f"{count_of(kept[0], 'snapshot')}, {each.to_expire:,} to expire",
                f"{count_of(each.orphans, 'orphan file')} to remove",
            ]
        else:
            said = [
                f"data files {_change(files, _count)}",
                _change(size, decimal),
                f"snapshots {_change(kept, _count)}",
            ]
            said.append(f"{count_of(each.orphans, 'orphan file')} removed")
        if each.compacted:
            rows = sum(part.rows for part in each.compacted)
            before, after = (sum(sides) for sides in zip(*map(_seconds, each.compacted), strict=True))
            said.append(f"{count_of(rows, 'row')} proven equal, read in {before:.2f} s before and {after:.2f} s after")
        yield f"{each.table}: {'; '.join(said)}."
        if each.busy:
            yield f"  Some files are left for the next time, because a writer changed them: {each.busy}"
        if each.kept_by:
            yield f"  Older snapshots are kept by {', '.join(each.kept_by)}."
        if each.shared_with:
            yield f"  Orphan files are not looked for: the folder may have files of {', '.join(each.shared_with)}."
        if each.promised_to:
            kept_by = ", ".join(each.promised_to)
            yield f"  Orphan files are not looked for: the folder has files of a dropped table, kept by {kept_by}."
        if each.old_folders:
            removed = "would be removed" if dry_run else "were removed"
            yield f"  Folders of replaced tables {removed}: {', '.join(each.old_folders)}."
        for said_of_it in filter(None, [each.remark, each.problem]):
            yield f"  {said_of_it}"
    if dry_run:
        yield "Nothing was changed."


def _seconds(compacted: Compacted) -> tuple[float, float]:
    return compacted.before.seconds, compacted.after.seconds


def _count(number: int) -> str:
    return f"{number:,}"


def _change(pair: tuple[int, int], text: Callable[[int], str]) -> str:
    before, after = map(text, pair)
    return before if before == after else f"{before} → {after}"
