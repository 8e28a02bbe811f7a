"""Appends that happen once, however often a micro-batch is tried, and whoever tries it.

An append is staged first (Iceberg's write-audit-publish), under an id that says which checkpoint, micro-batch and
contract it belongs to: its marker. Publishing it is one atomic commit of the catalog, which refuses an id that the
table's history has already. So a micro-batch that is tried again, after a crash or by a writer that was suspended and
wakes up too late, changes nothing.

The id is kept in the snapshot's summary, as ``wap.id``, or as ``published-wap-id`` where another commit came between.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

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


def append_once(frame: DataFrame, table: str, marker: Marker) -> bool:
    """Append `frame` to `table`, unless the table already holds the marker.

    A frame of no rows is appended too: its snapshot keeps the sequence of markers whole.

    Returns
    -------
    bool
        Whether it was appended now.

    Raises
    ------
    MarkerLostError
        The newest marker is neither this micro-batch's nor the one before it.
    """
    spark = frame.sparkSession
    newest = newest_micro_batch(spark, table, marker.checkpoint_id)
    if newest is not None and newest >= marker.micro_batch_id:
        return False
    if marker.micro_batch_id != (0 if newest is None else newest + 1):
        raise MarkerLostError(
            f"{table} holds micro-batch {newest} of this checkpoint as its newest, but the next is "
            f"{marker.micro_batch_id}.",
            "The table was rolled back or its snapshots were expired by other means than lakeproof's. "
            "Compare with `reader verify` before going on with a new checkpoint.",
        )
    spark.conf.set("spark.wap.id", str(marker))
    try:
        frame.writeTo(f"{CATALOG}.{table}").append()
    finally:
        spark.conf.unset("spark.wap.id")
    return _publish(spark, table, marker)


def newest_micro_batch(spark: SparkSession, table: str, checkpoint_id: str) -> int | None:
    """Find the newest micro-batch of a checkpoint that a table holds."""
    for marked in marked_snapshots(spark, table):
        if marked.marker.checkpoint_id == checkpoint_id:
            return marked.marker.micro_batch_id
    return None


def marked_snapshots(spark: SparkSession, table: str) -> Iterator[MarkedSnapshot]:
    """Walk back from a table's current snapshot, and yield those with a marker.

    Not by time: clocks go back. Snapshots without one, such as compactions, are passed over.
    """
    loaded = _load(spark, table)
    snapshot = loaded.currentSnapshot()
    while snapshot is not None:
        summary, parent = snapshot.summary(), snapshot.parentId()
        marker = Marker.parse(summary.get(_PUBLISHED) or summary.get(_STAGED))
        if marker is not None:
            yield MarkedSnapshot(snapshot.snapshotId(), parent, marker)
        snapshot = None if parent is None else loaded.snapshot(parent)


def _publish(spark: SparkSession, table: str, marker: Marker) -> bool:
    loaded = _load(spark, table)
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
