"""A gold micro-batch: what silver has kept since the newest one, and each window that it touches, computed again.

The marker of the product's table says up to which micro-batch it follows silver. The rows behind that touch some
windows. Those are computed from all rows of silver that are in them, and replace the rows that the table has of them
in the commit that moves the marker. So a micro-batch that is tried again computes the same.

A product whose windows are final needs no correction: a window is computed once, after the horizon has passed its end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, append_once, open_table
from consumer.iceberg.data_files import Target
from consumer.iceberg.marker import Committed, Marker, MarkerLostError
from consumer.iceberg.scan import Scan, of_micro_batches, plan
from consumer.iceberg.tasks import Written
from consumer.iceberg.upsert import OldRows, upsert_once
from consumer.layers.contracts import recorded_contract
from consumer.layers.gold.columns import columns_of, micros
from consumer.layers.gold.sessions import Sessions, touched_sessions
from consumer.layers.gold.table import ensure_gold_table, rebuild_gold_hint
from consumer.layers.gold.tasks import Wanted, write_windows
from consumer.layers.gold.touched import Windows, old_rows, touched_windows, within
from consumer.layers.hints import decided_by_silver
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import Product, Publish
from lakeproof.gold.product_file import read_under
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease
from lakeproof.tables.columns import renamed_columns
from lakeproof.tables.names import gold_query, silver_query, silver_tables

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

_EARLIEST = -(1 << 63)

log = structlog.get_logger()


@dataclass(frozen=True)
class _Taken:
    """What a micro-batch takes.

    Parameters
    ----------
    table
        The product's table.
    done
        Its newest marker.
    silver
        Unique id of the silver table.
    start, end
        The first micro-batch that the table does not have, and the one behind the last that silver has decided.
    contract
        The contract under which silver was decided.
    horizon
        Before this time, in microseconds since 1970, silver keeps no row any more; None if there is no such time yet.
    """

    table: OpenTable
    done: Committed | None
    silver: str
    start: int
    end: int
    contract: Contract
    horizon: int | None

    @property
    def published(self) -> int | None:
        """The horizon of the newest micro-batch of a product whose windows are final."""
        return int(self.done.marker.contents) if self.done else None


class GoldMicroBatches:
    """Fills the table of a product with what silver has.

    Parameters
    ----------
    settings
        Where everything is.
    product
        The product.
    table
        Name of its table.
    contracts
        Texts of the contracts.
    lease
        The query's lease, which is checked before each commit.
    """

    def __init__(self, settings: Settings, product: Product, table: str, contracts: ContractLog, lease: Lease) -> None:
        self._settings = settings
        self._product = product
        self._table = table
        self._silver = silver_tables(product.stream).kept
        self._contracts = contracts
        self._lease = lease
        self._digest: str | None = None
        self.count = 0

    def take(self, spark: SparkSession) -> bool:
        """Take what silver has decided since the newest micro-batch; return whether there was anything.

        Raises
        ------
        LakeproofError
            The table and silver do not fit together: one of them was replaced, or restored from a backup.
        """
        began = monotonic()
        source = open_table(spark, self._silver, silver_query(self._product.stream))
        decided = decided_by_silver(source, self._product.stream)
        if decided is None:
            return False
        self._follow_contract(spark)
        table = open_table(spark, self._table, gold_query(self._product.name))
        try:
            taken = self._next(table, source.table_id(), decided)
            if taken is None:
                return False
            marker = _marker(self._product, taken)
            target = table.target(marker)
            if target is None:
                return False  # another writer has just done it
            spark.sparkContext.setJobDescription(f"{self._table}: micro-batches {taken.start} to {taken.end - 1}")
            publish = self._append if self._product.publish is Publish.FINAL else self._correct
            written = publish(spark, taken, marker, target)
        except MarkerLostError as error:
            raise MarkerLostError(error.message, rebuild_gold_hint(self._product.name)) from error
        self.count += 1
        seconds = round(monotonic() - began, 3)
        silver = f"{taken.start} to {taken.end - 1}"
        log.info("gold micro-batch", product=self._product.name, micro_batches=silver, rows=written, seconds=seconds)
        return True

    def _follow_contract(self, spark: SparkSession) -> None:
        """Read the product under the current contract, which every row that silver has decided by now fits.

        One may have been applied since the consumer was started.
        """
        digest = self._contracts.current(self._product.stream)
        if digest is None or digest == self._digest:
            return
        contract = recorded_contract(self._contracts, digest, _missing(self._silver, digest))
        product = read_under(self._product, contract)
        if product != self._product:
            ensure_gold_table(spark, product, self._table)
        self._product, self._digest = product, digest

    def _next(self, table: OpenTable, silver: str, decided: Committed) -> _Taken | None:
        """What to take; None if there is nothing."""
        done = table.newest()
        start, end = int(done.marker.end) if done else 0, int(decided.marker.end)
        if done and done.marker.checkpoint_id != silver:
            raise LakeproofError(
                f"{self._table} was filled from another {self._silver}, which was replaced since then.",
                rebuild_gold_hint(self._product.name),
            )
        if end < start:
            raise MarkerLostError(
                f"{self._table} is at micro-batch {start}, but {self._silver} is at {end}: they are from different "
                "points in time."
            )
        if end == start:
            return None
        contract = contract_of(decided, self._silver, self._contracts)
        taken = _Taken(table, done, silver, start, end, contract, horizon_after(decided, contract))
        return None if self._product.publish is Publish.FINAL and not _closes(self._product, taken) else taken

    def _correct(self, spark: SparkSession, taken: _Taken, marker: Marker, target: Target) -> int:
        """Compute the windows that new rows touch, all of them if nothing is there yet; return how many."""
        silver = self._load(self._silver)
        if taken.done is None:
            return self._upsert(taken, marker, self._write(spark, silver, taken, target), lambda _: OldRows())
        product, event_time = self._product, taken.contract.event_time
        new = self._scan(silver, taken, since=taken.start)
        windows = self._touched(spark, new, event_time)
        if windows.empty:
            return self._upsert(taken, marker, Written(), lambda _: OldRows())
        written = self._write(spark, silver, taken, target, windows)

        def find_old(snapshot_id: int) -> OldRows:
            with catalog_errors():
                catalog = open_catalog(self._settings)
                return old_rows(spark, catalog, self._table, snapshot_id, product, windows)

        return self._upsert(taken, marker, written, find_old)

    def _touched(self, spark: SparkSession, new: Scan, event_time: str) -> Windows | Sessions:
        """The windows of new rows."""
        if not self._product.window.session:
            return touched_windows(spark, new, self._product, event_time)
        return touched_sessions(spark, new, self._load(self._table), self._table, self._product, event_time)

    def _append(self, spark: SparkSession, taken: _Taken, marker: Marker, target: Target) -> int:
        """Compute the windows whose end the horizon has passed since the newest micro-batch; return how many."""
        size, horizon = micros(self._product.window.size), taken.horizon or 0
        first = _EARLIEST if taken.published is None else taken.published - size + 1
        windows = Windows([(first, horizon - size + 1)])
        written = self._write(spark, self._load(self._silver), taken, target, windows)
        self._lease.check()
        append_once(taken.table, marker, written.files)
        return written.rows

    def _load(self, name: str) -> "Table":
        with catalog_errors():
            return open_catalog(self._settings).load_table(name)

    def _write(
        self,
        spark: SparkSession,
        silver: "Table",
        taken: _Taken,
        target: Target,
        windows: Windows | Sessions | None = None,
    ) -> Written:
        """Compute windows, all of them by default, from what silver has kept; it may be ahead by now."""
        spans = windows.spans(self._product) if windows else None
        scan = self._scan(silver, taken, within=within(taken.contract.event_time, spans) if spans else None)
        event_time, now = taken.contract.event_time, datetime.now(UTC)
        wanted = Wanted(self._product, event_time, windows, now, target, self._settings.s3)
        return write_windows(spark, scan, wanted)

    def _scan(
        self,
        silver: "Table",
        taken: _Taken,
        since: int = 0,
        within: "BooleanExpression | None" = None,
    ) -> Scan:
        renamed = renamed_columns(silver.properties)
        columns = {name: renamed.get(name, name) for name in columns_of(self._product, taken.contract.event_time)}
        numbers = of_micro_batches(since, taken.end)
        with catalog_errors():
            return plan(silver, self._silver, columns, numbers, within=within)

    def _upsert(self, taken: _Taken, marker: Marker, written: Written, find_old: Callable[[int], OldRows]) -> int:
        self._lease.check()
        upsert_once(taken.table, marker, written.files, find_old)
        return written.rows


def _marker(product: Product, taken: _Taken) -> Marker:
    """What the commit says of itself: from which silver, for which product, and which windows it closes."""
    closes = str(taken.horizon) if product.publish is Publish.FINAL else ""
    return Marker(taken.silver, taken.end - 1, product.digest, str(taken.start), str(taken.end), contents=closes)


def contract_of(decided: Committed, silver: str, contracts: ContractLog) -> Contract:
    """The contract under which the newest rows of a silver table were decided."""
    digest = decided.marker.contract
    return recorded_contract(contracts, digest, _missing(silver, digest))


def _missing(silver: str, digest: str) -> str:
    return f"{silver} was filled under the contract {digest[:12]}…, which the landing log does not have."


def horizon_after(decided: Committed, contract: Contract) -> int | None:
    """Silver's watermark less what the contract declares, in microseconds since 1970; None if there is none yet."""
    length = contract.silver.horizon if contract.silver else None
    if not decided.marker.contents or length is None:
        return None
    return int(decided.marker.contents) - micros(length)


def _closes(product: Product, taken: _Taken) -> bool:
    """Whether the horizon has passed the end of a window since the newest micro-batch."""
    if taken.horizon is None:
        return False
    every = micros(product.window.every)
    return taken.published is None or taken.horizon // every > taken.published // every
