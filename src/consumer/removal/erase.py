"""Erasure: a person is removed from all tables of a stream, from its landed files and from all snapshots.

The account is written first, so that an interrupted erasure is known, and finished by the same command. Then rows are
removed from bronze and the dead letters, later tables are filled again, landed files, snapshots and folders are
removed, and all remaining files are searched. Only then is the erasure complete.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pydantic import SecretStr
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

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
from consumer.maintenance.folders import (
    OF_NO_TABLE,
    abandoned,
    orphans,
    remove_folder,
    remove_local,
    sharing,
    why_left,
)
from consumer.maintenance.maintain import LEASE, prepare
from consumer.removal.account import Account, Entry, Key, new_request, read_account, write_account
from consumer.removal.certificate import Erased
from consumer.removal.condition import Condition
from consumer.removal.file_search import FileSearch
from consumer.removal.places import Places, files_with_values, topics_to_send
from consumer.removal.retain_files import NEEDED, remove_files, retain
from consumer.removal.search import Match, find_rows
from consumer.removal.topics import forget_in_topic
from consumer.scope import scope_of_run
from lakeproof.catalog import catalog_errors, table_or_none
from lakeproof.checkpoint import bronze_query
from lakeproof.clocks import ClockError
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.holds import named, references
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.kafka.topic import NoTopicError
from lakeproof.landing.root import archives_of
from lakeproof.landing.zone import LandingZone, landing_zone, zone_at
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import lease
from lakeproof.storage import StoredFile, open_storage
from lakeproof.tables.names import POSITION, SOURCE, Removal, silver_tables
from lakeproof.wording import count_of

log = structlog.get_logger()

_QUERY = "erasure"
_KEPT_BY_PROPERTY = "its snapshots stay, since its property gc.enabled is false. Set it to true."
_KEY_OF = {SOURCE: f"row.{SOURCE}", POSITION: f"row.{POSITION}"}


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
        self._places = Places(settings, stream)
        self._files = FileSearch(condition)
        self._start = start
        self._replaced: set[str] = set()  # folders of tables before they were filled again
        packages = ("lakeproof", "pyiceberg", "pyspark")
        self._done = Erased(stream, None, None, datetime.now(UTC), {each: version(each) for each in packages})

    def run(self, key: SecretStr | None, *, dry_run: bool, keep_landed: bool, in_source: bool) -> Erased:
        done, names = self._done, self._places.names
        with catalog_errors():
            if not self._places.catalog.table_exists(names.ledger):
                raise UsageError(f"{self._stream} has no tables yet.", f"Run `consumer run {self._stream}` first.")
            found = standing(self._places.catalog, names, bronze_query(self._stream), lambda _: True)
        if (found.unfinished or found.is_replaying) and not dry_run:
            # An interrupted run is finished from the rows in the tables: an erased row would be missing in the ledger.
            raise UsageError(
                f"The last run of {self._stream}, or a replay, was interrupted: the ledger lacks what it has begun.",
                f"Run `consumer run {self._stream} --available-now` first, then this again.",
            )
        if self._places.contract.silver and not ContractLog(self._settings.state.database).current(self._stream):
            raise UsageError(
                f"The landing log has no contract of {self._stream}, without which silver cannot be filled again.",
                "Set LAKE_LANDING_LOG_URI to its address, or restore its database. Nothing was removed.",
            )
        account = read_account(self._places.catalog, self._stream)
        done.keyed_hash = self._condition.keyed_hash(key) if key else None
        known = account.of(done.keyed_hash) if done.keyed_hash else []
        unfinished = [request for request in known if request not in account.complete]
        done.earlier = [request for request in known if request in account.complete]
        spark = self._start()
        prepare(spark)
        matches = find_rows(spark, self._places.catalog, names, self._places.contract, self._condition)
        done.rows = dict(Counter(each.entry.table for each in matches))
        done.batches = sum(each.is_batch for each in matches)
        if dry_run:
            return done
        if not matches and not unfinished:
            self._forget_examples(set())  # of a paused micro-batch, which no table has
            self._remove_landed(set(), keep_landed, in_source)
            if self._is_in(self._places.of_bronze):  # older snapshots have expired rows
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
        done.snapshots = {name: {"before": at} for name, at in self._places.snapshots().items()}
        follow = self._places.tables() - self._places.of_bronze
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
        for name, at in self._places.snapshots().items():
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
        write_account(spark, self._settings, self._places.catalog, self._stream, request, what, entries, keyed)

    def _remove_rows(self, spark: SparkSession, entries: Mapping[str, Sequence[Entry]]) -> None:
        names = self._places.names
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
        settings, catalog = self._settings, self._places.catalog
        if not self._places.contract.silver:
            return
        scope = scope_of_run(settings, [self._stream], None)
        with catalog_errors():
            # Silver first, then the layers that follow it: the order of the layers.
            layers = [each for each in layers_of(scope) if each.tables and exists(catalog, each)]
        if not any(silver_tables(self._stream).kept in each.tables for each in layers):
            return
        for layer in layers:
            with lease(settings.state.database, layer.lease_name), catalog_errors():
                drop_begun(catalog, layer)
                found = (table_or_none(catalog, name) for name in layer.tables)
                self._replaced |= {table.location() for table in found if table}
            rebuild(settings, layer, lambda: spark)
            self._done.rebuilt += layer.tables
        for sink in FileSink.in_scope(scope):
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
        if recorded_topic(self._places.ledger_properties()):
            return
        zone = landing_zone(settings, self._stream, self._places.ledger_properties())
        for archive in self._places.archives():
            found = {archive.name_of(uri) for uri in self._files.matches(archive.storage.read, archive.storage.list())}
            done.archived_files += remove_files(archive, sources | found)
        if keep_landed or (zone.is_own and not in_source):
            return  # the search reports them
        found = {zone.name_of(uri) for uri in self._files.matches(zone.storage.read, self._landed(zone))}
        if not sources | found:
            return
        kept = retain(settings, self._stream, timedelta(0), in_source=in_source, only=sources | found)
        done.landed_files = kept.removed
        for why, count in kept.kept.items():
            hint = f" Run `consumer replay {self._stream}` first." if why == NEEDED else ""
            done.remains.append(f"{count_of(count, 'landed file')} could not be removed: {why}.{hint}")

    def _landed(self, zone: LandingZone) -> list[StoredFile]:
        """Return the files that the stream reads, or has read, and note that there are others."""
        files, others = self._places.landed(zone)
        note = f"{count_of(others, 'file')} below {zone.root} that the stream does not read: not searched."
        if others and note not in self._done.elsewhere:
            self._done.elsewhere.append(note)
        return files

    def _forget(self, spark: SparkSession, entries: Container[str]) -> None:
        """Remove all older snapshots of the tables, and files that no snapshot needs."""
        done = self._done
        existing = self._places.existing()
        shared = sharing(self._places.folders)
        # The tables behind bronze were filled again, and the ledgers have no values.
        for name in (self._places.names.bronze, self._places.names.dead_letters, self._places.names.attempts):
            if name not in existing or (name == self._places.names.attempts and name not in entries):
                continue
            try:
                self._forget_in(open_table(spark, name, _QUERY), shared(name))
            except (Py4JError, PySparkException, ClockError) as error:
                done.remains.append(f"{name}: its snapshots could not be expired: {first_cause(error)}")

    def _remove_replaced(self) -> None:
        """Remove the folders of replaced tables."""
        done, settings = self._done, self._settings
        own = self._places.of_bronze  # never replaced by a rebuild
        locations = self._places.locations(name for name in self._places.existing() if name not in own)
        for uri in abandoned(settings, self._places.folders, locations, self._replaced):
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
            loaded = self._places.catalog.load_table(table.name)
            storage = open_storage(loaded.location(), self._settings.s3)
            for uri in orphans(self._settings, loaded):
                storage.remove(uri)

    def _forget_in_topics(self, *, in_source: bool) -> None:
        """Send tombstones to compacted topics, and note the matches in other topics."""
        settings, done = self._settings, self._done
        recorded, scope = recorded_topic(self._places.ledger_properties()), scope_of_run(settings, [self._stream], None)
        sent = self._places.sent_topics(scope)
        for name in sorted(sent | topics_to_send(scope) | ({recorded.topic} if recorded else set())):
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

    def _search(self, *, keep_landed: bool) -> None:
        """Search all files of the tables, and the published, landed and archived files."""
        done, settings = self._done, self._settings
        locations = self._places.locations(self._places.existing())
        for name, location in locations.items():
            storage = open_storage(location, settings.s3)
            self._search_in(name, storage.read, files_with_values(storage))
        for name, location in self._places.of_no_product().items():
            storage = open_storage(location, settings.s3)
            if self._search_in(name, storage.read, files_with_values(storage)):
                done.remains.append(
                    f"{name}: no contract or data product here is for it. Restore its file, or erase where it is "
                    "filled; if nothing fills it, drop it with PURGE. Then run this again."
                )
        behind = {name: at for name, at in locations.items() if name not in self._places.of_bronze}
        for uri in self._places.unrecognized(behind):
            storage = open_storage(uri, settings.s3)
            if self._search_in(uri, storage.read, files_with_values(storage)):
                done.remains.append(f"{uri}: {OF_NO_TABLE}")
        published = zone_at(settings.sinks.files, settings.s3)
        for product, files in self._places.published(published).items():
            if found := self._search_in(f"published files of {product}", published.storage.read, files):
                done.remains.append(f"{count_of(found, 'file')} of a former sink of {product}: remove them.")
        if recorded_topic(self._places.ledger_properties()):
            return
        recorded = archives_of(self._places.ledger_properties())
        for archive in self._places.archives():
            self._search_in(f"archive {archive.root}", archive.storage.read, archive.storage.list())
            if archive.root in recorded and not archive.is_there():
                done.remains.append(
                    f"The archive {archive.root} does not exist: mount its disk, or create the folder if it is gone."
                )
        zone = landing_zone(settings, self._stream, self._places.ledger_properties())
        if found := self._search_in(f"landing zone {zone.root}", zone.storage.read, self._landed(zone)):
            retention = self._places.contract.retention
            after = f", or retention takes them after {retention.landed}" if retention and retention.landed else ""
            how = "with --in-source" if zone.is_own else "once they are read"
            how = "without --keep-landed" if keep_landed else how
            done.remains.append(f"{count_of(found, 'landed file')} stay: run this again {how}{after}.")

    def _is_in(self, names: Iterable[str]) -> bool:
        """Return whether files of tables match the condition."""
        found = self._places.locations(name for name in names if self._places.catalog.table_exists(name))
        storages = [open_storage(each, self._settings.s3) for each in found.values()]
        return any(self._files.matches(each.read, files_with_values(each)) for each in storages)

    def _search_in(self, place: str, read: Callable[[str], bytes], files: Iterable[StoredFile]) -> int:
        """Search files; return the number of matches."""
        listed = list(files)
        found = self._files.matches(read, listed)
        self._done.found_in += found
        self._done.searched[place] = len(listed) - len(found)
        return len(found)

    def _name_elsewhere(self) -> None:
        """Note where there may be copies that an erasure does not reach."""
        done = self._done
        done.elsewhere.append("Copies of the bucket, and backups with `lakeproof backup`, whose tags are named above.")
        done.elsewhere.append("Logs of the consumer, which have the first bytes of some bad units.")


def _to_remove(account: Account, matches: Sequence[Match]) -> dict[str, list[Entry]]:
    """Return the rows to remove, by table: those found, and those of unfinished erasures in the account."""
    found: dict[str, dict[Key, Entry]] = {}
    unfinished = set(account.unfinished)
    left = (each for entries in account.entries.values() for each in entries.values() if each.request in unfinished)
    for entry in (*left, *(each.entry for each in matches)):
        found.setdefault(entry.table, {})[entry.key] = entry
    return {table: list(entries.values()) for table, entries in found.items()}
