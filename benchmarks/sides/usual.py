"""The usual consumer: Spark's JSON functions, and two appends in foreachBatch. Written first, and not changed since.

It has the same session, JVM, catalog, file format and partitions as lakeproof. Its tables exist before its clock
starts. It is not tuned in either direction; with ``--persisted`` the judged records are kept in memory.
"""

import json
import sys
import time
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import DecimalType, MapType, StringType, StructField, StructType, TimestampType

from benchmarks.sides.counts import count
from consumer.spark.session import start_session
from lakeproof.catalog import open_catalog
from lakeproof.settings import load_settings

BRONZE, DEAD_LETTERS = "usual.bronze", "usual.dead_letters"
EVENT = StructType(
    [
        StructField("user_id", StringType()),
        StructField("event_id", StringType()),
        StructField("event_timestamp", TimestampType()),
        StructField("event_type", StringType()),
        StructField("product_id", StringType()),
        StructField("amount", DecimalType(12, 2)),
        StructField("properties", MapType(StringType(), StringType())),
    ]
)
REQUIRED = ("user_id", "event_id", "event_timestamp", "event_type")
TYPES = ("page_view", "purchase")


def create_tables(spark: SparkSession) -> None:
    """Create both tables; like lakeproof's, without a shuffle before a write."""
    properties = (
        "'format-version'='2', 'write.parquet.compression-codec'='zstd', 'write.distribution-mode'='none', "
        "'write.spark.fanout.enabled'='true'"
    )
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.usual")
    spark.sql(
        f"CREATE TABLE lake.{BRONZE} (user_id string, event_id string, event_timestamp timestamp, event_type string, "
        "product_id string, amount decimal(12,2), properties map<string, string>, _source string, "
        f"_ingested_at timestamp) USING iceberg PARTITIONED BY (days(event_timestamp)) TBLPROPERTIES ({properties})"
    )
    spark.sql(
        f"CREATE TABLE lake.{DEAD_LETTERS} (raw string, reason string, _source string, _ingested_at timestamp) "
        f"USING iceberg PARTITIONED BY (days(_ingested_at)) TBLPROPERTIES ({properties})"
    )


def process(batch: DataFrame, batch_id: int, persisted: bool = False) -> None:
    """Parse the files of a micro-batch, divide the records by reason, count both parts, append both parts.

    Parameters
    ----------
    batch, batch_id
        Arguments from foreachBatch.
    persisted
        Whether to keep the judged records between the four passes, as a good engineer would.
    """
    # A file that is not an array becomes one record with its whole text, which then fails to parse.
    records = batch.select(
        "_source",
        F.explode(F.coalesce(F.from_json("value", "array<string>"), F.array("value"))).alias("raw"),
    )
    parsed = records.select(
        "_source",
        "raw",
        F.from_json("raw", EVENT).alias("event"),
        F.from_json("raw", "map<string,string>").alias("all_fields"),
    )
    missing = [F.col(f"event.{name}").isNull() for name in REQUIRED]
    unknown = F.array_except(F.map_keys("all_fields"), F.array(*(F.lit(name) for name in EVENT.fieldNames())))
    reason = (
        F.when(F.col("all_fields").isNull(), "corrupt")
        .when(missing[0] | missing[1] | missing[2] | missing[3], "missing_field")
        .when(~F.col("event.event_type").isin(*TYPES), "wrong_value")
        .when(F.size(unknown) > 0, "unknown_field")
    )
    judged = parsed.withColumn("reason", reason).withColumn("_ingested_at", F.current_timestamp())
    if persisted:
        judged = judged.persist()
    good = judged.where("reason is null").select("event.*", "_source", "_ingested_at")
    bad = judged.where("reason is not null").select("raw", "reason", "_source", "_ingested_at")
    message = {"batch": batch_id, "good": good.count(), "bad": bad.count()}
    print(json.dumps(message))
    good.writeTo(f"lake.{BRONZE}").append()
    bad.writeTo(f"lake.{DEAD_LETTERS}").append()
    judged.unpersist()


def main() -> None:
    """Start Spark and create the tables; then, timed, run the stream over all landed files; then count."""
    settings = load_settings()
    open_catalog(settings)
    spark = start_session(settings, "benchmark: the usual consumer")
    create_tables(spark)
    began = time.monotonic()
    files = spark.readStream.option("recursiveFileLookup", "true").text(
        f"{settings.landing.uri}/events", wholetext=True
    )
    query = (
        files.select("value", F.col("_metadata.file_path").alias("_source"))
        .writeStream.option("checkpointLocation", f"{settings.state.checkpoints}/usual")
        .trigger(availableNow=True)
        .foreachBatch(partial(process, persisted="--persisted" in sys.argv))
        .start()
    )
    query.awaitTermination()
    seconds = time.monotonic() - began
    spark.stop()
    print(json.dumps({"seconds": seconds} | count(settings, bronze=BRONZE, dead_letters=DEAD_LETTERS)))


if __name__ == "__main__":
    main()
