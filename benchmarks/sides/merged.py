"""The usual way from bronze to silver and gold: MERGE for each micro-batch, in foreachBatch, on persisted rows.

Written first, and not changed since. It uses lakeproof's session, catalog, file format and partitions.
"""

import json
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from benchmarks.sides.bronze import HORIZON_DAYS, fill_bronze
from benchmarks.sides.counts import count
from consumer.spark.session import start_session
from lakeproof.settings import load_settings

_PROPERTIES = (
    "'format-version'='2', 'write.parquet.compression-codec'='zstd', 'write.distribution-mode'='none', "
    "'write.merge.mode'='merge-on-read', 'write.spark.fanout.enabled'='true'"
)
_MEASURES = (
    "count(*) AS event_count, count(CASE WHEN event_type = 'purchase' THEN 1 END) AS purchases, "
    "sum(amount) AS total_amount, count(DISTINCT product_id) AS products"
)


def process(batch: DataFrame, _batch_id: int) -> None:
    """Insert the rows whose keys are not in silver; then recompute the windows of the micro-batch."""
    spark = batch.sparkSession
    rows = batch.dropDuplicates(["event_id"]).persist()
    rows.createOrReplaceTempView("new_rows")
    (oldest,) = rows.agg(F.min("event_timestamp")).first() or (None,)
    if oldest is None:
        return
    spark.sql(
        "MERGE INTO lake.usual.silver AS s USING new_rows AS n ON s.event_id = n.event_id "
        f"AND s.event_timestamp >= TIMESTAMP '{oldest}' - INTERVAL {HORIZON_DAYS} DAYS "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    touched = rows.select(F.date_trunc("hour", "event_timestamp").alias("window_start"), "user_id").distinct().persist()
    touched.createOrReplaceTempView("touched")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW corrected AS "
        f"SELECT t.window_start, t.user_id, {_MEASURES} FROM lake.usual.silver AS s JOIN touched AS t "
        "ON date_trunc('hour', s.event_timestamp) = t.window_start AND s.user_id = t.user_id "
        f"WHERE s.event_timestamp >= date_trunc('hour', TIMESTAMP '{oldest}') GROUP BY ALL"
    )
    spark.sql(
        "MERGE INTO lake.usual.gold AS g USING corrected AS c "
        "ON g.window_start = c.window_start AND g.user_id = c.user_id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    touched.unpersist()
    rows.unpersist()


def main() -> None:
    """Fill bronze; then, timed, run the stream over it; then count."""
    fill_bronze()
    settings = load_settings()
    spark = start_session(settings, "benchmark: MERGE")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.usual")
    spark.sql(
        "CREATE TABLE lake.usual.silver (user_id string, event_id string, event_timestamp timestamp, "
        "event_type string, product_id string, amount decimal(12,2), properties map<string, string>, _source string, "
        "_position bigint) "
        f"USING iceberg PARTITIONED BY (days(event_timestamp)) TBLPROPERTIES ({_PROPERTIES})"
    )
    spark.sql(
        "CREATE TABLE lake.usual.gold (window_start timestamp, user_id string, event_count bigint, purchases bigint, "
        "total_amount decimal(22,2), products bigint) "
        f"USING iceberg PARTITIONED BY (days(window_start)) TBLPROPERTIES ({_PROPERTIES})"
    )
    columns = [field.name for field in spark.table("lake.usual.silver").schema]
    began = time.monotonic()
    query = (
        spark.readStream.option("streaming-max-rows-per-micro-batch", "100000")
        .table("lake.bronze.events")
        .select(*columns)
        .writeStream.option("checkpointLocation", f"{settings.state.checkpoints}/merged")
        .trigger(availableNow=True)
        .foreachBatch(process)
        .start()
    )
    query.awaitTermination()
    seconds = time.monotonic() - began
    spark.stop()
    print(
        json.dumps({"seconds": seconds, "state_bytes": 0} | count(settings, silver="usual.silver", gold="usual.gold"))
    )


if __name__ == "__main__":
    main()
