"""What a query says while its sink is away."""

from collections.abc import Iterator
from typing import cast

import structlog
from pyspark.sql import SparkSession

from consumer.queries.bronze import Trigger
from consumer.queries.publishing import Publisher, PublishingQuery
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease

START, CREATE = "Start the brokers.", "Create the topic."


class Publishing:
    """A publisher whose brokers are away, then have no topic, then take a micro-batch, then are away again."""

    def __init__(self) -> None:
        self.count = 0
        self._faults: Iterator[UnavailableError | None] = iter(
            [
                UnavailableError("Kafka does not respond.", START),
                UnavailableError("Kafka does not respond: Connect to port 1 failed after 0ms.", START),
                UnavailableError("Kafka has no topic t.", CREATE),
                None,
                UnavailableError("Kafka does not respond: Connect to port 1 failed after 1ms.", START),
            ]
        )

    def take(self, spark: SparkSession) -> bool:
        fault = next(self._faults)
        if fault:
            raise fault
        return True


def test_a_sink_that_is_away_is_reported_once(lake_settings: Settings) -> None:
    query = PublishingQuery(
        lake_settings, "gold.x-to-t", "gold x", "orders", lambda _: cast(Publisher, Publishing()), Trigger()
    )
    spark = cast(SparkSession, None)
    query.resume(spark, cast(Lease, None))
    with structlog.testing.capture_logs() as logs:
        assert [query._take(spark) for _ in range(5)] == [False, False, False, True, False]
    assert [line["hint"] for line in logs] == [START, CREATE, START]
