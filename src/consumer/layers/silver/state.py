"""The strategy `state`: keeps the key index of a stream at the newest commit of silver."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable
from consumer.iceberg.marker import Committed
from consumer.layers.buckets import InUseError, mended
from consumer.layers.silver.compared import kept_before
from consumer.layers.silver.key_index import IndexPosition, KeyIndex
from consumer.layers.silver.progress import Range, bronze_of, next_range
from consumer.layers.silver.verdicts import IN_SILVER, Lost, Micros
from lakeproof.catalog import catalog_errors
from lakeproof.contracts import Contract
from lakeproof.settings import Settings
from lakeproof.tables.names import MICRO_BATCH_ID

log = structlog.get_logger()


class State:
    """What silver has kept, as an index."""

    def __init__(self, settings: Settings, stream: str) -> None:
        self._settings = settings
        self._stream = stream
        self._index: KeyIndex | None = None
        self._pending: tuple[Range, pa.Table] | None = None

    def find(
        self,
        spark: SparkSession,
        catalog: Catalog,
        silver: OpenTable,
        contract: Contract,
        keys: Any,
        horizon: Micros | None,
        oldest: Micros | None,
    ) -> pa.Table:
        """Return the rows with some keys whose event time is not before the horizon, of silver's newest commit.

        The index is filled from silver where it is empty, behind, damaged, or of another point in time.
        """
        if self._index is None:
            self._index = _opened(Path(self._settings.silver.index) / self._stream, horizon)
        index = self._index

        def look_up() -> pa.Table:
            self._follow(index, spark, catalog, silver, contract, horizon, oldest)
            return index.find(keys, oldest)

        return mended(look_up, index.clear)

    def _follow(
        self,
        index: KeyIndex,
        spark: SparkSession,
        catalog: Catalog,
        silver: OpenTable,
        contract: Contract,
        horizon: Micros | None,
        oldest: Micros | None,
    ) -> None:
        """Let the index have all keys of silver's newest commit."""
        newest = silver.newest()
        pending, self._pending = self._pending, None
        wanted = _progress(silver, contract, newest) if newest else None
        has = index.progress
        if has == wanted:
            return
        if not (has and wanted and has.is_same_silver(wanted) and silver.descends_from(has.snapshot_id)):
            index.clear()
            has = None
        if not wanted:
            return
        start = has.end if has else 0
        watermark = None if oldest is None or horizon is None else oldest + horizon
        if pending and (pending[0].start, pending[0].end) == (start, wanted.end):
            index.add(pending[1], wanted, watermark)
            return
        log.info("filling the key index from silver", stream=self._stream, micro_batches=f"{start} to {wanted.end - 1}")
        while start < wanted.end:
            start = self._fill(index, spark, catalog, silver, contract, wanted, start, oldest, watermark)

    def close(self) -> None:
        """Close the index."""
        if self._index:
            self._index.close()
            self._index = None

    def decided(self, taken: Range, rows: pa.Table, lost: Mapping[int, Lost]) -> None:
        """Remember what a micro-batch kept, until silver's commit of it is seen."""
        is_kept: Any = rows[MICRO_BATCH_ID].to_numpy() != IN_SILVER
        is_kept[list(lost)] = False
        self._pending = taken, rows.filter(pa.array(is_kept))

    def _fill(
        self,
        index: KeyIndex,
        spark: SparkSession,
        catalog: Catalog,
        silver: OpenTable,
        contract: Contract,
        wanted: IndexPosition,
        start: int,
        oldest: Micros | None,
        watermark: Micros | None,
    ) -> int:
        """Add some micro-batches from silver; return the number of the next one."""
        with catalog_errors():
            most = self._settings.silver.max_rows_per_micro_batch
            ledger = bronze_of(catalog, self._stream).ledger
            taken = next_range(ledger, start, wanted.end, most, max_micro_batches=wanted.end)
            end = taken.end if taken else wanted.end
            rows = kept_before(spark, catalog, contract, silver.name, start, end, oldest)
        index.add(rows, wanted._replace(end=end), watermark)
        return end


def _opened(folder: Path, horizon: Micros | None) -> KeyIndex:
    """Open the index in a folder, or one beside it where a consumer that was suspended still has it open.

    That one has lost its lease to this one. Whoever has the lease removes what others left beside the folder.
    """
    for left in folder.parent.glob(f"{folder.name}.*"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        return KeyIndex(folder, horizon)
    except InUseError:
        own = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        log.warning("key index is in use by a suspended consumer: using another folder", folder=str(own))
        return KeyIndex(own, horizon)


def _progress(silver: OpenTable, contract: Contract, newest: Committed) -> IndexPosition:
    return IndexPosition(silver.table_id(), contract.digest, int(newest.marker.end), newest.snapshot_id)
