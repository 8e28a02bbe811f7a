"""The same jobs as the modes, with Spark's own operators: ``python -m benchmarks.sides.modes_plain windows``."""

import json
import os
import sys
import time
from pathlib import Path

import duckdb
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from benchmarks.modes import TOPIC
from consumer.spark.session import start_session
from lakeproof.settings import load_settings

WATERMARK, WINDOW = "10 minutes", "5 minutes"
_SCHEMA = "eventId string, userId string, amount decimal(18,6), eventType string, eventTime timestamp"


def main() -> None:
    """Run the job, timed; then count."""
    name, folder = sys.argv[1], Path(os.environ["BENCH_FOLDER"])
    settings = load_settings()
    spark = start_session(settings, "benchmark: plain")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    began = time.monotonic()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100000")
        .load()
    )
    event = F.from_json(F.col("value").cast("string"), _SCHEMA)
    rows = (
        messages.select(event.alias("event"), F.col("value").cast("string").alias("value"))
        .select("event.*", "value")
        .withWatermark("eventTime", WATERMARK)
        .dropDuplicatesWithinWatermark(["eventId"])
    )
    if name == "windows":
        rows = (
            rows.groupBy(F.window("eventTime", WINDOW).alias("window"), "userId")
            .agg(
                F.count("*").alias("event_count"),
                F.sum("amount").alias("amount_sum"),
                F.min("amount").alias("amount_min"),
                F.max("amount").alias("amount_max"),
            )
            .select("userId", "window.start", "window.end", "event_count", "amount_sum", "amount_min", "amount_max")
        )
    else:
        rows = rows.select("eventId", "eventTime", "value")
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.monotonic() - began
    spark.stop()
    print(json.dumps({"seconds": seconds} | written(folder / "out", name)))


def written(folder: Path, name: str) -> dict[str, int]:
    """Return the numbers of rows in the files, and of events in the rows."""
    events = "sum(event_count)" if name == "windows" else "count(*)"
    found = duckdb.sql(f"select count(*), {events} from '{folder}/*.parquet'").fetchone()
    rows, count = found or (0, 0)
    return {"rows": int(rows), "events": int(count)}


if __name__ == "__main__":
    main()
