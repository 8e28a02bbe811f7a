"""Times and their windows as Spark columns, for code that reads tables with Spark SQL."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.layers.gold.columns import micros
from lakeproof.gold.model import Window


def window_starts(at: Column, window: Window) -> Column:
    """Return the start of each window that a time is in, one row each; both in microseconds since 1970."""
    size, every = micros(window.size), micros(window.every)
    newest = at - F.pmod(at, F.lit(every))
    return newest if size == every else F.explode(F.sequence(newest - (size - every), newest, F.lit(every)))


def timestamp(at: int) -> Column:
    """Return a constant time, from microseconds since 1970: Python's times end with the year 9999."""
    return F.timestamp_micros(F.lit(at).cast("long"))
