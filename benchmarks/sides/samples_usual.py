"""Samples of windows in the usual way: a list of each window's readings, in applyInPandasWithState.

``python -m benchmarks.sides.samples_usual 10000 30 30 60``. It uses lakeproof's session, catalog, silver and
file format.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from benchmarks.sides.lists_of_windows import OUTPUT, STATE, sample
from benchmarks.sides.readings import Kept, Load, Silver, compared, follow
from consumer.spark.session import start_session
from lakeproof.settings import load_settings


def main() -> None:
    """Process each commit of silver, timed."""
    load = Load(*(int(argument) for argument in sys.argv[1:]))
    settings = load_settings()
    spark = start_session(settings, "benchmark: applyInPandasWithState")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    silver = Silver(spark, settings)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.usual")
    spark.sql(
        "CREATE TABLE lake.usual.samples (window_start timestamp, device_id string, event_time timestamp, "
        "sensor_freq double, roles array<string>) USING iceberg PARTITIONED BY (days(window_start))"
    )
    checkpoint = Path(f"{settings.home}/checkpoints/usual")
    samples = (
        spark.readStream.table("lake.silver.sensors")
        .withWatermark("event_time", "30 seconds")
        .select(
            F.window("event_time", "60 seconds", "30 seconds").alias("window"),
            "event_time",
            "device_id",
            "sensor_freq",
            F.unix_micros("event_time").alias("at"),
        )
        .withColumns({"start": F.unix_micros("window.start"), "end": F.unix_micros("window.end")})
        .drop("window")
        .groupBy("start", "end")  # columns: Spark does not resolve an expression here
        .applyInPandasWithState(sample, OUTPUT, STATE, "append", GroupStateTimeout.EventTimeTimeout)
        .withColumn("window_start", F.timestamp_micros("window_start"))
        .withColumn("event_time", F.timestamp_micros("event_time"))
    )
    query: StreamingQuery | None = None

    def take() -> None:
        nonlocal query
        if query is None:
            writer = samples.writeStream.option("checkpointLocation", str(checkpoint)).outputMode("append")
            query = writer.toTable("lake.usual.samples")
        query.processAllAvailable()

    def kept() -> Kept:
        """Return Spark's size of the state in memory, and the size of the state files in the checkpoint."""
        progress = query.lastProgress if query else None
        operators = progress["stateOperators"] if progress else []
        files = [path for path in (checkpoint / "state").rglob("*") if path.is_file()]
        return Kept(sum(each["memoryUsedBytes"] for each in operators), sum(path.stat().st_size for path in files))

    figures = follow(silver, load, take, kept)
    spark.stop()
    print(json.dumps(figures | compared(settings, "usual.samples", load)))


if __name__ == "__main__":
    main()
