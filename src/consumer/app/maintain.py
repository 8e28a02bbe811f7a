"""Maintenance of the tables: compaction, expiry of snapshots, removal of orphan files.

Iceberg's own actions do the work. What is ours is which tables, when, what is kept, and the proof that a compaction
changed no row.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from posixpath import normpath

import structlog
from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.expire import expire, references, remove_orphans, snapshots
from consumer.iceberg.jvm import failed_outside, first_cause, is_missing
from consumer.iceberg.rewrite import CollisionError, Compacted, NotEqualError, compact, drop_branch, work
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.gold.model import Kind
from lakeproof.gold.product_file import names_of_kind
from lakeproof.gold.samples_file import load_samples
from lakeproof.settings import MaintenanceSettings, Settings
from lakeproof.state.lease import lease
from lakeproof.tables.names import REBUILDING, gold_table, samples_tables, silver_tables, stream_tables
from lakeproof.wording import count_of

log = structlog.get_logger()

LEASE = "tables.maintenance"
"""Lease of the one maintenance of a lake; names of streams have no dot."""
NAMESPACES = ("bronze", "dead_letters", "ledger", "silver", "gold", "ops")
_QUERY = "maintenance"
# A compaction that collided with a writer is tried again: the writer may have been busy with an older partition.
_TRIES = 3
_PARTITIONS = 4  # for each core
# Files that one compaction replaces at most: the driver holds a task for each of them.
_MOST_FILES = 10_000
_LEAST_FILES = 5
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*")


@dataclass(frozen=True)
class Size:
    """What a table consists of."""

    files: int
    bytes: int
    snapshots: int


@dataclass
class Maintained:
    """What was done to a table, or what would be."""

    table: str
    before: Size
    after: Size
    compacted: list[Compacted] = field(default_factory=list)
    to_compact: int = 0
    """Data files that would be compacted."""
    to_expire: int = 0
    """Snapshots that are old enough to expire."""
    orphans: int = 0
    shared_with: list[str] = field(default_factory=list)
    """Tables that have files in the same folder, so that none there is known to be an orphan."""
    kept_by: list[str] = field(default_factory=list)
    """Branches and tags that keep snapshots older than those that are kept anyway."""
    busy: str = ""
    """Why a compaction was left to the next maintenance: a writer changed the same files."""
    problem: str = ""
    """What failed."""


def maintain(
    settings: Settings, names: Sequence[str], session: Callable[[], SparkSession], *, dry_run: bool = False
) -> list[Maintained]:
    """Maintain the tables of streams, or all tables of the lake if none is named."""
    with lease(settings.state.database, LEASE):
        tables = tables_of(settings, names)
        if not tables:
            missing = f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'}" if names else "There are"
            raise UsageError(f"{missing} no tables yet.", f"Run `consumer run {' '.join(names) or 'STREAM'}`.")
        with catalog_errors():
            shared = sharing(open_catalog(settings))
        spark = session()
        prepare(spark)
        return [maintain_table(spark, name, settings.maintenance, shared, dry_run=dry_run) for name in tables]


def tables_of(settings: Settings, names: Sequence[str]) -> list[str]:
    """Names of the tables of streams, or of all tables of the lake if none is named."""
    with catalog_errors():
        return list(_tables(open_catalog(settings), settings, names))


def sharing(catalog: Catalog) -> Callable[[str], list[str]]:
    """Find the tables that have files in the folder of another one.

    A table that is renamed keeps its folder, and the next one of its old name gets the same. One that cannot be read
    may have files anywhere.
    """
    folders = {
        name: _folders(catalog, name)
        for namespace in catalog.list_namespaces()
        for name in map(".".join, catalog.list_tables(namespace))
    }

    def with_files_in(name: str) -> list[str]:
        own, *_ = folders.get(name) or [""]
        others = {other: found for other, found in folders.items() if other != name and found != []}
        return sorted(
            other for other, found in others.items() if found is None or any(each.startswith(own) for each in found)
        )

    return with_files_in


def _folders(catalog: Catalog, name: str) -> list[str] | None:
    """Where a table has files, its own folder first; nothing if it was dropped, None if it cannot be read."""
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return []
    except Exception:  # noqa: BLE001 - whatever PyIceberg raises for a table of any writer
        return None
    others = (table.properties.get(f"write.{part}.path") for part in ("data", "metadata"))
    # `file:/a`, `file:///a` and `/a` are the same folder. A name may have `#` or `?`, so this is no URL to split.
    places = (_SCHEME.sub("", each) for each in (table.location(), *others) if each)
    return [f"{normpath(f'/{place}')}/" for place in places]


def prepare(spark: SparkSession) -> None:
    """Set up a session for tables of any size: partitions of a shuffle are joined where there are few rows."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism * _PARTITIONS))


def maintain_table(
    spark: SparkSession,
    name: str,
    settings: MaintenanceSettings,
    shared: Callable[[str], list[str]] | None,
    *,
    dry_run: bool = False,
) -> Maintained:
    """Maintain one table. What fails is noted, so that the others are maintained.

    To find orphan files, all files in the folder of the table are listed, unless others have files there, as `shared`
    says. Without it, orphan files are left alone.
    """
    nothing = Size(0, 0, 0)
    done = Maintained(name, nothing, nothing)
    try:
        table = open_table(spark, name, _QUERY)
        done.before = done.after = _size(table)
        if not done.before.snapshots:
            return done
        if dry_run:
            _preview(table, settings, done)
        else:
            _carry_out(table, settings, done)
        if shared:
            done.shared_with = shared(name)
            if not done.shared_with:
                done.orphans = remove_orphans(table, _before(settings.orphan_hours), dry_run=dry_run)
        done.after = _size(table)
    except NotEqualError as error:
        done.problem = f"A compaction would have changed rows, so it was not published: {error}"
    except (Py4JError, PySparkException) as error:
        # A file that is missing or damaged is a problem of its table. If the table cannot be opened for another
        # reason, others cannot be either.
        if failed_outside(error) and not _can_be_read(spark, name):
            raise UnavailableError(f"Cannot maintain {name}: {first_cause(error)}", "Run it again later.") from error
        done.problem = first_cause(error)
    if done.problem:
        log.warning("maintenance failed", **asdict(done))
    elif not dry_run:
        log.info("maintained", **asdict(done))
    return done


def _can_be_read(spark: SparkSession, name: str) -> bool:
    """Whether the catalog and the storage answer, if only that a table is missing."""
    try:
        _size(open_table(spark, name, _QUERY))
    except (Py4JError, PySparkException) as error:
        return is_missing(error)
    return True


def _preview(table: OpenTable, settings: MaintenanceSettings, done: Maintained) -> None:
    """Say what would be done."""
    done.to_compact = work(table, options_of(settings)).files
    _find_expiring(table, settings, done)


def _carry_out(table: OpenTable, settings: MaintenanceSettings, done: Maintained) -> None:
    drop_branch(table)
    for _ in range(_TRIES):
        done.busy = ""
        try:
            while found := compact(table, options_of(settings)):
                done.compacted.append(found)
                if found.before.files < _MOST_FILES:
                    break
            break
        except CollisionError as error:
            done.busy = str(error)
    _find_expiring(table, settings, done)
    if done.to_expire:
        expire(table, _before(settings.keep_hours))


def _find_expiring(table: OpenTable, settings: MaintenanceSettings, done: Maintained) -> None:
    """Find out how many snapshots are old enough, without the newest, and who keeps some of them."""
    *older, _ = snapshots(table)
    done.to_expire = sum(at < _before(settings.keep_hours) for at in older)
    if done.to_expire:
        done.kept_by = [f"{'branch' if each.is_branch else 'tag'} {each.name}" for each in references(table)]


def _before(hours: float) -> datetime:
    return datetime.now(UTC) - timedelta(hours=hours)


def options_of(settings: MaintenanceSettings) -> dict[str, str]:
    """Options of Iceberg's ``rewrite_data_files``."""
    return {
        "target-file-size-bytes": str(settings.file_mib << 20),
        # By default three quarters of it: two files of a bit more than half would be rewritten again each time.
        "min-file-size-bytes": str(settings.file_mib << 19),
        "min-input-files": str(_LEAST_FILES),
        "max-files-to-rewrite": str(_MOST_FILES),
    }


def _size(table: OpenTable) -> Size:
    table.loaded.refresh()
    snapshot = table.loaded.currentSnapshot()
    total = snapshot.summary().get if snapshot else lambda _: None
    files, size = (int(total(key) or 0) for key in ("total-data-files", "total-files-size"))
    return Size(files, size, int(table.loaded.snapshots().size()))


def _tables(catalog: Catalog, settings: Settings, names: Sequence[str]) -> Iterator[str]:
    """Tables of the lake, or of streams. Tables of a rebuild that goes on are left out."""
    wanted = {table for stream in names for table in _of_stream(settings, stream)}
    for namespace in NAMESPACES:
        if catalog.namespace_exists(namespace):
            for _, name in sorted(catalog.list_tables(namespace)):
                if REBUILDING not in name and (not names or f"{namespace}.{name}" in wanted):
                    yield f"{namespace}.{name}"


def _of_stream(settings: Settings, stream: str) -> Iterator[str]:
    """Names of the tables that a stream has, or may have."""
    load_contract(settings.contracts, stream)
    yield from astuple(stream_tables(stream))
    yield from astuple(silver_tables(stream))
    for product in names_of_kind(settings.gold, [stream], Kind.WINDOWS):
        yield gold_table(product)
    for product in names_of_kind(settings.gold, [stream], Kind.SAMPLES):
        samples = load_samples(settings.gold, product, lambda name: load_contract(settings.contracts, name))
        yield from astuple(samples_tables(product, samples.anomalies))


def as_json(done: Sequence[Maintained]) -> str:
    """What was done, for programs."""
    return json.dumps([asdict(each) for each in done], indent=2)


def lines(done: Sequence[Maintained], *, dry_run: bool) -> Iterator[str]:
    """What was done, for people."""
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
        if each.problem:
            yield f"  {each.problem}"
    if dry_run:
        yield "Nothing was changed."


def _seconds(compacted: Compacted) -> tuple[float, float]:
    return compacted.before.seconds, compacted.after.seconds


def _count(number: int) -> str:
    return f"{number:,}"


def _change(pair: tuple[int, int], text: Callable[[int], str]) -> str:
    before, after = map(text, pair)
    return before if before == after else f"{before} → {after}"
