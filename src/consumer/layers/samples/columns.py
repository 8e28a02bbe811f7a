"""Samples of windows as Spark columns: no row is sent to Python before it is known to be a sample."""

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.layers.gold.columns import EPOCH, START, micros
from consumer.layers.gold.times import timestamp, window_starts
from lakeproof.gold.model import WINDOW_END, WINDOW_START
from lakeproof.gold.samples import ROLES, Grouping, Role, Samples
from lakeproof.tables.names import UPDATED_AT

AT = "_at"
"""Event time, in microseconds since 1970."""
DEVICE = "_device"
VALUE = "_value"
_ANOMALY = "_anomaly"
_NUMBER = "_number"
_COUNT = "_count"


def readings(rows: DataFrame, samples: Samples) -> DataFrame:
    """Return rows of silver as readings: :data:`AT`, :data:`DEVICE` and :data:`VALUE`."""
    return rows.select(
        F.unix_micros(_field(samples.event_time.name)).alias(AT),
        _field(samples.device.name).alias(DEVICE),
        _field(samples.value.name).alias(VALUE),
    ).where(F.col(AT).isNotNull())


def sampled(rows: DataFrame, samples: Samples, closed: Column, updated_at: datetime) -> DataFrame:
    """Return the samples of windows."""
    size, starts = micros(samples.window.size), window_starts(F.col(AT), samples.window)
    in_windows = rows.select(starts.alias(START), AT, DEVICE, VALUE, is_anomaly(samples).alias(_ANOMALY)).where(closed)
    group = [START, _ANOMALY, *([DEVICE] if samples.by is Grouping.DEVICE else [])]
    all_of_group = Window.partitionBy(*group)
    numbered = in_windows.withColumns(
        {
            _NUMBER: F.row_number().over(all_of_group.orderBy(AT, DEVICE, VALUE)) - 1,
            _COUNT: F.count(F.lit(1)).over(all_of_group),
        }
    )
    normal, number, count = ~F.col(_ANOMALY), F.col(_NUMBER), F.col(_COUNT)
    of_role = {
        Role.FIRST: normal & (number == 0),
        Role.MIDDLE: normal & (number == F.floor(count / 2)),
        Role.LAST: normal & (number == count - 1),
        Role.ANOMALY: F.col(_ANOMALY),
    }
    roles = F.array_compact(F.array(*(F.when(condition, F.lit(str(role))) for role, condition in of_role.items())))
    return (
        numbered.withColumn(ROLES, roles)
        .where(F.size(ROLES) > 0)
        .select(
            F.timestamp_micros(START).alias(WINDOW_START),
            F.timestamp_micros(F.col(START) + size).alias(WINDOW_END),
            F.col(DEVICE).alias(samples.device.name),
            F.timestamp_micros(AT).alias(samples.event_time.name),
            F.col(VALUE).alias(samples.value.name),
            ROLES,
            timestamp(micros(updated_at - EPOCH)).alias(UPDATED_AT),
        )
    )


def is_anomaly(samples: Samples) -> Column:
    """Return whether the value of a reading is outside the contract's range."""
    found = F.lit(False)
    if samples.minimum is not None:
        found |= F.col(VALUE) < F.lit(samples.minimum)
    if samples.maximum is not None:
        found |= F.col(VALUE) > F.lit(samples.maximum)
    return found


def _field(name: str) -> Column:
    return F.col(f"`{name}`")
