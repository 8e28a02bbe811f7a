"""Erasure: a person is removed from all tables of a stream, from its landed files and from all snapshots.

The account is written first, so that an interrupted erasure is known, and finished by the same command. Then rows are
removed from bronze and the dead letters, later tables are filled again, landed files, snapshots and folders are
removed, and all remaining files are searched. Only then is the erasure complete.
"""

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pydantic import SecretStr
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from consumer.asked import Asked, asked_to_run
from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.expire import expire, expiring
from consumer.iceberg.jvm import first_cause
from consumer.iceberg.newest import standing
from consumer.iceberg.remove import removal_errors, remove
from consumer.iceberg.rewrite import drop_branches
from consumer.layers.base import take
from consumer.layers.rebuild import drop_begun, exists, rebuild
from consumer.layers.registry import layers_of
from consumer.layers.sinks.files import FileSink
from consumer.layers.sinks.topic import sink_name
from consumer.maintenance.folders import (
    OF_NO_TABLE,
    Folders,
    abandoned,
    folders_of,
    is_named,
    orphans,
    remove_folder,
    remove_local,
    sharing,
    unrecognized,
    why_left,
)
from consumer.maintenance.maintain import LEASE, prepare
from consumer.removal.account import Account, Entry, Key, new_request, read_account, write_account
from consumer.removal.condition import Condition
from consumer.removal.retain import NEEDED, archive_of, remove_files, retain, sources_in
from consumer.removal.search import Match, find_rows, is_in_file
from consumer.removal.topics import InTopic, forget_in_topic
from lakeproof.catalog import catalog_errors, open_catalog, table_or_none
from lakeproof.checkpoint import bronze_query
from lakeproof.clocks import ClockError
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.gold.product_file import load_products
from lakeproof.holds import named, references
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.kafka.topic import NoTopicError
from lakeproof.landing.root import archives_of
from lakeproof.landing.zone import LandingZone, landing_zone, zone_at
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import QueryState, alerts_lease, lease, state_of
from lakeproof.state.sink_positions import SinkPositions
from lakeproof.storage import Storage, StoredFile, open_storage
from lakeproof.storage.errors import FileAbsentError
from lakeproof.tables.names import POSITION, SOURCE, Removal, StreamTables, gold_table, silver_tables, stream_tables
from lakeproof.tables.of_stream import tables_of_stream
from lakeproof.wording import count_of

log = structlog.get_logger()

INCOMPLETE = 6
"""Exit code of an incomplete erasure."""
_QUERY = "erasure"
_KEPT_BY_PROPERTY = "its snapshots stay, since its property gc.enabled is false. Set it to true."
_AT_ONCE = 4  # files that are searched in parallel
_TOPIC = "kafka:"
_METADATA = ".metadata.json"
_KEY_OF = {SOURCE: f"row.{SOURCE}", POSITION: f"row.{POSITION}"}


@dataclass
class Erased:
    """The result of an erasure of a stream, or of its dry run: the certificate."""

    stream: str
    request: str | None
    keyed_hash: str | None
    begun_at: datetime
    versions: Mapping[str, str]
    completed_at: datetime | None = None
    earlier: list[str] = field(default_factory=list)
    """Ids of earlier erasures with this condition."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of removed rows, by table."""
    batches: int = 0
    """Number of dead letters that are whole batches, which may also have records of other people."""
    snapshots: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """Current snapshot of each table before and after."""
    rebuilt: list[str] = field(default_factory=list)
    """Tables that were filled again from bronze or silver."""
    landed_files: int = 0
    """Number of removed landed files."""
    archived_files: int = 0
    published_files: int = 0
    """Number of Parquet files of sinks that were removed, and written again from the rebuilt tables."""
    topics: dict[str, InTopic] = field(default_factory=dict)
    """Matches in the topics of sinks and in the topic that the stream reads."""
    folders: list[str] = field(default_factory=list)
    """Folders of replaced tables that were removed."""
    searched: dict[str, int] = field(default_factory=dict)
    """Number of files that were searched without a match, by place."""
    found_in: list[str] = field(default_factory=list)
    """Files that still match the condition."""
    remains: list[str] = field(default_factory=list)
    """What prevents the erasure from being complete, and how to resolve it."""
    elsewhere: list[str] = field(default_factory=list)
    """Places outside this lake that may have copies, and how these disappear."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return not self.remains and not self.found_in


def erase(
    settings: Settings,
    stream: str,
    condition: Condition,
    start: Callable[[], SparkSession],
    *,
    dry_run: bool = False,
    keep_landed: bool = False,
    in_source: bool = False,
) -> Erased:
    """Remove a person's data from the tables and files of a stream whose consumer is stopped."""
    key = settings.erasure.key
    if key is None and not dry_run:
        raise UsageError(
            "LAKE_ERASURE_KEY is not set: an erasure records a hash of its condition with this key.",
            "Make one and keep it: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    with lease(settings.state.database, stream), lease(settings.state.database, LEASE):
        return _Erasure(settings, stream, condition, start).run(
            key, dry_run=dry_run, keep_landed=keep_landed, in_source=in_source
        )


class _Erasure:
    def __init__(
        self, settings: Settings, stream: str, condition: Condition, start: Callable[[], SparkSession]
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._condition = condition
        self._contract: Contract = load_contract(settings.contracts, stream)
        self._names: StreamTables = stream_tables(stream)
        self._catalog: Catalog = open_catalog(settings)
        self._start = start
        self._replaced: set[str] = set()  # folders of tables before they were filled again
        self._clean: set[tuple[str, str]] = set()  # files that were searched without a match, by URI and tag
        packages = ("lakeproof", "pyiceberg", "pyspark")
        self._done = Erased(stream, None, None, datetime.now(UTC), {each: version(each) for each in packages})

    def run(self, key: SecretStr | None, *, dry_run: bool, keep_landed: bool, in_source: bool) -> Erased:
        done, names = self._done, self._names
        with catalog_errors():
            if not self._catalog.table_exists(names.ledger):
                raise UsageError(f"{self._stream} has no tables yet.", f"Run `consumer run {self._stream}` first.")
            found = standing(self._catalog, names, bronze_query(self._stream), lambda _: True)
        if (found.unfinished or found.is_replaying) and not dry_run:
            # An interrupted run is finished from the rows in the tables: an erased row would be missing in the ledger.
            raise UsageError(
                f"The last run of {self._stream}, or a replay, was interrupted: the ledger lacks what it has begun.",
                f"Run `consumer run {self._stream} --available-now` first, then this again.",
            )
        if self._contract.silver and not ContractLog(self._settings.state.database).current(self._stream):
            raise UsageError(
                f"The landing log has no contract of {self._stream}, without which silver cannot be filled again.",
                "Set LAKE_LANDING_LOG_URI to its address, or restore its database. Nothing was removed.",
            )
        account = read_account(self._catalog, self._stream)
        done.keyed_hash = self._condition.keyed_hash(key) if key else None
        known = account.of(done.keyed_hash) if done.keyed_hash else []
        unfinished = [request for request in known if request not in account.complete]
        done.earlier = [request for request in known if request in account.complete]
        spark = self._start()
        prepare(spark)
        matches = find_rows(spark, self._catalog, names, self._contract, self._condition)
        done.rows = dict(Counter(each.entry.table for each in matches))
        done.batches = sum(each.is_batch for each in matches)
        if dry_run:
            return done
        if not matches and not unfinished:
            self._forget_examples(set())  # of a paused micro-batch, which no table has
            self._remove_landed(set(), keep_landed, in_source)
            if self._is_in({*astuple(names)}):  # older snapshots have expired rows
                self._forget(spark, {names.attempts})
            self._remove_replaced()
            self._forget_in_topics(in_source=in_source)
            self._search(keep_landed=keep_landed)
            self._name_elsewhere()
            return done
        done.request = unfinished[-1] if unfinished else new_request()
        new = [each.entry for each in matches if each.entry.key not in account.entries.get(each.entry.table, {})]
        if new:
            self._account(spark, Removal.ERASED, new)
        entries = _to_remove(account, matches)
        done.rows = {table: len(found) for table, found in entries.items()}
        done.snapshots = {name: {"before": at} for name, at in self._snapshots().items()}
        follow = tables_of_stream(self._settings, self._stream).keys() - {*astuple(names)}
        if matches or not set(unfinished) <= account.rebuilt or self._is_in(follow):
            self._remove_rows(spark, entries)
            if entries.get(names.bronze):
                self._rebuild(spark)
            self._account(spark, Removal.REBUILT, [])
        self._forget_examples({(each.source, each.position) for found in entries.values() for each in found})
        self._remove_landed({each.source for found in entries.values() for each in found}, keep_landed, in_source)
        self._forget(spark, entries)
        self._remove_replaced()
        self._forget_in_topics(in_source=in_source)
        for name, at in self._snapshots().items():
            done.snapshots.setdefault(name, {"before": None})["after"] = at
        self._search(keep_landed=keep_landed)
        self._name_elsewhere()
        if done.is_complete:
            done.completed_at = datetime.now(UTC)
            for request in {*unfinished, done.request}:
                self._account(spark, Removal.COMPLETE, [], request)
        log.info("erased", stream=self._stream, request=done.request, rows=done.rows, complete=done.is_complete)
        return done

    def _account(
        self, spark: SparkSession, what: Removal, entries: Sequence[Entry], request: str | None = None
    ) -> None:
        request = request or str(self._done.request)
        keyed = self._done.keyed_hash
        write_account(spark, self._settings, self._catalog, self._stream, request, what, entries, keyed)

    def _remove_rows(self, spark: SparkSession, entries: Mapping[str, Sequence[Entry]]) -> None:
        names = self._names
        for name, on, kinds in (
            (names.attempts, _KEY_OF | {"_letter": "row._letter", "_attempt": "row._attempt"}, "int"),
            (names.dead_letters, _KEY_OF | {"_letter": "coalesce(row._attempt, 1)"}, "int"),
            (names.bronze, _KEY_OF, ""),
        ):
            if not entries.get(name):
                continue
            columns = [each for each in on if each not in _KEY_OF]
            schema = ", ".join([f"{SOURCE} string", f"{POSITION} long", *(f"{each} {kinds}" for each in columns)])
            values = {"_letter": lambda entry: entry.letter, "_attempt": lambda entry: entry.attempt}
            rows = [
                (each.source, each.position, *(values[column](each) for column in columns)) for each in entries[name]
            ]
            self._remove_from(open_table(spark, name, _QUERY), spark.createDataFrame(rows, schema), on)

    def _remove_from(self, table: OpenTable, keys: Any, on: Mapping[str, str]) -> None:
        with removal_errors(table.name, "Run the command again, to finish the erasure."):
            remove(table, keys, on, str(self._done.request))

    def _rebuild(self, spark: SparkSession) -> None:
        """Fill silver and gold again, as if the rows had never landed."""
        settings, catalog = self._settings, self._catalog
        if not self._contract.silver:
            return
        asked = asked_to_run(settings, [self._stream], None)
        with catalog_errors():
            # Silver first, then the layers that follow it: the order of the layers.
            layers = [each for each in layers_of(asked) if each.tables and exists(catalog, each)]
        if not any(silver_tables(self._stream).kept in each.tables for each in layers):
            return
        for layer in layers:
            with lease(settings.state.database, layer.lease_name), catalog_errors():
                drop_begun(catalog, layer)
                found = (table_or_none(catalog, name) for name in layer.tables)
                self._replaced |= {table.location() for table in found if table}
            rebuild(settings, layer, lambda: spark)
            self._done.rebuilt += layer.tables
        for sink in FileSink.asked(asked):
            with lease(settings.state.database, sink.lease_name) as held:
                self._done.published_files += sink.clear()
                with catalog_errors():
                    is_filled = all(catalog.table_exists(name) for name in sink.reads)  # a new product has no table yet
                while is_filled and take(sink, spark, held):  # also after a killed erasure that removed the files
                    pass
        index = Path(settings.silver.index)
        for folder in [index / self._stream, *index.glob(f"{self._stream}.*")]:
            remove_local(folder)

    def _forget_examples(self, places: Container[tuple[str, int]]) -> None:
        """Remove examples of bad units that the breaker has noted."""
        BreakerLog(self._settings.state.database, self._stream).forget_examples(
            lambda each: (each["source"], each["position"]) in places or self._condition.is_in_values(each.items())
        )

    def _remove_landed(self, sources: set[str], keep_landed: bool, in_source: bool) -> None:
        """Remove landed files with erased data, as retention does, or note why they are kept.

        These are the files of erased rows, and files with values that the contract discards: no table has them.
        """
        settings, done = self._settings, self._done
        if recorded_topic(self._ledger_properties()):
            return
        zone = landing_zone(settings, self._stream, self._ledger_properties())
        for archive in self._archives():
            found = {archive.name_of(uri) for uri in self._with_it(archive.storage.read, archive.storage.list())}
            done.archived_files += remove_files(archive, sources | found)
        if keep_landed or (zone.is_own and not in_source):
            return  # the search reports them
        found = {zone.name_of(uri) for uri in self._with_it(zone.storage.read, self._landed(zone))}
        if not sources | found:
            return
        kept = retain(settings, self._stream, timedelta(0), in_source=in_source, only=sources | found)
        done.landed_files = kept.removed
        for why, count in kept.kept.items():
            hint = f" Run `consumer replay {self._stream}` first." if why == NEEDED else ""
            done.remains.append(f"{count_of(count, 'landed file')} could not be removed: {why}.{hint}")

    def _landed(self, zone: LandingZone) -> list[StoredFile]:
        """Return the files that the stream reads, or has read: others below its own address are not ours."""
        listed = dict(zone.list())
        others = {name for name, file in listed.items() if zone.is_own and zone.ignores(name, file)}
        with catalog_errors():
            others -= sources_in(self._catalog.load_table(self._names.ledger), others).keys()
        note = f"{count_of(len(others), 'file')} below {zone.root} that the stream does not read: not searched."
        if others and note not in self._done.elsewhere:
            self._done.elsewhere.append(note)
        return [file for name, file in listed.items() if name not in others]

    def _archives(self) -> list[LandingZone]:
        """Return the archives that retention has ever copied files of the stream to, and that of the contract."""
        found = [zone_at(root, self._settings.s3) for root in archives_of(self._ledger_properties())]
        retention = self._contract.retention
        of_contract = archive_of(self._settings, self._stream, retention.archive if retention else None)
        return found + [each for each in (of_contract,) if each and each not in found]

    def _forget(self, spark: SparkSession, entries: Container[str]) -> None:
        """Remove all older snapshots of the tables, and files that no snapshot needs."""
        done = self._done
        existing = self._existing()
        shared = sharing(self._folders)
        # The tables behind bronze were filled again, and the ledgers have no values.
        for name in (self._names.bronze, self._names.dead_letters, self._names.attempts):
            if name not in existing or (name == self._names.attempts and name not in entries):
                continue
            try:
                self._forget_in(open_table(spark, name, _QUERY), shared(name))
            except (Py4JError, PySparkException, ClockError) as error:
                done.remains.append(f"{name}: its snapshots could not be expired: {first_cause(error)}")

    @cached_property
    def _folders(self) -> Folders:
        """Return the folders of all tables after the rebuild."""
        with catalog_errors():
            return folders_of(self._settings, self._catalog)

    def _existing(self) -> list[str]:
        """Return the names of the stream's tables that exist."""
        with catalog_errors():
            return [name for name in tables_of_stream(self._settings, self._stream) if self._catalog.table_exists(name)]

    def _remove_replaced(self) -> None:
        """Remove the folders of replaced tables."""
        done, settings = self._done, self._settings
        own = {*astuple(self._names)}  # never replaced by a rebuild
        existing = [name for name in self._existing() if name not in own]
        with catalog_errors():
            locations = {name: self._catalog.load_table(name).location() for name in existing}
        for uri in abandoned(settings, self._folders, locations, self._replaced):
            if why := why_left(settings, uri):
                done.remains.append(f"{uri}, a folder of a replaced table: {why}")
                continue
            try:
                remove_folder(uri, settings)
            except UnavailableError as error:
                done.remains.append(f"{uri}, a folder of a replaced table: {error.message}")
                continue
            done.folders.append(uri)

    def _forget_in(self, table: OpenTable, shared: Sequence[str]) -> None:
        done = self._done
        if table.property("gc.enabled") == "false":
            done.remains.append(f"{table.name}: {_KEPT_BY_PROPERTY}")
            return
        drop_branches(table)  # of a maintenance or an erasure that was killed: this one holds their leases
        limit = datetime.now(UTC) + timedelta(seconds=1)
        expire(table, limit)
        current = table.loaded.currentSnapshot()
        kept = [
            each for each in references(table.metadata()) if current is None or each.snapshot_id != current.snapshotId()
        ]
        if kept:
            ends = ", ".join(named(kept))
            done.remains.append(f"{table.name}: older snapshots are kept by {ends}. Drop it, or run this again then.")
        elif expiring(table, limit):
            done.remains.append(f"{table.name}: older snapshots are left.")
        if shared:
            others = ", ".join(shared)
            done.remains.append(f"{table.name}: files of {others} are in its folder, so no orphan file is removed.")
            return
        with catalog_errors():
            loaded = self._catalog.load_table(table.name)
            storage = open_storage(loaded.location(), self._settings.s3)
            for uri in orphans(self._settings, loaded):
                storage.remove(uri)

    def _forget_in_topics(self, *, in_source: bool) -> None:
        """Send tombstones to compacted topics, and note the matches in other topics."""
        settings, done = self._settings, self._done
        recorded, asked = recorded_topic(self._ledger_properties()), asked_to_run(settings, [self._stream], None)
        sent = self._sent(asked)
        for name in sorted(sent | _to_send(asked) | ({recorded.topic} if recorded else set())):
            is_read = recorded is not None and name == recorded.topic
            try:
                found = forget_in_topic(settings.kafka, name, self._condition, is_ours=in_source or not is_read)
            except LakeproofError as error:
                # Not for a topic that is gone, or that nothing was sent to: there may be no brokers at all.
                is_left = name in sent and not isinstance(error, NoTopicError)
                (done.remains if is_left else done.elsewhere).append(
                    f"The topic {name} could not be searched: {error.message}"
                )
                continue
            done.topics[name] = found
            if found.messages:
                done.elsewhere.append(f"The topic {name}{' that the stream reads' * is_read}: {found}")

    def _sent(self, asked: Asked) -> set[str]:
        """Return the topics that tables or alerts of the stream, or of no stream here, were ever sent to."""
        database = self._settings.state.database
        positions = SinkPositions(database)
        of_others = self._known_tables - tables_of_stream(self._settings, self._stream).keys()
        names = positions.tables() - of_others  # also of products whose file and table are gone
        sent = {sink.removeprefix(sink_name(name, "")) for name in names for sink in positions.sinks_of(name)}
        have_run = (
            each for each in asked.samples if state_of(database, alerts_lease(each.name)) is not QueryState.NEVER
        )
        return sent | {each.alerts.topic for each in have_run if each.alerts}

    def _search(self, *, keep_landed: bool) -> None:
        """Search all files of the tables, and the published, landed and archived files."""
        done, settings = self._done, self._settings
        existing = self._existing()
        with catalog_errors():
            places = {name: self._catalog.load_table(name).location() for name in existing}
        for name, location in places.items():
            storage = open_storage(location, settings.s3)
            self._search_in(name, storage.read, _values_of(storage))
        for name, location in self._of_no_product().items():
            storage = open_storage(location, settings.s3)
            if self._search_in(name, storage.read, _values_of(storage)):
                done.remains.append(
                    f"{name}: no contract or data product here is for it. Restore its file, or erase where it is "
                    "filled; if nothing fills it, drop it with PURGE. Then run this again."
                )
        behind = {name: at for name, at in places.items() if name not in {*astuple(self._names)}}
        for uri in self._unrecognized(behind):
            storage = open_storage(uri, settings.s3)
            if self._search_in(uri, storage.read, _values_of(storage)):
                done.remains.append(f"{uri}: {OF_NO_TABLE}")
        published = zone_at(settings.sinks.files, settings.s3)
        for product, files in self._published(published).items():
            if found := self._search_in(f"published files of {product}", published.storage.read, files):
                done.remains.append(f"{count_of(found, 'file')} of a former sink of {product}: remove them.")
        if recorded_topic(self._ledger_properties()):
            return
        recorded = archives_of(self._ledger_properties())
        for archive in self._archives():
            self._search_in(f"archive {archive.root}", archive.storage.read, archive.storage.list())
            if archive.root in recorded and not archive.is_there():
                done.remains.append(
                    f"The archive {archive.root} does not exist: mount its disk, or create the folder if it is gone."
                )
        zone = landing_zone(settings, self._stream, self._ledger_properties())
        if found := self._search_in(f"landing zone {zone.root}", zone.storage.read, self._landed(zone)):
            retention = self._contract.retention
            after = f", or retention takes them after {retention.landed}" if retention and retention.landed else ""
            how = "with --in-source" if zone.is_own else "once they are read"
            how = "without --keep-landed" if keep_landed else how
            done.remains.append(f"{count_of(found, 'landed file')} stay: run this again {how}{after}.")

    def _unrecognized(self, locations: Mapping[str, str]) -> list[str]:
        """Return folders that may be of replaced tables, where the server does not name folders after tables."""
        if all(is_named(name, location) for name, location in locations.items()):
            return []
        with catalog_errors():
            return unrecognized(self._settings, self._folders, locations)

    def _published(self, place: LandingZone) -> dict[str, list[StoredFile]]:
        """Return the published files of the stream's products, and of products whose file is gone."""
        own = [each.name for each in load_products(self._settings.gold, [self._stream], lambda _: self._contract)]
        known = self._known_tables
        found: dict[str, list[StoredFile]] = {product: [] for product in own}
        for name, file in place.list():
            product = name.partition("/")[0]
            if product in own or gold_table(product) not in known:
                found.setdefault(product, []).append(file)
        return found

    @cached_property
    def _known_tables(self) -> set[str]:
        """Return the tables of all streams here."""
        known: set[str] = set()
        for path in self._settings.contracts.glob("*.yaml"):
            with suppress(LakeproofError):  # its tables are searched, as if the file were gone
                known |= tables_of_stream(self._settings, path.stem).keys()
        return known

    def _of_no_product(self) -> dict[str, str]:
        """Return tables of silver and gold that no rebuild fills again, since their file is gone; by name, where."""
        known = self._known_tables
        with catalog_errors():
            layers = [each for each in ("silver", "gold") if self._catalog.namespace_exists(each)]
            found = {".".join(each): each for layer in layers for each in self._catalog.list_tables(layer)}
            return {
                name: self._catalog.load_table(each).location() for name, each in found.items() if name not in known
            }

    def _is_in(self, names: Iterable[str]) -> bool:
        """Return whether files of tables match the condition."""
        with catalog_errors():
            found = [self._catalog.load_table(name).location() for name in names if self._catalog.table_exists(name)]
        storages = [open_storage(each, self._settings.s3) for each in found]
        return any(self._with_it(each.read, _values_of(each)) for each in storages)

    def _search_in(self, place: str, read: Callable[[str], bytes], files: Iterable[StoredFile]) -> int:
        """Search files; return the number of matches."""
        listed = list(files)
        found = self._with_it(read, listed)
        self._done.found_in += found
        self._done.searched[place] = len(listed) - len(found)
        return len(found)

    def _with_it(self, read: Callable[[str], bytes], files: Iterable[StoredFile]) -> list[str]:
        """Return the URIs of files that match the condition."""

        def look(file: StoredFile) -> str | None:
            if (file.uri, file.etag) in self._clean:
                return None
            try:
                if is_in_file(self._condition, read(file.uri)):
                    return file.uri
            except FileAbsentError:
                return None
            self._clean.add((file.uri, file.etag))
            return None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [each for each in pool.map(look, files) if each]

    def _name_elsewhere(self) -> None:
        """Note where there may be copies that an erasure does not reach."""
        done = self._done
        done.elsewhere.append("Copies of the bucket, and backups with `lakeproof backup`, whose tags are named above.")
        done.elsewhere.append("Logs of the consumer, which have the first bytes of some bad units.")

    def _snapshots(self) -> dict[str, int | None]:
        found = {}
        for name in self._existing():
            with catalog_errors():
                snapshot = self._catalog.load_table(name).current_snapshot()
            found[name] = snapshot.snapshot_id if snapshot else None
        return found

    def _ledger_properties(self) -> Mapping[str, str]:
        with catalog_errors():
            return self._catalog.load_table(self._names.ledger).properties


def _to_send(asked: Asked) -> set[str]:
    """Return the topics that tables or alerts of a stream will be sent to."""
    alerts = {each.alerts.topic for each in asked.samples if each.alerts}
    writes = (place for layer in layers_of(asked) for place in layer.writes)
    return alerts | {place.removeprefix(_TOPIC) for place in writes if place.startswith(_TOPIC)}


def _values_of(storage: Storage) -> Iterator[StoredFile]:
    """Yield the files of a table with values: metadata has sizes and counts, which may look like a person's number."""
    return (file for file in storage.list() if not file.uri.endswith(_METADATA))


def _to_remove(account: Account, matches: Sequence[Match]) -> dict[str, list[Entry]]:
    """Return the rows to remove, by table: those found, and those of unfinished erasures in the account."""
    found: dict[str, dict[Key, Entry]] = {}
    unfinished = set(account.unfinished)
    left = (each for entries in account.entries.values() for each in entries.values() if each.request in unfinished)
    for entry in (*left, *(each.entry for each in matches)):
        found.setdefault(entry.table, {})[entry.key] = entry
    return {table: list(entries.values()) for table, entries in found.items()}


def as_json(done: Erased) -> str:
    """Return the certificate as JSON."""
    return json.dumps({**asdict(done), "complete": done.is_complete}, indent=2, default=str)


def lines(done: Erased, *, dry_run: bool) -> Iterator[str]:
    """Yield the results as lines for people."""
    would = "would be " if dry_run else ""
    if not any(done.rows.values()) and not done.request:
        yield f"{done.stream}: no row of the tables meets the condition."
    for request in done.earlier:
        yield f"  It was erased before, by {request}."
    for table, count in done.rows.items():
        yield f"{table}: {count_of(count, 'row')} {would}removed."
    if done.batches:
        yield (
            f"  {count_of(done.batches, 'dead letter')} of these cannot be read as a record, and may have records of "
            f"others: `consumer replay {done.stream} --salvage` takes what can be read first."
        )
    if dry_run:
        yield "Nothing was changed."
        return
    if done.rebuilt:
        yield f"Filled again: {', '.join(done.rebuilt)}."
    if done.landed_files or done.archived_files:
        yield f"Landed files removed: {done.landed_files:,}; of the archive: {done.archived_files:,}."
    if done.published_files:
        yield f"Published files written again: {done.published_files:,}."
    yield f"{count_of(sum(done.searched.values()), 'file')} were searched, and have nothing of it."
    for uri in done.found_in[:20]:
        yield f"  Still in {uri}"
    for each in done.remains:
        yield f"  Not complete: {each}"
    for each in done.elsewhere:
        yield f"  Elsewhere: {each}"
    if done.request:
        yield f"The erasure {done.request} is {'complete' if done.is_complete else 'not complete'}."
