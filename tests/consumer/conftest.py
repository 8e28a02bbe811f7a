"""One Spark session for all tests of the consumer; each lake gets a clone with its own catalog."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.consumer import direct
from tests.consumer.lake import Drain, Invoke, SessionOf
from tests.lakes import changed, variables
from tests.servers import PASSWORD, KafkaServer, MinioServer
from typer.testing import CliRunner

from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.catalog import open_catalog, spark_properties
from lakeproof.settings import Settings, settings_of

ROOT = Path(__file__).parents[2]
SECRETS = {
    "AWS_ACCESS_KEY_ID": MinioServer.key[0],
    "AWS_SECRET_ACCESS_KEY": MinioServer.key[1],
    "LAKE_SOURCE_ACCESS_KEY_ID": MinioServer.key[0],
    "LAKE_SOURCE_SECRET_ACCESS_KEY": MinioServer.key[1],
    "LAKE_KAFKA_SASL_PASSWORD": KafkaServer.password,
    "PGPASSWORD": PASSWORD,
}
"""Variables with the secrets of all lakes."""


@pytest.fixture(scope="module", autouse=True)
def _short_waits() -> Iterator[None]:
    """Let clients of Kafka wait less: at the end of a partition, and for topics, which tests create before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("consumer.removal.topics._SECONDS", 0.05)
        patch.setattr("lakeproof.kafka.topic._NEW_TOPIC_SECONDS", 1.5)
        patch.setattr("reader.verify.landed.messages._POLL_SECONDS", 0.05)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the session, with a catalog ``lake`` in a temporary folder."""
    settings = settings_of(
        {
            "LAKE_HOME": tmp_path_factory.mktemp("lake"),
            "LAKE_JARS": ROOT / "target" / "jars" / "spark",
            "LAKE_SPARK_UI_PORT": 0,
        }
    )
    open_catalog(settings)
    with pytest.MonkeyPatch.context() as patch:
        # Lakes of tests are created later, but workers find their secrets in the environment from the start.
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        session = start_session(settings, "lakeproof tests", PLANNING_ONLY)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def session_of(spark: SparkSession) -> SessionOf:
    """Return a function that makes a session whose catalog is a lake's."""

    def make(settings: Settings) -> SparkSession:
        session = spark.newSession()
        # As in a program, whose only session is the active one: Iceberg gets its catalogs from the active session.
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]
        for key, value in spark_properties(settings).items():
            # Settings of a session reach Hadoop without the prefix that settings of a context need.
            session.conf.set(key.removeprefix("spark.hadoop."), value)
        session.conf.set("spark.sql.shuffle.partitions", "2")  # with 200, maintenance would take ten times as long
        return session

    return make


@pytest.fixture(scope="session")
def drain(session_of: SessionOf) -> Drain:
    """Return a function that runs a stream of a lake over everything that has landed."""

    def run(settings: Settings, stream: str = "events") -> None:
        settings = changed(settings, LAKE_SETTLE_SECONDS=0)  # the files are complete when this is called
        query = BronzeQuery(settings, stream, Trigger(available_now=True))
        run_queries(settings, [query], lambda: session_of(settings), available_now=True)

    return run


@pytest.fixture(scope="session")
def drain_directly(session_of: SessionOf) -> Drain:
    """Return `drain` without threads and sessions of its own: see :func:`tests.consumer.direct.run_in_turn`."""

    def run(settings: Settings, stream: str = "events") -> None:
        direct.drain_directly(session_of(settings), changed(settings, LAKE_SETTLE_SECONDS=0), stream)

    return run


@pytest.fixture
def invoke(session_of: SessionOf, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Return a function that runs a command with a lake's settings, and returns its output, or raises its error.

    Where the command would start Spark, which takes five seconds, it gets a session that is there already.
    """

    def run(settings: Settings, app: Any, *arguments: str) -> str:
        with monkeypatch.context() as patch:
            patch.setattr("consumer.app.run.start_session", lambda own, *_, **__: session_of(own))
            for name, value in variables(settings).items():
                patch.setenv(name, str(getattr(value, "get_secret_value", lambda own=value: own)()))
            done = CliRunner().invoke(app, arguments)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.output

    return run


@pytest.fixture
def landing(lake_settings: Settings) -> Path:
    """Return the landing folder of the stream `events`."""
    folder = lake_settings.home / "landing" / "events"
    folder.mkdir(parents=True)
    return folder
