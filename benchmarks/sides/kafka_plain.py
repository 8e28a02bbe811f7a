"""Kafka to three Iceberg tables in plain Spark: ``python -m benchmarks.sides.kafka_plain RECORDS_AT_ONCE``."""

import json
import sys
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from benchmarks.sides.bronze import HORIZON_DAYS
from benchmarks.sides.counts import count
from benchmarks.sides.usual import EVENT
from consumer.spark.session import start_session
from lakeproof.catalog import open_catalog
from lakeproof.settings import load_settings

_FIELDS = (
    "user_id string, event_id string, event_timestamp timestamp, event_type string, product_id string, "
    "amount decimal(12,2), properties map<string, string>"
)
_BY_DAY = (
    "USING iceberg PARTITIONED BY (days(event_timestamp)) TBLPROPERTIES ('format-version'='2', "
    "'write.parquet.compression-codec'='zstd', 'write.distribution-mode'='none', 'write.spark.fanout.enabled'='true')"
)


def main() -> None:
    """Create the tables; then, timed, fill each from the previous one; then count."""
    settings, at_once = load_settings(), sys.argv[1]
    open_catalog(settings)
    spark = start_session(settings, "benchmark: plain")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.usual")
    spark.sql(f"CREATE TABLE lake.usual.bronze ({_FIELDS}, topic string, `offset` bigint) {_BY_DAY}")
    spark.sql(f"CREATE TABLE lake.usual.silver ({_FIELDS}) {_BY_DAY}")
    spark.sql(
        "CREATE TABLE lake.usual.gold (window_start timestamp, user_id string, event_count bigint, purchases bigint, "
        "total_amount decimal(22,2), products bigint) USING iceberg"
    )

    def append(rows: DataFrame, table: str) -> None:
        writer = rows.writeStream.option("checkpointLocation", f"{settings.state.checkpoints}/{table}")
        writer.outputMode("append").trigger(availableNow=True).toTable(f"lake.usual.{table}").awaitTermination()

    def follow(table: str) -> DataFrame:
        reader = spark.readStream.option("streaming-max-rows-per-micro-batch", at_once)
        return reader.table(f"lake.usual.{table}").withWatermark("event_timestamp", f"{HORIZON_DAYS} days")

    began = time.monotonic()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka.bootstrap_servers)
        .option("subscribe", settings.kafka.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", at_once)
        .load()
    )
    event = F.from_json(F.col("value").cast("string"), EVENT).alias("event")
    append(messages.select(event, "topic", "offset").select("event.*", "topic", "offset"), "bronze")
    append(follow("bronze").dropDuplicatesWithinWatermark(["event_id"]).drop("topic", "offset"), "silver")
    windows = (
        follow("silver")
        .groupBy(F.window("event_timestamp", "1 hour").alias("window"), "user_id")
        .agg(
            F.count("*").alias("event_count"),
            F.count(F.when(F.col("event_type") == "purchase", 1)).alias("purchases"),
            F.sum("amount").alias("total_amount"),
            F.approx_count_distinct("product_id").alias("products"),
        )
    )
    measures = ("event_count", "purchases", "total_amount", "products")
    counts = windows.select(F.col("window.start").alias("window_start"), "user_id", *measures)
    append(counts, "gold")
    seconds = time.monotonic() - began
    spark.stop()
    tables = {layer: f"usual.{layer}" for layer in ("bronze", "silver", "gold")}
    print(json.dumps({"seconds": seconds} | count(settings, **tables)))


if __name__ == "__main__":
    main()
