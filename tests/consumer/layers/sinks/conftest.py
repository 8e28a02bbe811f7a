"""A lake of orders whose silver is filled by a test, for tests of sinks."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf
from tests.consumer.layers.gold.lakes import Silver, orders_lake
from tests.lakes import changed
from tests.servers import KafkaServer

from lakeproof.settings import Settings


@pytest.fixture
def lake(lake_settings: Settings, kafka: KafkaServer, tmp_path: Path) -> Settings:
    """Return the lake."""
    made = orders_lake(lake_settings, tmp_path)
    return changed(made, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, LAKE_TOPIC_PARTITIONS=2)


@pytest.fixture
def session(lake: Settings, session_of: SessionOf) -> SparkSession:
    """Return the session of the lake."""
    return session_of(lake)


@pytest.fixture
def silver(lake: Settings, session: SparkSession) -> Silver:
    """Return the rows that silver of the lake keeps."""
    return Silver(session, lake)
