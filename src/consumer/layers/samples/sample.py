"""A micro-batch of samples: the windows and readings that silver's horizon has passed since the last micro-batch.

Silver keeps no more records from before its horizon, so windows and readings before the horizon are complete. Only the
marker is kept from one micro-batch to the next. A reading is stored once, in silver.

A micro-batch appends to the table of anomalies, then to the table of samples, each fenced by the same marker. The table
of samples has the progress of the product. After a crash between the two, the same micro-batch is taken again, up to
the same horizon, and the table that already has it is skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.data_files import Target
from consumer.iceberg.marker import Marker, MarkerLostError
from consumer.iceberg.tasks import Written, gathered, write_batches, write_in_tasks, write_rows
from consumer.layers.base import Append, Commits, Layer
from consumer.layers.gold.columns import START, micros
from consumer.layers.gold.table import filled_for, rebuild_gold_hint
from consumer.layers.gold.times import timestamp
from consumer.layers.samples.columns import AT, DEVICE, VALUE, readings, sampled
from consumer.layers.samples.detectors import Anomaly, anomalies
from consumer.layers.samples.reading import Reading
from consumer.layers.upstream import upstream_of
from consumer.scope import Scope
from lakeproof.errors import LakeproofError
from lakeproof.gold.samples import DETECTED_AT, DETECTOR, MAXIMUM, MINIMUM, Samples
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import gold_lease
from lakeproof.tables.names import (
    MICRO_BATCH_ID,
    UPDATED_AT,
    SamplesTables,
    gold_query,
    samples_tables,
    silver_query,
    silver_tables,
)
from lakeproof.tables.schemas import ensure_samples_tables

_ROWS_OF_A_BATCH = 10_000


@dataclass(frozen=True)
class _Work:
    """The work of a micro-batch: readings from one horizon to before another, in microseconds since 1970."""

    anomalies: OpenTable
    samples: OpenTable
    end: int  # the first micro-batch of silver that is not read
    since: int | None  # None for the first micro-batch
    until: int
    marker: Marker


class SamplesLayer(Layer[_Work]):
    """Fills the two tables of a product of samples from silver."""

    event = "samples micro-batch"

    def __init__(self, settings: Settings, samples: Samples, names: SamplesTables) -> None:
        self._settings = settings
        self._samples = samples
        self._names = names
        self._contracts = ContractLog(settings.state.database)
        self.stream = samples.stream
        self.name = gold_query(samples.name)
        self.lease_name = gold_lease(samples.name)
        self.follows = silver_query(samples.stream)
        self.remedy = rebuild_gold_hint(samples.name)
        # Silver grows all the time, and a micro-batch takes all its rows: the next one can wait.
        self.every = samples.every.total_seconds()
        self.tables = astuple(names)
        self.source = silver_tables(samples.stream).kept

    @classmethod
    def in_scope(cls, scope: Scope) -> "Iterable[SamplesLayer]":
        """Return a layer for each product of samples."""
        return [cls(scope.settings, each, samples_tables(each.name, each.anomalies)) for each in scope.samples]

    def beside(self, suffix: str) -> "SamplesLayer":
        """Return the same layer over tables whose names have a suffix."""
        names = samples_tables(self._samples.name, self._samples.anomalies, suffix)
        return SamplesLayer(self._settings, self._samples, names)

    def prepare(self, catalog: Catalog) -> None:
        """Create missing tables."""
        ensure_samples_tables(catalog, self._samples, self._names)

    def next(self, spark: SparkSession) -> _Work | None:
        """Find the next micro-batch: an interrupted one, up to the same horizon, or one up to silver's horizon."""
        silver = upstream_of(spark, self.stream, self._contracts)
        if silver is None:
            return None
        found, kept = (open_table(spark, name, self.name) for name in (self._names.anomalies, self._names.samples))
        for table in (found, kept):
            self._check_product(table)
        begun, done = found.newest(), kept.newest()
        start = silver.start_of(kept.name, begun, done)
        since = int(done.marker.contents) if done else None
        if begun and not (done and begun.marker.holds_the_same(done.marker)):
            if int(begun.marker.start) != start:
                raise MarkerLostError(
                    f"{kept.name} is at micro-batch {start}, but {found.name} begins one at {begun.marker.start}: "
                    "they are from different points in time."
                )
            end, until = int(begun.marker.end), int(begun.marker.contents)
            return _Work(found, kept, end, since, until, self._marker(silver.id, start, end, until))
        if done and not begun:
            raise MarkerLostError(f"{found.name} has no marker, but {kept.name} has one.")
        if silver.end == start:
            return None
        horizon = silver.horizon
        if horizon is None or (since is not None and horizon <= since):
            return None
        marker = self._marker(silver.id, start, silver.end, horizon)
        return _Work(found, kept, silver.end, since, horizon, marker)

    def compute(self, spark: SparkSession, work: _Work) -> Commits:
        """Write and commit anomalies, then samples; skip a table that already has the micro-batch."""
        rows = dict.fromkeys(("samples", "anomalies"), 0)
        steps: list[tuple[str, OpenTable, Callable[[SparkSession, _Work, Target], Written]]] = [
            ("anomalies", work.anomalies, self._anomalies),
            ("samples", work.samples, self._sampled),
        ]
        for what, table, write in steps:
            if target := table.target(work.marker):
                written = write(spark, work, target)
                rows[what] = written.rows
                yield Append(table, work.marker, written.files)
        numbers = f"{work.marker.start} to {work.end - 1}"
        return {"product": self._samples.name, "micro_batches": numbers, **rows}

    def _marker(self, silver: str, start: int, end: int, until: int) -> Marker:
        return Marker(silver, end - 1, self._samples.digest, str(start), str(end), contents=str(until))

    def _check_product(self, table: OpenTable) -> None:
        """Refuse a table that was filled for another product."""
        if filled_for(table) != self._samples.digest:
            raise LakeproofError(
                f"{table.name} was filled for another product than gold/{self._samples.name}.yaml and the contract of "
                f"{self._samples.stream} declare now: other fields, windows, detectors or ranges.",
                f"Restore them. Or: {rebuild_gold_hint(self._samples.name)}",
            )

    def _sampled(self, spark: SparkSession, work: _Work, target: Target) -> Written:
        """Write the samples of the windows whose end the horizon has passed since the newest micro-batch."""
        size = micros(self._samples.window.size)
        end = F.col(START) + size
        closed = end <= work.until
        if work.since is not None:
            closed &= end > work.since
        rows = self._readings(spark, work, None if work.since is None else work.since - size)
        return write_rows(sampled(rows, self._samples, closed, datetime.now(UTC)), target, self._settings.s3)

    def _anomalies(self, spark: SparkSession, work: _Work, target: Target) -> Written:
        """Write the anomalies from the horizon of the newest micro-batch to before the current horizon."""
        samples, s3, now = self._samples, self._settings.s3, datetime.now(UTC)
        since, until = work.since, work.until  # tasks get everything that their function refers to, so no tables
        look_back = micros(samples.detectors.look_back)
        rows = self._readings(spark, work, None if work.since is None else work.since - look_back)
        ordered = rows.repartition(DEVICE).sortWithinPartitions(DEVICE, AT, VALUE)

        def write(batches: Iterator[pa.RecordBatch]) -> Written:
            found = anomalies(_of(batches), samples, since, until)
            return write_batches(_in_batches(found, samples, now), target, s3)

        return gathered(write_in_tasks(ordered, write))

    def _readings(self, spark: SparkSession, work: _Work, since: int | None) -> DataFrame:
        """Return silver's rows from `since` to before the horizon; silver may be ahead by now."""
        event_time = F.col(f"`{self._samples.event_time.name}`")
        used = (self._samples.device.name, self._samples.value.name)
        silver = open_table(spark, self.source, silver_query(self.stream))
        rows = silver.rows(work.end).where(F.col(MICRO_BATCH_ID) < work.end)
        rows = rows.withColumnsRenamed({new: old for old, new in silver.renamed().items() if old in used})
        rows = rows.where(event_time < timestamp(work.until))
        if since is not None:
            rows = rows.where(event_time >= timestamp(since))
        return readings(rows, self._samples)


def _of(batches: Iterator[pa.RecordBatch]) -> Iterator[Reading]:
    for batch in batches:
        columns = (batch.column(batch.schema.get_field_index(name)).to_pylist() for name in (AT, DEVICE, VALUE))
        yield from map(Reading, *columns)


def _in_batches(found: Iterator[Anomaly], samples: Samples, now: datetime) -> Iterator[pa.RecordBatch]:
    while some := list(islice(found, _ROWS_OF_A_BATCH)):
        yield _rows(some, samples, now)


def _rows(found: Sequence[Anomaly], samples: Samples, now: datetime) -> pa.RecordBatch:
    """Return rows of the table of anomalies."""
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
