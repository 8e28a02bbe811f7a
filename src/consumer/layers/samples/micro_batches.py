"""A micro-batch of samples: what silver's horizon has passed since the newest one.

Silver keeps no other record from before its horizon, so what is before it can be read as a whole: the windows that the
horizon has passed, and the readings that it has passed since then. Nothing is kept from one micro-batch to the next but
the marker. A reading is stored once, in silver.

A micro-batch appends to the table of anomalies, then to that of samples, each fenced by the same marker. The table of
samples says how far the product is. If a crash comes between the two, the same micro-batch is taken again, up to the
same horizon, and the table that has it is left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from time import monotonic
from typing import Any

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.iceberg.append import OpenTable, append_once, open_table
from consumer.iceberg.data_files import DataFileWriter, Target
from consumer.iceberg.marker import Committed, Marker, MarkerLostError
from consumer.iceberg.tasks import Written, gathered, write_in_tasks, write_rows
from consumer.layers.gold.columns import START, micros
from consumer.layers.gold.micro_batches import contract_of, horizon_after
from consumer.layers.gold.table import filled_for, rebuild_gold_hint
from consumer.layers.gold.times import timestamp
from consumer.layers.hints import decided_by_silver
from consumer.layers.samples.columns import AT, DEVICE, VALUE, readings, sampled
from consumer.layers.samples.detectors import Anomaly, anomalies
from consumer.layers.samples.reading import Reading
from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError
from lakeproof.gold.samples import DETECTED_AT, DETECTOR, MAXIMUM, MINIMUM, Samples
from lakeproof.settings import S3Settings, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease
from lakeproof.storage import open_storage
from lakeproof.tables.names import (
    MICRO_BATCH_ID,
    UPDATED_AT,
    SamplesTables,
    gold_query,
    silver_query,
    silver_tables,
)

log = structlog.get_logger()

_ROWS_OF_A_BATCH = 10_000


@dataclass(frozen=True)
class _Taken:
    """What a micro-batch takes.

    Parameters
    ----------
    silver
        Unique id of the silver table.
    start, end
        The first micro-batch of silver that the product does not have, and the one behind the last.
    since, until
        The horizon of the newest micro-batch, None if there is none, and the horizon now, in microseconds since 1970.
    """

    silver: str
    start: int
    end: int
    since: int | None
    until: int


class SamplesMicroBatches:
    """Fills the two tables of a product of samples with what silver has.

    Parameters
    ----------
    settings
        Where everything is.
    samples
        The product.
    tables
        Names of its tables.
    contracts
        Texts of the contracts.
    lease
        The query's lease, which is checked before each commit.
    """

    def __init__(
        self, settings: Settings, samples: Samples, tables: SamplesTables, contracts: ContractLog, lease: Lease
    ) -> None:
        self._settings = settings
        self._samples = samples
        self._tables = tables
        self._silver = silver_tables(samples.stream).kept
        self._contracts = contracts
        self._lease = lease
        self.count = 0

    def take(self, spark: SparkSession) -> bool:
        """Take what silver's horizon has passed since the newest micro-batch; return whether there was anything.

        Raises
        ------
        LakeproofError
            The tables and silver do not fit together: one of them was replaced, or restored from a backup; or the
            product is another one than that they were filled for.
        """
        began = monotonic()
        query = gold_query(self._samples.name)
        silver = open_table(spark, self._silver, silver_query(self._samples.stream))
        decided = decided_by_silver(silver, self._samples.stream)
        if decided is None:
            return False
        found, kept = (open_table(spark, name, query) for name in (self._tables.anomalies, self._tables.samples))
        for table in (found, kept):
            self._check_product(table)
        try:
            taken = self._next(silver.table_id(), decided, found.newest(), kept.newest())
            if taken is None:
                return False
            marker = Marker(
                taken.silver,
                taken.end - 1,
                self._samples.digest,
                str(taken.start),
                str(taken.end),
                contents=str(taken.until),
            )
            of_anomalies = self._append(found, marker, lambda target: self._anomalies(spark, taken, target))
            of_samples = self._append(kept, marker, lambda target: self._sampled(spark, taken, target))
        except MarkerLostError as error:
            raise MarkerLostError(error.message, rebuild_gold_hint(self._samples.name)) from error
        self.count += 1
        log.info(
            "samples micro-batch",
            product=self._samples.name,
            micro_batches=f"{taken.start} to {taken.end - 1}",
            samples=of_samples,
            anomalies=of_anomalies,
            seconds=round(monotonic() - began, 3),
        )
        return True

    def _check_product(self, table: OpenTable) -> None:
        """Refuse a table that was filled for another product."""
        if filled_for(table) != self._samples.digest:
            raise LakeproofError(
                f"{table.name} was filled for another product than gold/{self._samples.name}.yaml and the contract of "
                f"{self._samples.stream} declare now: other fields, windows, detectors or ranges.",
                f"Restore them. Or: {rebuild_gold_hint(self._samples.name)}",
            )

    def _next(self, silver: str, decided: Committed, begun: Committed | None, done: Committed | None) -> _Taken | None:
        """What to take: the rest of what was begun, up to the same horizon, or what comes next."""
        start, since = (int(done.marker.end), int(done.marker.contents)) if done else (0, None)
        end = int(decided.marker.end)
        for newest in (begun, done):
            if newest and newest.marker.checkpoint_id != silver:
                raise MarkerLostError(
                    f"{self._tables.samples} was filled from another {self._silver}, which was replaced since then."
                )
        if end < max(start, int(begun.marker.end) if begun else 0):
            raise MarkerLostError(
                f"{self._tables.samples} is at micro-batch {start}, but {self._silver} is at {end}: they are from "
                "different points in time."
            )
        if begun and not (done and begun.marker.holds_the_same(done.marker)):
            if int(begun.marker.start) != start:
                raise MarkerLostError(
                    f"{self._tables.samples} is at micro-batch {start}, but {self._tables.anomalies} begins one at "
                    f"{begun.marker.start}: they are from different points in time."
                )
            return _Taken(silver, start, int(begun.marker.end), since, int(begun.marker.contents))
        if done and not begun:
            raise MarkerLostError(f"{self._tables.anomalies} has no marker, but {self._tables.samples} has one.")
        if end == start:
            return None
        horizon = horizon_after(decided, contract_of(decided, self._silver, self._contracts))
        if horizon is None or (since is not None and horizon <= since):
            return None
        return _Taken(silver, start, end, since, horizon)

    def _append(self, table: OpenTable, marker: Marker, write: Callable[[Target], Written]) -> int:
        """Append what a table does not have yet of a micro-batch; return how many rows."""
        target = table.target(marker)
        if target is None:
            return 0
        written = write(target)
        self._lease.check()
        append_once(table, marker, written.files)
        return written.rows

    def _sampled(self, spark: SparkSession, taken: _Taken, target: Target) -> Written:
        """Write the samples of the windows whose end the horizon has passed since the newest micro-batch."""
        size = micros(self._samples.window.size)
        end = F.col(START) + size
        closed = end <= taken.until
        if taken.since is not None:
            closed &= end > taken.since
        rows = self._readings(spark, taken, None if taken.since is None else taken.since - size)
        return write_rows(sampled(rows, self._samples, closed, datetime.now(UTC)), target, self._settings.s3)

    def _anomalies(self, spark: SparkSession, taken: _Taken, target: Target) -> Written:
        """Write the anomalies from the horizon of the newest micro-batch on and before that of now."""
        samples, s3, now = self._samples, self._settings.s3, datetime.now(UTC)
        look_back = micros(samples.detectors.look_back)
        rows = self._readings(spark, taken, None if taken.since is None else taken.since - look_back)
        ordered = rows.repartition(DEVICE).sortWithinPartitions(DEVICE, AT, VALUE)

        def write(batches: Iterator[pa.RecordBatch]) -> Written:
            found = anomalies(_of(batches), samples, taken.since, taken.until)
            return _write_anomalies(found, samples, target, s3, now)

        return gathered(write_in_tasks(ordered, write))

    def _readings(self, spark: SparkSession, taken: _Taken, since: int | None) -> DataFrame:
        """What silver has kept from a time on and before the horizon; it may be ahead by now."""
        event_time = F.col(f"`{self._samples.event_time.name}`")
        used = (self._samples.device.name, self._samples.value.name)
        renamed = open_table(spark, self._silver, silver_query(self._samples.stream)).renamed()
        rows = spark.table(f"{CATALOG}.{self._silver}").where(F.col(MICRO_BATCH_ID) < taken.end)
        rows = rows.withColumnsRenamed({new: old for old, new in renamed.items() if old in used})
        rows = rows.where(event_time < timestamp(taken.until))
        if since is not None:
            rows = rows.where(event_time >= timestamp(since))
        return readings(rows, self._samples)


def _of(batches: Iterator[pa.RecordBatch]) -> Iterator[Reading]:
    for batch in batches:
        columns = (batch.column(batch.schema.get_field_index(name)).to_pylist() for name in (AT, DEVICE, VALUE))
        yield from map(Reading, *columns)


def _write_anomalies(
    found: Iterator[Anomaly], samples: Samples, target: Target, s3: S3Settings, now: datetime
) -> Written:
    written = Written()
    try:
        writer = DataFileWriter(target, open_storage(target.folder, s3))
        while some := list(islice(found, _ROWS_OF_A_BATCH)):
            writer.write(_rows(some, samples, now))
            written.rows += len(some)
        written.files = writer.close()
    except LakeproofError as error:  # an exception would reach the driver as the text of a stack trace
        written.failure = error
    return written


def _rows(found: Sequence[Anomaly], samples: Samples, now: datetime) -> pa.RecordBatch:
    """Rows of the table of anomalies."""
    at = pa.timestamp("us", tz="UTC")
    columns: dict[str, pa.Array[Any]] = {
        samples.device.name: pa.array([each.reading.device for each in found]),
        samples.event_time.name: pa.array([each.reading.at for each in found], at),
        samples.value.name: pa.array([each.reading.value for each in found], pa.float64()),
        DETECTOR: pa.array([str(each.detector) for each in found]),
        DETECTED_AT: pa.array([each.detected_at for each in found], at),
        MINIMUM: pa.array([each.minimum for each in found], pa.float64()),
        MAXIMUM: pa.array([each.maximum for each in found], pa.float64()),
        UPDATED_AT: pa.array([now] * len(found), at),
    }
    return pa.RecordBatch.from_pydict(columns)
