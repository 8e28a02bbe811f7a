"""Queries of lakeproof, run as `consumer run` runs them, and timed from the start of the Spark session."""

import time
from collections.abc import Sequence

from pyspark.sql import SparkSession

from consumer.layers.bronze.tasks import warm_up_beside
from consumer.queries.application import Query, run_queries
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.settings import Settings


def timed_queries(settings: Settings, queries: Sequence[Query]) -> float:
    """Run queries until everything is committed; return the seconds since the session had started.

    As in `consumer run`, tables are made while the session starts. Other sides make theirs before their clock starts.
    """
    sessions: list[SparkSession] = []
    began = 0.0

    def start() -> SparkSession:
        nonlocal began
        sessions.append(start_session(settings, "benchmark: lakeproof", PLANNING_ONLY))
        began = time.monotonic()
        return warm_up_beside(sessions[0])

    run_queries(settings, queries, start, available_now=True)
    seconds = time.monotonic() - began
    sessions[0].stop()
    return seconds
