"""Appends that happen once, however often a micro-batch is tried.

Each append carries a marker in the Iceberg snapshot's summary: which checkpoint, which micro-batch, which contract.
A table that already holds the marker is left as it is. The keys are lower case, since Spark lower-cases writer options.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError

CHECKPOINT_ID = "lakeproof.checkpoint-id"
MICRO_BATCH_ID = "lakeproof.micro-batch-id"
CONTRACT = "lakeproof.contract"


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
    newest = newest_micro_batch(frame.sparkSession, table, marker.checkpoint_id)
    if newest is not None and newest >= marker.micro_batch_id:
        return False
    if marker.micro_batch_id != (0 if newest is None else newest + 1):
        raise MarkerLostError(
            f"{table} holds micro-batch {newest} of this checkpoint as its newest, but the next is "
            f"{marker.micro_batch_id}.",
            "The table was rolled back or its snapshots were expired by other means than lakeproof's. "
            "Compare with `reader verify` before going on with a new checkpoint.",
        )
    writer = frame.writeTo(f"{CATALOG}.{table}")
    for key, value in _properties(marker).items():
        writer = writer.option(f"snapshot-property.{key}", value)
    writer.append()
    return True


def newest_micro_batch(spark: SparkSession, table: str, checkpoint_id: str) -> int | None:
    """Find the newest micro-batch of a checkpoint that a table holds, by walking back from its current snapshot.

    Not "the latest by time": compactions carry no marker, and clocks go back.
    """
    jvm: Any = spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{CATALOG}.{table}")
    snapshot = loaded.currentSnapshot()
    while snapshot is not None:
        summary = snapshot.summary()
        if summary.get(CHECKPOINT_ID) == checkpoint_id:
            return int(summary.get(MICRO_BATCH_ID))
        parent = snapshot.parentId()
        snapshot = None if parent is None else loaded.snapshot(parent)
    return None


def _properties(marker: Marker) -> dict[str, str]:
    return {
        CHECKPOINT_ID: marker.checkpoint_id,
        MICRO_BATCH_ID: str(marker.micro_batch_id),
        CONTRACT: marker.contract,
    }
