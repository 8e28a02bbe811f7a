"""One Spark session for all tests of the consumer, with the embedded catalog in a temporary folder."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from consumer.session import start_session
from lakeproof.settings import Settings


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of the session's own lake."""
    return Settings(home=tmp_path_factory.mktemp("lake"), spark_ui_port=0, settle_seconds=0.2)


@pytest.fixture(scope="session")
def spark(spark_settings: Settings) -> Iterator[SparkSession]:
    """The session. Its catalog ``lake`` is that of `spark_settings`."""
    session = start_session(spark_settings, "lakeproof tests")
    yield session
    session.stop()
