"""Which columns of a row become a message."""

import json

import pytest
from pyspark.sql import SparkSession

from consumer.layers.sinks.messages import of_silver
from lakeproof.tables.names import MICRO_BATCH_ID, POSITION, RESCUED, SOURCE

pytestmark = pytest.mark.spark


def test_a_row_of_silver_is_sent_without_columns_of_the_lake(spark: SparkSession) -> None:
    """Rescued values are of no field of the contract, or did not fit it."""
    names = ["id", "total", SOURCE, POSITION, MICRO_BATCH_ID, RESCUED]
    kinds = ["string", "long", "string", "long", "long", "map<string,string>"]
    schema = ", ".join(f"`{name}` {kind}" for name, kind in zip(names, kinds, strict=True))
    rows = spark.createDataFrame([("a", 1, "1.json", 0, 0, {"$.extra": "2"})], schema)
    (message,) = of_silver(rows, ["id"]).collect()
    assert (bytes(message.key), json.loads(message.value)) == (b"a", {"id": "a", "total": 1})
