"""What verdicts depend on."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from consumer.silver.compared import content_hash
from lakeproof.contracts import Contract, Field, PrimitiveType

pytestmark = pytest.mark.spark

SCHEMA = "a string, b string, at timestamp, d double, m map<string, string>, n struct<l array<map<string, double>>>"
# The hash goes by Spark's types; those of the contract are not looked at.
NAMES = ("a", "b", "at", "d", "m", "n")
CONTRACT = Contract("t", "1", "", tuple(Field(name, PrimitiveType.STRING) for name in NAMES), (), "at")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT = datetime(2026, 11, 22, 8, 0, 0, 1, UTC)
BASE: dict[str, Any] = {
    "a": "x",
    "b": None,
    "at": AT,
    "d": 0.0,
    "m": {"k": "1", "l": None},
    "n": {"l": [{"p": 0.0, "q": 1.5}]},
}


def hashes(spark: SparkSession, *rows: dict[str, Any]) -> list[bytes]:
    frame = spark.createDataFrame([tuple((BASE | row)[name] for name in NAMES) for row in rows], SCHEMA)
    return [bytes(row[0]) for row in frame.select(content_hash(frame, CONTRACT)).collect()]


@pytest.mark.parametrize(
    "other",
    [
        {"d": -0.0},
        {"m": {"l": None, "k": "1"}},
        {"n": {"l": [{"q": 1.5, "p": -0.0}]}},
        {"at": AT.astimezone(None)},
    ],
    ids=["minus zero", "order of a map", "within", "zone"],
)
def test_equal_content(spark: SparkSession, other: dict[str, Any]) -> None:
    one, two = hashes(spark, {}, other)
    assert one == two


@pytest.mark.parametrize(
    "other",
    [
        {"a": None, "b": "x"},
        {"a": ""},
        {"a": None},
        {"at": AT + timedelta(microseconds=1)},
        {"d": None},
        {"m": {"k": "1"}},
        {"m": {}},
        {"m": None},
        {"n": None},
        {"n": {"l": None}},
        {"n": {"l": []}},
        {"n": {"l": [{"p": 0.0}, {"q": 1.5}]}},
    ],
    ids=str,
)
def test_other_content(spark: SparkSession, other: dict[str, Any]) -> None:
    one, two = hashes(spark, {}, other)
    assert one != two
