"""The strategy `state`: keeps the key index of a stream at the newest commit of silver."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable
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


@dataclass(frozen=True)
class Silver:
    """The silver table that an index follows, and its horizon."""

    spark: SparkSession
    catalog: Catalog
    table: OpenTable
    contract: Contract
    horizon: Micros | None  # length of the horizon
    oldest: Micros | None  # the time that the horizon has reached

    @property
    def watermark(self) -> Micros | None:
        """The greatest event time that silver has seen."""
        return None if self.oldest is None or self.horizon is None else self.oldest + self.horizon

    def position(self) -> IndexPosition | None:
        """Return the position of the newest commit; None before the first commit."""
        newest = self.table.newest()
        if newest is None:
            return None
        end = int(newest.marker.end)
        return IndexPosition(self.table.table_id(), self.contract.digest, end, newest.snapshot_id)


class KeptKeys:
    """The key index of the rows that silver has kept."""

    def __init__(self, settings: Settings, stream: str) -> None:
        self._settings = settings
        self._stream = stream
        self._index: KeyIndex | None = None
        self._pending: tuple[Range, pa.Table] | None = None

    def find(self, silver: Silver, keys: Any) -> pa.Table:
        """Return rows of silver's newest commit with the given keys and an event time not before the horizon.

        The index is filled from silver if it is empty, behind, damaged, or from another point in time.
        """
        if self._index is None:
            self._index = _opened(Path(self._settings.silver.index) / self._stream, silver.horizon)
        index = self._index

        def look_up() -> pa.Table:
            self._follow(index, silver)
            return index.find(keys, silver.oldest)

        return mended(look_up, index.clear)

    def decided(self, taken: Range, rows: pa.Table, lost: Mapping[int, Lost]) -> None:
        """Remember the rows that a micro-batch kept, until silver's commit is seen."""
        is_kept: Any = rows[MICRO_BATCH_ID].to_numpy() != IN_SILVER
        is_kept[list(lost)] = False
        # Rows come in the order of data files. A key is kept again in a later micro-batch once the horizon has passed
        # its first row: the index must end with the later row.
        self._pending = taken, rows.filter(pa.array(is_kept)).sort_by(MICRO_BATCH_ID)

    def close(self) -> None:
        """Close the index."""
        if self._index:
            self._index.close()
            self._index = None

    def _follow(self, index: KeyIndex, silver: Silver) -> None:
        """Bring the index to silver's newest commit."""
        wanted = silver.position()
        pending, self._pending = self._pending, None
        has = index.progress
        if has == wanted:
            return
        if not (has and wanted and has.is_same_silver(wanted) and silver.table.descends_from(has.snapshot_id)):
            index.clear()
            has = None
        if not wanted:
            return
        start = has.end if has else 0
        if pending and (pending[0].start, pending[0].end) == (start, wanted.end):
            index.add(pending[1], wanted, silver.watermark)
            return
        log.info("filling the key index from silver", stream=self._stream, micro_batches=f"{start} to {wanted.end - 1}")
        while start < wanted.end:
            start = self._fill(index, silver, wanted, start)

    def _fill(self, index: KeyIndex, silver: Silver, wanted: IndexPosition, start: int) -> int:
        """Add some micro-batches from silver; return the number of the next one."""
        with catalog_errors():
            most = self._settings.silver.max_rows_per_micro_batch
            bronze = bronze_of(silver.catalog, self._stream)
            taken = next_range(bronze, start, wanted.end, most, max_micro_batches=wanted.end)
            end = taken.end if taken else wanted.end
            table, contract = silver.table.name, silver.contract
            rows = kept_before(silver.spark, silver.catalog, contract, table, start, end, silver.oldest)
        index.add(rows, wanted._replace(end=end), silver.watermark)
        return end


def _opened(folder: Path, horizon: Micros | None) -> KeyIndex:
    """Open the index in a folder, or in another folder if a suspended consumer still has it open.

    The suspended consumer has lost its lease to this one. The owner of the lease removes the extra folders of others.
    """
    for left in folder.parent.glob(f"{folder.name}.*"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        return KeyIndex(folder, horizon)
    except InUseError:
        own = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        log.warning("key index is in use by a suspended consumer: using another folder", folder=str(own))
        return KeyIndex(own, horizon)
