"""A gold micro-batch: compute each window again that is touched by rows silver has kept since the last micro-batch.

The marker of the product's table records up to which micro-batch of silver the table is filled. Later rows touch some
windows. Each touched window is computed from all rows of silver in it, and replaces its old rows in the commit that
moves the marker. So a micro-batch that is tried again computes the same result.

A product whose windows are final needs no correction: a window is computed once, after the horizon has passed its end.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.data_files import Target
from consumer.iceberg.marker import Committed, Marker
from consumer.iceberg.newest import check_shows
from consumer.iceberg.scan import Scan
from consumer.iceberg.tasks import Written
from consumer.iceberg.upsert import OldRows, Span
from consumer.layers.base import Append, Commits, Layer, upsert
from consumer.layers.gold.columns import micros
from consumer.layers.gold.sessions import Sessions, touched_sessions
from consumer.layers.gold.table import ensure_gold_table, read_as_silver_has_it, rebuild_gold_hint
from consumer.layers.gold.tasks import Wanted, write_windows
from consumer.layers.gold.touched import Windows, closed_between, old_rows, silver_rows, touched_windows
from consumer.layers.upstream import upstream_of
from consumer.scope import Scope
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.gold.model import Product, Publish
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import gold_lease
from lakeproof.tables.names import gold_query, gold_table, silver_query, silver_tables
from lakeproof.tables.schemas import ensure_namespace


@dataclass(frozen=True)
class _Work:
    """The work of a micro-batch: the micro-batches of silver from `start` to before `end`."""

    table: OpenTable
    done: Committed | None
    start: int
    end: int
    event_time: str
    horizon: int | None
    marker: Marker
    target: Target

    @property
    def published(self) -> int | None:
        """The horizon of the newest micro-batch of a product whose windows are final."""
        return int(self.done.marker.contents) if self.done else None


class GoldLayer(Layer[_Work]):
    """Fills the table of a product from silver."""

    event = "gold micro-batch"
    waits_for_backlog = True  # each micro-batch of silver would touch the same windows again

    def __init__(self, settings: Settings, product: Product, table: str) -> None:
        self._settings = settings
        self._product = product
        self._table = table
        self._contracts = ContractLog(settings.state.database)
        self.stream = product.stream
        self.name = gold_query(product.name)
        self.lease_name = gold_lease(product.name)
        self.follows = silver_query(product.stream)
        self.remedy = rebuild_gold_hint(product.name)
        self.tables = (table,)
        self.source = silver_tables(product.stream).kept

    @classmethod
    def in_scope(cls, scope: Scope) -> "Iterable[GoldLayer]":
        """Return a layer for each product."""
        return [cls(scope.settings, product, gold_table(product.name)) for product in scope.products]

    def beside(self, suffix: str) -> "GoldLayer":
        """Return the same layer over a table whose name has a suffix."""
        return GoldLayer(self._settings, self._product, gold_table(self._product.name, suffix))

    def prepare(self, catalog: Catalog) -> None:
        """Create the namespace of the table."""
        ensure_namespace(catalog, self._table.split(".")[0])

    def open(self, spark: SparkSession) -> None:
        """Create the table if it is missing."""
        ensure_gold_table(spark, self._product, self._table)

    def next(self, spark: SparkSession) -> _Work | None:
        """Find what silver has decided since the newest micro-batch."""
        silver = upstream_of(spark, self.stream, self._contracts)
        if silver is None:
            return None
        product = read_as_silver_has_it(self._product, self._contracts)
        if product != self._product:
            ensure_gold_table(spark, product, self._table)
            self._product = product
        table = open_table(spark, self._table, self.name)
        done = table.newest()
        start = silver.start_of(self._table, done)
        if silver.end == start:
            return None
        final, horizon = self._product.publish is Publish.FINAL, silver.horizon
        if final and not _closes(self._product, done, horizon):
            return None
        closes = str(horizon) if final else ""
        marker = Marker(silver.id, silver.end - 1, self._product.digest, str(start), str(silver.end), contents=closes)
        target = table.target(marker)
        if target is None:
            return None  # another writer has just done it
        return _Work(table, done, start, silver.end, silver.contract.event_time, horizon, marker, target)

    def compute(self, spark: SparkSession, work: _Work) -> Commits:
        """Compute the windows that new rows touch or that are final now; yield the commit of their rows."""
        spark.sparkContext.setJobDescription(f"{self._table}: micro-batches {work.start} to {work.end - 1}")
        if self._product.publish is Publish.FINAL:
            closed = closed_between(self._product, work.published, work.horizon or 0)
            written = self._write(spark, work, closed)
            yield Append(work.table, work.marker, written.files)
        else:
            written, find_old = self._corrected(spark, work)
            yield upsert(work.table, work.marker, written.files, find_old)
        numbers = f"{work.start} to {work.end - 1}"
        return {"product": self._product.name, "micro_batches": numbers, "rows": written.rows}

    def _corrected(self, spark: SparkSession, work: _Work) -> tuple[Written, Callable[[int], OldRows]]:
        """Compute the windows that new rows touch; all windows in the first micro-batch."""
        product = self._product
        if work.done is None:
            return self._write(spark, work), lambda _: OldRows()
        windows = self._touched(spark, work)
        if windows.empty:
            return Written(), lambda _: OldRows()

        def find_old(snapshot_id: int) -> OldRows:
            with catalog_errors():
                catalog = open_catalog(self._settings)
                return old_rows(spark, catalog, self._table, snapshot_id, product, windows)

        return self._write(spark, work, windows), find_old

    def _touched(self, spark: SparkSession, work: _Work) -> Windows | Sessions:
        """Return the windows that new rows touch."""
        new = self._silver(work, since=work.start)
        if not self._product.window.session:
            return touched_windows(spark, new, self._product, work.event_time)
        with catalog_errors():
            table = open_catalog(self._settings).load_table(self._table)
            check_shows(table, self.name, self._table, work.start)
        return touched_sessions(spark, new, table, self._table, self._product, work.event_time)

    def _write(self, spark: SparkSession, work: _Work, windows: Windows | Sessions | None = None) -> Written:
        """Compute and write windows, by default all, from silver's rows before `work.end`; silver may be ahead."""
        scan = self._silver(work, spans=windows.spans(self._product) if windows else None)
        wanted = Wanted(self._product, work.event_time, windows, datetime.now(UTC), work.target, self._settings.s3)
        return write_windows(spark, scan, wanted)

    def _silver(self, work: _Work, since: int = 0, spans: Sequence[Span] | None = None) -> Scan:
        with catalog_errors():
            catalog = open_catalog(self._settings)
            return silver_rows(catalog, self._product, work.event_time, since, work.end, spans)


def _closes(product: Product, done: Committed | None, horizon: int | None) -> bool:
    """Return whether the horizon has passed the end of a window since the newest micro-batch."""
    if horizon is None:
        return False
    every = micros(product.window.every)
    return done is None or horizon // every > int(done.marker.contents) // every
