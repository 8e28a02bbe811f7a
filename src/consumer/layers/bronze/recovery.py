"""What a micro-batch that was interrupted left in the tables."""

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.iceberg.marker import Marker
from lakeproof.catalog import CATALOG
from lakeproof.tables.names import MICRO_BATCH_ID, SOURCE, StreamTables


def unaccounted_units(spark: SparkSession, names: StreamTables, marker: Marker) -> dict[str, int]:
    """Which sources of a micro-batch the tables have and the ledger lacks, and how many units of each are in bronze."""
    found: dict[str, int] = {}
    for table, to_bronze in ((names.bronze, 1), (names.dead_letters, 0)):
        # Micro-batches of earlier checkpoints may have the same number: their sources are in the ledger.
        units = spark.table(f"{CATALOG}.{table}").where(F.col(MICRO_BATCH_ID) == marker.micro_batch_id)
        for row in units.groupBy(SOURCE).agg(F.count("*").alias("n")).collect():
            found[row[SOURCE]] = found.get(row[SOURCE], 0) + to_bronze * row.n
    known = _known_to(spark, names.ledger, sorted(found))
    return {source: count for source, count in found.items() if source not in known}


def _known_to(spark: SparkSession, ledger: str, sources: list[str]) -> set[str]:
    if not sources:
        return set()
    # The range narrows the files that are read: names sort by time, and so does the ledger.
    rows = spark.table(f"{CATALOG}.{ledger}").where(F.col("source").between(sources[0], sources[-1]))
    wanted = spark.createDataFrame(pa.table({"source": sources}))
    return {row.source for row in rows.join(F.broadcast(wanted), "source").select("source").distinct().collect()}
