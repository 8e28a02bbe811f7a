"""Times and their windows as columns of Spark, for what reads tables with Spark SQL."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.layers.gold.columns import micros
from lakeproof.gold.model import Window


def window_starts(at: Column, window: Window) -> Column:
    """The start of each window that a time is in, a row for each; both in microseconds since 1970."""
    size, every = micros(window.size), micros(window.every)
    newest = at - F.pmod(at, F.lit(every))
    return newest if size == every else F.explode(F.sequence(newest - (size - every), newest, F.lit(every)))


def timestamp(at: int) -> Column:
    """The same time for each row, from microseconds since 1970: Python's times end with the year 9999."""
    return F.timestamp_micros(F.lit(at).cast("long"))
