"""What a lost checkpoint leaves behind: sources that are accounted for, and a micro-batch that was not finished."""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.bronze.append import MarkedSnapshot, Marker, marked_snapshots, newest_micro_batch
from lakeproof.catalog import CATALOG
from lakeproof.tables import LEDGER, SOURCE, StreamTables


def accounted_sources(spark: SparkSession, stream: str, sources: Iterable[str], checkpoint_id: str) -> set[str]:
    """Which of `sources` the ledger has from another checkpoint than `checkpoint_id`.

    A fresh checkpoint starts at the beginning of the landing log: what an earlier one finished must not come twice.
    """
    wanted = sorted(sources)
    ledger = spark.table(f"{CATALOG}.{LEDGER}").where(
        (F.col("stream") == stream)
        & (F.col("checkpoint_id") != checkpoint_id)
        # Narrows the files that are read: names sort by time, and so does the ledger.
        & F.col("source").between(wanted[0], wanted[-1])
    )
    names = spark.createDataFrame(pa.table({"source": wanted}))
    return {row.source for row in ledger.join(F.broadcast(names), "source").select("source").distinct().collect()}


def has_other_checkpoints(spark: SparkSession, stream: str, checkpoint_id: str) -> bool:
    """Whether the ledger has rows of the stream from another checkpoint: only then a look-up can find anything."""
    if next(marked_snapshots(spark, LEDGER), None) is None:
        return False  # nothing was ever taken; a query would take seconds to say so in a new session
    ledger = spark.table(f"{CATALOG}.{LEDGER}")
    return not ledger.where((F.col("stream") == stream) & (F.col("checkpoint_id") != checkpoint_id)).isEmpty()


def unfinished(spark: SparkSession, names: StreamTables) -> MarkedSnapshot | None:
    """Find the append to bronze whose micro-batch has no ledger rows.

    There is one at most, the newest: the next micro-batch does not begin before, and each start looks.
    """
    newest = next(marked_snapshots(spark, names.bronze), None)
    if newest is None:
        return None
    done = newest_micro_batch(spark, LEDGER, newest.marker.checkpoint_id)
    return None if done is not None and done >= newest.marker.micro_batch_id else newest


def units_of(spark: SparkSession, names: StreamTables, marker: Marker) -> dict[str, int]:
    """Which sources the appends of a micro-batch took units from, and how many of each went to bronze."""
    found: dict[str, int] = {}
    for table, to_bronze in ((names.bronze, 1), (names.dead_letters, 0)):
        snapshot = next((one for one in marked_snapshots(spark, table) if one.marker == marker), None)
        if snapshot is not None:
            for row in _appended(spark, table, snapshot).groupBy(SOURCE).agg(F.count("*").alias("n")).collect():
                found[row[SOURCE]] = found.get(row[SOURCE], 0) + to_bronze * row.n
    return found


def _appended(spark: SparkSession, table: str, snapshot: MarkedSnapshot) -> DataFrame:
    reader = spark.read.format("iceberg")
    if snapshot.parent_id is None:
        return reader.option("snapshot-id", snapshot.id).load(f"{CATALOG}.{table}")
    return (
        reader.option("start-snapshot-id", snapshot.parent_id)
        .option("end-snapshot-id", snapshot.id)
        .load(f"{CATALOG}.{table}")
    )
