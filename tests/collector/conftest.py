"""Fixtures of the collector's tests: collectors as processes."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.collector.running import Collector
from tests.servers import KafkaServer

Start = Callable[..., Collector]


def own_topics(kafka: KafkaServer) -> dict[str, str]:
    """Return settings of a collector with its own topics."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    return {
        "LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "LAKE_COLLECTOR_TOPIC": name,
        "LAKE_COLLECTOR_PROBE_TOPIC": f"{name}.probes",
        "LAKE_TOPIC_PARTITIONS": "3",
    }


@pytest.fixture
def start_collector(kafka: KafkaServer, tmp_path: Path) -> Iterator[Start]:
    """Start collectors with their own topics; arguments are settings without ``LAKE_``, in lower case."""
    with ExitStack() as stack:

        def start(**settings: object) -> Collector:
            own = {f"LAKE_{name.upper()}": str(value) for name, value in settings.items()}
            folder = tmp_path / uuid.uuid4().hex[:8]
            return stack.enter_context(Collector(folder, own_topics(kafka) | own))

        yield start


@pytest.fixture(scope="session")
def lasting_collector(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector with the default settings for the whole test run."""
    with Collector(tmp_path_factory.mktemp("collector"), own_topics(kafka)) as running:
        yield running


@pytest.fixture
def collector(lasting_collector: Collector) -> Collector:
    """The lasting collector, ready: another test may have just killed the broker. Tests must not change its state."""
    return lasting_collector.ready()
