"""The columns of Spark agree with the rule in plain Python: many random streams in one job, an hour apart."""

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from tests.consumer.layers.samples import model
from tests.consumer.layers.samples.lakes import NOON, SECOND
from tests.consumer.layers.samples.test_detectors import product

from consumer.layers.gold.columns import START
from consumer.layers.samples.columns import readings, sampled
from consumer.layers.samples.reading import Reading
from lakeproof.gold.samples import Detectors, Grouping

pytestmark = pytest.mark.spark

_HOUR = 3_600 * SECOND
_STREAMS = 150


def stream(chance: random.Random, begin: int) -> set[Reading]:
    """Return readings of two minutes: many with the same time, some at the ends of windows."""
    devices = ("a", "b", "ä", "A\U0001f600")[: chance.randint(1, 4)]
    return {
        Reading(
            begin + chance.choice((0, 30, 60, 90, chance.randint(0, 120))) * SECOND + chance.choice((0, 0, -1, 1)),
            chance.choice(devices),
            chance.choice((-1.5, 0.0, 1.0, 9.0, 9.5, chance.uniform(-1, 10))),
        )
        for _ in range(chance.randint(0, 25))
    }


@pytest.mark.parametrize("by", Grouping)
def test_samples_are_those_of_the_rule(spark: SparkSession, by: Grouping) -> None:
    chance = random.Random(by)
    samples = replace(product(Detectors()), by=by)
    streams = [stream(chance, begin) for begin in range(-3 * _HOUR, (_STREAMS - 3) * _HOUR, _HOUR)]
    streams.append(stream(chance, NOON))
    every = sorted(set.union(*streams))
    rows = spark.createDataFrame(
        [(each.device, each.value, each.at) for each in every], "device_id string, sensor_freq double, at long"
    ).withColumn("event_time", F.timestamp_micros("at"))
    found = sampled(readings(rows, samples), samples, F.col(START) > F.lit(-(2**62)), datetime.now(UTC))
    got = found.select(F.unix_micros("window_start").alias("w"), "device_id", "event_time", "sensor_freq", "roles")
    result = sorted(
        (row.w, row.device_id, int(row.at), row.sensor_freq, row.roles)
        for row in got.withColumn("at", F.unix_micros("event_time")).collect()
    )
    expected = sorted(
        ((start - model.EPOCH) // model.MICROSECOND, device, (at - model.EPOCH) // model.MICROSECOND, value, roles)
        for start, _, device, at, value, roles in model.windows(every, samples, 2**55)
    )
    assert len(expected) > _STREAMS
    assert result == expected
