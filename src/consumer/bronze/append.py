"""Appends that happen once, however often a micro-batch is tried, and whoever tries it.

An append is staged first (Iceberg's write-audit-publish), under an id that says which checkpoint, micro-batch and
contract it belongs to: its marker. Publishing it is one atomic commit of the catalog, which refuses an id that the
table's history has already. So a micro-batch that is tried again, after a crash or by a writer that was suspended and
wakes up too late, changes nothing.

The id is kept in the snapshot's summary, as ``wap.id``, or as ``published-wap-id`` where another commit came between.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from consumer.bronze.data_files import DataFile, Target
from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError

_STAGED = "wap.id"
_PUBLISHED = "published-wap-id"
_PREFIX = "lakeproof"
# What Iceberg says of an id that is in the history: published by another append, or by this very snapshot.
_PUBLISHED_ALREADY = ("DuplicateWAPCommitException", "CherrypickAncestorCommitException")


@dataclass(frozen=True)
class Marker:
    """What an append says of itself.

    Parameters
    ----------
    checkpoint_id
        The checkpoint's own unique id, not the query's name.
    micro_batch_id
        Number of the micro-batch, from 0.
    contract
        Digest of the contract that judged it.
    """

    checkpoint_id: str
    micro_batch_id: int
    contract: str

    def __str__(self) -> str:
        return f"{_PREFIX}:{self.checkpoint_id}:{self.micro_batch_id}:{self.contract}"

    @classmethod
    def parse(cls, text: str | None) -> "Marker | None":
        """Read a marker; None where the text is none of ours."""
        match (text or "").split(":"):
            case [prefix, checkpoint_id, micro_batch_id, contract] if prefix == _PREFIX:
                return cls(checkpoint_id, int(micro_batch_id), contract)
        return None


@dataclass(frozen=True)
class MarkedSnapshot:
    """A snapshot that an append of ours made.

    Parameters
    ----------
    id, parent_id
        Of the snapshot; the first one has no parent.
    marker
        What its append said of itself.
    """

    id: int
    parent_id: int | None
    marker: Marker


class MarkerLostError(LakeproofError):
    """The table's newest marker does not fit the checkpoint: appending could repeat or skip a micro-batch."""


def target(spark: SparkSession, table: str, marker: Marker) -> Target | None:
    """How to write data files for `table`; None where it holds the micro-batch already.

    Raises
    ------
    MarkerLostError
        The newest marker is neither this micro-batch's nor the one before it.
    """
    loaded = _load(spark, table)
    if _has_marker(loaded, table, marker):
        return None
    jvm: Any = spark._jvm
    schema = Schema.model_validate_json(jvm.org.apache.iceberg.SchemaParser.toJson(loaded.schema()))
    day = loaded.spec().fields().get(0)
    return Target(
        folder=f"{loaded.location()}/data",
        schema=schema_to_pyarrow(schema),
        day_of=schema.find_column_name(day.sourceId()) or "",
        partition=day.name(),
    )


def append_once(spark: SparkSession, table: str, marker: Marker, files: Iterable[DataFile]) -> bool:
    """Append data files to `table`, unless the table already holds the marker.

    No files are an append, too: its snapshot keeps the sequence of markers whole.

    Returns
    -------
    bool
        Whether they were appended now.

    Raises
    ------
    MarkerLostError
        The newest marker is neither this micro-batch's nor the one before it.
    """
    loaded = _load(spark, table)
    if _has_marker(loaded, table, marker):
        return False
    _stage(spark, loaded, marker, files)
    return _publish(loaded, marker)


def newest_micro_batch(spark: SparkSession, table: str, checkpoint_id: str) -> int | None:
    """Find the newest micro-batch of a checkpoint that a table holds."""
    return _newest(_load(spark, table), checkpoint_id)


def marked_snapshots(spark: SparkSession, table: str) -> Iterator[MarkedSnapshot]:
    """Walk back from a table's current snapshot, and yield those with a marker.

    Not by time: clocks go back. Snapshots without one, such as compactions, are passed over.
    """
    return _marked(_load(spark, table))


def _has_marker(loaded: Any, table: str, marker: Marker) -> bool:
    newest = _newest(loaded, marker.checkpoint_id)
    if newest is not None and newest >= marker.micro_batch_id:
        return True
    if marker.micro_batch_id != (0 if newest is None else newest + 1):
        raise MarkerLostError(
            f"{table} holds micro-batch {newest} of this checkpoint as its newest, but the next is "
            f"{marker.micro_batch_id}.",
            "The table was rolled back or its snapshots were expired by other means than lakeproof's. "
            "Compare with `reader verify` before going on with a new checkpoint.",
        )
    return False


def _newest(loaded: Any, checkpoint_id: str) -> int | None:
    return next(
        (one.marker.micro_batch_id for one in _marked(loaded) if one.marker.checkpoint_id == checkpoint_id), None
    )


def _marked(loaded: Any) -> Iterator[MarkedSnapshot]:
    snapshot = loaded.currentSnapshot()
    while snapshot is not None:
        summary, parent = snapshot.summary(), snapshot.parentId()
        marker = Marker.parse(summary.get(_PUBLISHED) or summary.get(_STAGED))
        if marker is not None:
            yield MarkedSnapshot(snapshot.snapshotId(), parent, marker)
        snapshot = None if parent is None else loaded.snapshot(parent)


def _stage(spark: SparkSession, loaded: Any, marker: Marker, files: Iterable[DataFile]) -> None:
    """Commit a snapshot that no reader sees."""
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    bounds = iceberg.MetricsConfig.forTable(loaded)
    append = loaded.newAppend()
    for file in files:
        written = loaded.io().newInputFile(file.uri, file.size)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(written, bounds)
        data_file = iceberg.DataFiles.builder(loaded.spec()).withInputFile(written).withMetrics(metrics)
        append.appendFile(data_file.withPartitionPath(file.partition).build())
    append.set(_STAGED, str(marker))
    append.stageOnly()
    append.commit()


def _publish(loaded: Any, marker: Marker) -> bool:
    loaded.refresh()
    snapshots = loaded.snapshots()  # the newest last, and that is ours, unless another commit came between
    backwards = (snapshots.get(index) for index in range(snapshots.size() - 1, -1, -1))
    staged = next(snapshot for snapshot in backwards if snapshot.summary().get(_STAGED) == str(marker))
    try:
        loaded.manageSnapshots().cherrypick(staged.snapshotId()).commit()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() in _PUBLISHED_ALREADY:
            return False
        raise
    return True


def _load(spark: SparkSession, table: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{CATALOG}.{table}")
