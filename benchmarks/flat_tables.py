"""Create tables with a long history quickly: many appends in one transaction."""

import gc
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from consumer.iceberg.data_files import DataFile
from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.catalog import CATALOG

CHECKPOINT, QUERY = "a checkpoint", "bronze-events"
_APPENDS_OF_A_TRANSACTION = 500
_MANIFESTS_OF_A_MERGE = 100


def marker(micro_batch_id: int) -> Marker:
    return Marker(CHECKPOINT, micro_batch_id, "digest", f"{micro_batch_id}:", f"{micro_batch_id + 1}:")


def append_many(spark: SparkSession, table: str, appends: Sequence[tuple[Marker, Iterable[DataFile]]]) -> None:
    """Create one snapshot per append, with the same marker as an append of the consumer.

    The snapshots of a transaction are created one after another, but its metadata file is written once.
    """
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{CATALOG}.{table}")
    bounds = iceberg.MetricsConfig.forTable(loaded)
    known: dict[DataFile, Any] = {}
    for begin in range(0, len(appends), _APPENDS_OF_A_TRANSACTION):
        transaction = loaded.newTransaction()
        for number, (which, files) in enumerate(appends[begin : begin + _APPENDS_OF_A_TRANSACTION], start=1):
            # The consumer's appends merge manifests once there are 100; checking for that at each append takes longer.
            append = transaction.newFastAppend() if number % _MANIFESTS_OF_A_MERGE else transaction.newAppend()
            for file in files:
                if file not in known:
                    written = loaded.io().newInputFile(file.uri, file.size)
                    metrics = iceberg.parquet.ParquetUtil.fileMetrics(written, bounds)
                    data_file = iceberg.DataFiles.builder(loaded.spec()).withInputFile(written).withMetrics(metrics)
                    known[file] = data_file.withPartitionPath(file.partition).build()
                append.appendFile(known[file])
            append.set(property_of(QUERY), Committed(which, 0, 0).as_text())
            append.commit()
            newest = transaction.table().currentSnapshot()
            last = Committed(which, newest.snapshotId(), newest.sequenceNumber())
        transaction.updateProperties().set(property_of(QUERY), last.as_text()).commit()
        transaction.commitTransaction()
        del transaction, append
        gc.collect()  # the JVM keeps a transaction, with the metadata of each append, until Python has collected it
        loaded.refresh()
