"""Spark's own operators from bronze to gold: dropDuplicatesWithinWatermark, then windows; state in RocksDB."""

import json
import time

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from benchmarks.sides.bronze import HORIZON_DAYS, fill_bronze
from benchmarks.sides.counts import count
from consumer.spark.session import start_session
from lakeproof.settings import load_settings


def main() -> None:
    """Fill bronze; then, timed, run the stream over it; then count."""
    fill_bronze()
    settings = load_settings()
    spark = start_session(settings, "benchmark: stateful")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.usual")
    spark.sql(
        "CREATE TABLE lake.usual.gold (window_start timestamp, user_id string, event_count bigint, purchases bigint, "
        "total_amount decimal(22,2), products bigint) USING iceberg"
    )
    began = time.monotonic()
    query = (
        spark.readStream.option("streaming-max-rows-per-micro-batch", "100000")
        .table("lake.bronze.events")
        .withWatermark("event_timestamp", f"{HORIZON_DAYS} days")
        .dropDuplicatesWithinWatermark(["event_id"])
        .groupBy(F.window("event_timestamp", "1 hour").alias("window"), "user_id")
        .agg(
            F.count("*").alias("event_count"),
            F.count(F.when(F.col("event_type") == "purchase", 1)).alias("purchases"),
            F.sum("amount").alias("total_amount"),
            F.approx_count_distinct("product_id").alias("products"),
        )
        .select(
            F.col("window.start").alias("window_start"),
            "user_id",
            "event_count",
            "purchases",
            "total_amount",
            "products",
        )
        .writeStream.option("checkpointLocation", f"{settings.state.checkpoints}/stateful")
        .outputMode("append")
        .trigger(availableNow=True)
        .toTable("lake.usual.gold")
    )
    query.awaitTermination()
    seconds = time.monotonic() - began
    progress = [each for each in query.recentProgress if each["stateOperators"]]
    state = sum(each["memoryUsedBytes"] for each in progress[-1]["stateOperators"]) if progress else 0
    spark.stop()
    print(json.dumps({"seconds": seconds, "state_bytes": state, "silver": 0} | count(settings, gold="usual.gold")))


if __name__ == "__main__":
    main()
