"""Run a stream over a topic."""

from collections.abc import Callable

import pytest
from tests.consumer.direct import run_in_turn
from tests.consumer.lake import SessionOf
from tests.consumer.taking import layer_queries
from tests.lakes import changed
from tests.servers import KafkaServer

from consumer.queries.application import Query, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.past import PastQuery
from consumer.queries.trigger import Trigger
from consumer.scope import Period
from lakeproof.settings import Settings

Take = Callable[..., None]


def take_into(lake: Settings, session_of: SessionOf, kafka: KafkaServer) -> Take:
    """Return a function that runs the stream of events over all messages of a topic, into a lake."""

    def run(
        topic: str, *, silver: bool = False, past: Period | None = None, threads: bool = False, **variables: object
    ) -> None:
        own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic, **variables}
        settings = changed(lake, **own)
        trigger = Trigger(available_now=True)
        streaming = BronzeQuery(settings, "events", trigger, "kafka")
        followers = layer_queries(settings, "events", trigger) * silver
        if past or threads:  # a batch over the past decides in its own thread what it takes
            queries: list[Query] = [PastQuery(settings, "events", past) if past else streaming, *followers]
            run_queries(settings, queries, lambda: session_of(settings), available_now=True)
        else:
            run_in_turn(session_of(settings), settings, [streaming, *followers])

    return run


@pytest.fixture
def take(session_of: SessionOf, kafka: KafkaServer, lake_settings: Settings) -> Take:
    """Return a function that runs the stream of events over all messages of a topic."""
    return take_into(lake_settings, session_of, kafka)
