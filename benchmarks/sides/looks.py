"""Times of the looks of bronze's query that take a micro-batch."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from consumer.queries.bronze import BronzeQuery


@contextmanager
def timed_looks(note: Callable[[float], object]) -> Iterator[None]:
    """Within the context, call `note` with the seconds of each look that takes a micro-batch."""
    look = BronzeQuery.look

    def timed(self: BronzeQuery, spark: SparkSession) -> bool:
        began = time.perf_counter()
        took = look(self, spark)
        if took:
            note(time.perf_counter() - began)
        return took

    BronzeQuery.look = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        BronzeQuery.look = look  # type: ignore[method-assign]
