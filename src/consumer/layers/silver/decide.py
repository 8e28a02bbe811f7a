"""A silver micro-batch decides micro-batches of bronze, then appends to conflicts, late, ledger and silver, in order.

Silver is committed last, and is unchanged until then. So an interrupted micro-batch is decided again in the same way,
and tables that already have it are skipped. Once silver is committed, the micro-batch is complete.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.data_files import Target
from consumer.iceberg.marker import Committed, Marker, MarkerLostError
from consumer.iceberg.scan import Scan, parts_of
from consumer.iceberg.tasks import write_batches
from consumer.layers.base import Append, Commits, Layer, OldRulesError
from consumer.layers.silver.compared import announce, bronze_scan, compared, kept_scan, with_keys
from consumer.layers.silver.progress import Bronze, Counts, Range, bronze_of, next_range, range_of
from consumer.layers.silver.shuffle import decide_in_tasks, parts_to_decide, survey
from consumer.layers.silver.state import KeptKeys, Silver
from consumer.layers.silver.tasks import Decided, DecidedRows, Decision, parts_decided, write_decided
from consumer.layers.silver.verdicts import COMPARED, KEY, Micros, Verdict, decide, watermarks
from consumer.layers.upstream import contract_of_silver, rebuild_silver_hint
from consumer.row_hashes import signed
from consumer.scope import Scope
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract, SilverStrategy
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import silver_lease
from lakeproof.tables.names import (
    CONTRACT_VERSION,
    DECIDED_AT,
    HASH_KIND,
    HASH_OF,
    SilverTables,
    silver_query,
    silver_tables,
    stream_tables,
)
from lakeproof.tables.schemas import CONTENT_HASH_KIND, ensure_silver_tables

_HASHED = (Verdict.KEPT, Verdict.CONFLICT, Verdict.LATE)  # verdicts whose rows are in a table

_MICROSECOND = timedelta(microseconds=1)
_LEDGER_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("source", pa.string()),
    ("micro_batch_id", pa.int64()),
    ("bronze", pa.int64()),
    *((str(verdict), pa.int64()) for verdict in Verdict),
    *((f"{verdict}{HASH_OF}", pa.int64()) for verdict in _HASHED),
    (DECIDED_AT, pa.timestamp("us", tz="UTC")),
    (CONTRACT_VERSION, pa.string()),
]


@dataclass(frozen=True)
class _Work:
    """The work of a micro-batch: the range to decide, and the tables to fill."""

    catalog: Catalog
    kept: OpenTable
    conflicts: OpenTable
    taken: Range
    contract: Contract
    marker: Marker
    watermark: Micros | None


_Targets = Mapping[Verdict, Target | None]
_Outcome = tuple[dict[int, Micros], DecidedRows]
"""The greatest event time of each micro-batch, and the rows written."""


class SilverLayer(Layer[_Work]):
    """Decides the rows of bronze that silver has not decided yet."""

    event = "silver micro-batch"
    resumes = True

    def __init__(self, settings: Settings, contract: Contract, names: SilverTables) -> None:
        self._settings = settings
        self._declared = contract
        self._names = names
        self._contracts = ContractLog(settings.state.database)
        self._state = KeptKeys(settings, contract.stream)
        self.stream = contract.stream
        self.name = silver_query(self.stream)
        self.lease_name = silver_lease(self.stream)
        self.follows = bronze_query(self.stream)
        self.remedy = rebuild_silver_hint(self.stream)
        self.tables = (names.conflicts, names.late, names.ledger, names.kept)
        self.source = stream_tables(self.stream).bronze

    @classmethod
    def in_scope(cls, scope: Scope) -> "Iterable[SilverLayer]":
        """Return a layer for each stream with silver."""
        return [cls(scope.settings, scope.contracts[stream], silver_tables(stream)) for stream in scope.silver]

    def beside(self, suffix: str) -> "SilverLayer":
        """Return the same layer over tables whose names have a suffix."""
        return SilverLayer(self._settings, self._declared, silver_tables(self.stream, suffix))

    def prepare(self, catalog: Catalog) -> None:
        """Create missing tables."""
        ensure_silver_tables(catalog, self._declared, self._names)
        merges = _strategy(self._declared) is SilverStrategy.MERGE
        announce(catalog, self._declared, self._names.kept if merges else None)

    def next(self, spark: SparkSession) -> _Work | None:
        """Find the next range of bronze's micro-batches."""
        kept, conflicts = self._open(spark, self._names.kept), self._open(spark, self._names.conflicts)
        done, begun = kept.newest(), conflicts.newest()
        if done and kept.property(HASH_KIND) != CONTENT_HASH_KIND:
            raise OldRulesError(
                f"{kept.name} was filled by another version of lakeproof, whose content hashes differ.",
                rebuild_silver_hint(self.stream),
            )
        with catalog_errors():
            catalog = open_catalog(self._settings)
            bronze = bronze_of(catalog, self.stream)
            taken, contract = self._next(bronze, done, begun)
        self.has_backlog = taken is not None and taken.end < bronze.end
        if taken is None:
            return None
        if begun is None or begun.marker.contract != contract.digest:
            with catalog_errors():  # a contract that was applied meanwhile may have new fields
                ensure_silver_tables(catalog, contract, self._names)
            for table in (kept, conflicts):
                table.loaded.refresh()
        watermark = int(done.marker.contents) if done and done.marker.contents else None
        marker = Marker(bronze.id, taken.end - 1, contract.digest, str(taken.start), str(taken.end))
        return _Work(catalog, kept, conflicts, taken, contract, marker, watermark)

    def close(self) -> None:
        """Release the key index, so that another one can be opened."""
        self._state.close()

    def _open(self, spark: SparkSession, name: str) -> OpenTable:
        return open_table(spark, name, self.name)

    def _next(self, bronze: Bronze, done: Committed | None, begun: Committed | None) -> tuple[Range | None, Contract]:
        """Return the range to decide and its contract: an interrupted range, or the next one."""
        start = int(done.marker.end) if done else 0
        newest = begun or done
        if newest and newest.marker.checkpoint_id != bronze.id:
            raise MarkerLostError(
                f"silver.{self.stream} was filled from tables of {self.stream} that were dropped since then."
            )
        if begun and not (done and begun.marker.holds_the_same(done.marker)):
            if int(begun.marker.start) != start:
                raise MarkerLostError(
                    f"silver.{self.stream} is at micro-batch {start}, but its conflicts begin one at "
                    f"{begun.marker.start}: they are from different points in time."
                )
            end = int(begun.marker.end)
            return range_of(bronze, start, end), self._contract(begun.marker.contract)
        if start > bronze.end:
            raise MarkerLostError(
                f"silver.{self.stream} is at micro-batch {start}, but bronze.{self.stream} only at {bronze.end}: "
                "bronze was restored from an older copy."
            )
        contract = self._contract(self._contracts.current(self.stream) or "")
        if done and done.marker.contract != contract.digest:
            _check_unchanged(self._contract(done.marker.contract), contract)
        max_rows = self._settings.silver.max_rows_per_micro_batch
        return next_range(bronze, start, bronze.end, max_rows), contract

    def compute(self, spark: SparkSession, work: _Work) -> Commits:
        """Decide a range; yield the commits of conflicts, late rows, the ledger and silver."""
        kept, conflicts, taken, contract, marker = work.kept, work.conflicts, work.taken, work.contract, work.marker
        watermark = work.watermark
        spark.sparkContext.setJobDescription(f"{self._names.kept}: micro-batches {taken.start} to {taken.end - 1}")
        late, ledger = self._open(spark, self._names.late), self._open(spark, self._names.ledger)
        of_verdicts = {Verdict.CONFLICT: conflicts, Verdict.LATE: late, Verdict.KEPT: kept}
        targets = {verdict: table.target(marker) for verdict, table in of_verdicts.items()}
        written = DecidedRows({verdict: [] for verdict in targets})
        if taken.rows:
            with catalog_errors():
                bronze = bronze_scan(work.catalog, contract, taken)
            is_large = sum(taken.rows.values()) > self._settings.silver.driver_rows
            in_tasks = is_large and _strategy(contract) is SilverStrategy.MERGE
            newest, written = (self._in_tasks if in_tasks else self._in_driver)(spark, work, bronze, targets)
            watermark = _newest(watermark, *newest.values())
        files, outcomes, sums = written.files, written.outcomes, written.sums
        self._check_complete(outcomes, taken.rows)
        marker = replace(marker, contents="" if watermark is None else str(watermark))
        yield Append(conflicts, marker, files[Verdict.CONFLICT])
        yield Append(late, marker, files[Verdict.LATE])
        target = ledger.target(marker)
        if target:
            counted = write_batches([_ledger_rows(outcomes, sums, contract)], target, self._settings.s3)
            yield Append(ledger, marker, counted.files)
        yield Append(kept, marker, files[Verdict.KEPT])
        totals = {str(verdict): 0 for verdict in Verdict}
        for (_, _, verdict), count in outcomes.items():
            totals[verdict] += count
        return {"stream": self.stream, "micro_batches": f"{taken.start} to {taken.end - 1}", **totals}

    def _in_driver(self, spark: SparkSession, work: _Work, bronze: Scan, targets: _Targets) -> _Outcome:
        """Decide rows of bronze in the driver, from inputs that tasks collect, and let tasks write the rows."""
        contract = work.contract
        parts = parts_of(spark, bronze)
        found = compared(spark, bronze, parts, contract)
        rows = pa.concat_tables([COMPARED.empty_table(), *found])
        rows = pa.concat_tables([rows, self._kept(spark, work, rows[KEY])])
        newest = watermarks(rows)
        decided = self._decided(work, newest, targets)
        lost = decide(rows, decided.horizons)
        written = write_decided(spark, bronze, parts_decided(parts, found, lost), decided)
        if _strategy(contract) is SilverStrategy.STATE:
            self._state.decided(work.taken, rows, lost)
        return newest, written

    def _in_tasks(self, spark: SparkSession, work: _Work, bronze: Scan, targets: _Targets) -> _Outcome:
        """Let tasks decide and write rows of bronze."""
        contract, oldest = work.contract, _horizon(work.watermark, work.contract)
        with catalog_errors():
            kept = kept_scan(work.catalog, contract, work.kept.name, work.taken.start, oldest)
        parts = parts_to_decide(spark, bronze)
        found = survey(spark, bronze, parts, contract, with_keys=bool(kept.files))
        decided = self._decided(work, found.newest, targets)
        return found.newest, decide_in_tasks(spark, parts, kept, found, oldest, decided)

    def _decided(self, work: _Work, newest: Mapping[int, Micros], targets: _Targets) -> Decided:
        horizons = _horizons(work.taken, newest, work.watermark, work.contract)
        return Decided(work.contract, horizons, targets, self._settings.s3, work.taken.of_topic)

    def _kept(self, spark: SparkSession, work: _Work, keys: Any) -> pa.Table:
        """Return the inputs of verdicts from silver's rows with the given keys."""
        contract, kept = work.contract, work.kept
        oldest = _horizon(work.watermark, contract)
        if _strategy(contract) is SilverStrategy.STATE:
            return self._state.find(Silver(spark, work.catalog, kept, contract, _length(contract), oldest), keys)
        if kept.newest() is None:
            return COMPARED.empty_table()
        with catalog_errors():
            scan = kept_scan(work.catalog, contract, kept.name, work.taken.start, oldest)
        return with_keys(spark, scan, contract, keys, oldest)

    def _check_complete(self, outcomes: Mapping[Decision, int], expected: Counts) -> None:
        """Check that bronze had every row that its ledger counted, and no other."""
        found: Counter[tuple[str, int]] = Counter()
        for (source, number, _), count in outcomes.items():
            found[source, number] += count
        if found != Counter(expected):
            source, number = min(key for key in {*found, *expected} if found[key] != expected.get(key, 0))
            raise LakeproofError(
                f"bronze.{self.stream} has {found[source, number]:,} rows of {source} in micro-batch {number}, but "
                f"its ledger counted {expected.get((source, number), 0):,}.",
                f"Run `reader verify {self.stream}`. If an erasure is unfinished, run it again. Otherwise "
                "restore bronze from a backup of the catalog.",
            )

    def _contract(self, digest: str) -> Contract:
        return contract_of_silver(self._contracts, digest, self._names.kept)


def _horizons(
    taken: Range, newest: Mapping[int, Micros], watermark: Micros | None, contract: Contract
) -> dict[int, Micros | None]:
    """Return the horizon of each micro-batch, from the event times before it."""
    found: dict[int, Micros | None] = {}
    for number in sorted({number for _, number in taken.rows}):
        found[number] = _horizon(watermark, contract)
        watermark = _newest(watermark, newest.get(number))
    return found


def _horizon(watermark: Micros | None, contract: Contract) -> Micros | None:
    """Return the horizon of a micro-batch, from the greatest event time before it."""
    length = _length(contract)
    return None if watermark is None or length is None else watermark - length


def _length(contract: Contract) -> Micros | None:
    """Return the length of the horizon; None if unbounded."""
    length = contract.silver.horizon if contract.silver else None
    return None if length is None else length // _MICROSECOND


def _strategy(contract: Contract) -> SilverStrategy:
    return contract.silver.strategy if contract.silver else SilverStrategy.MERGE


def _newest(*times: Micros | None) -> Micros | None:
    return max((time for time in times if time is not None), default=None)


def _check_unchanged(before: Contract, now: Contract) -> None:
    """Refuse a changed key, event time or horizon: existing rows were decided by the old ones."""

    def meaning(contract: Contract) -> tuple[object, ...]:
        return contract.primary_key, contract.event_time, contract.silver and contract.silver.horizon

    if meaning(before) != meaning(now):
        raise OldRulesError(
            f"silver.{now.stream} was filled under contract {before.version}, which has another primary key, event "
            f"time or horizon than {now.version}.",
            f"Restore them in the contract. Or: {rebuild_silver_hint(now.stream)}",
        )


def _ledger_rows(outcomes: Mapping[Decision, int], sums: Mapping[Decision, int], contract: Contract) -> pa.RecordBatch:
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for (source, number, verdict), count in outcomes.items():
        counts.setdefault((source, number), {str(each): 0 for each in Verdict})[verdict] += count
    shared = {DECIDED_AT: datetime.now(UTC), CONTRACT_VERSION: contract.version}
    rows = []
    for (source, number), by_verdict in sorted(counts.items()):
        hashes = {f"{each}{HASH_OF}": signed(sums.get((source, number, str(each)), 0)) for each in _HASHED}
        whole = {"source": source, "micro_batch_id": number, "bronze": sum(by_verdict.values())}
        rows.append(whole | by_verdict | hashes | shared)
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(_LEDGER_COLUMNS))
