"""The query of alerts, without Spark."""

from unittest.mock import MagicMock

from consumer.queries.alerts import _messages
from lakeproof.settings import settings_of


def test_a_start_before_1970_is_the_first_message() -> None:
    spark = MagicMock()
    _messages(spark, settings_of({"LAKE_KAFKA_STARTING_OFFSETS": "1900-01-01T00:00:00Z"}).kafka, "incoming")
    assert spark.readStream.format.return_value.options.call_args.kwargs["startingTimestamp"] == "0"
