"""Running a stream over a topic."""

from collections.abc import Callable

import pytest
from tests.consumer.lake import SessionOf
from tests.lakes import changed
from tests.servers import KafkaServer

from consumer.app import run_queries
from consumer.queries.bronze import BronzeQuery, Trigger
from lakeproof.settings import Settings

Take = Callable[..., None]


@pytest.fixture
def take(session_of: SessionOf, kafka: KafkaServer, lake_settings: Settings) -> Take:
    """Run the stream of events over all messages of a topic."""

    def run(topic: str, **variables: object) -> None:
        own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic, **variables}
        settings = changed(lake_settings, **own)
        query = BronzeQuery(settings, "events", Trigger(available_now=True), "kafka")
        run_queries(settings, [query], lambda: session_of(settings), available_now=True)

    return run
