"""The error of a failed query: an outside failure is worth a retry, even if its cause may be gone by now."""

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from tests.lakes import changed
from tests.servers import RestCatalogServer

from consumer.queries.failures import explained
from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark

REFUSED = 1
"""Port on which nothing listens."""


def write_to_a_full_disk(jvm: Any, _folder: Path) -> None:
    jvm.java.io.FileOutputStream("/dev/full").write(1)


def fill_a_catalog(jvm: Any, folder: Path) -> None:
    database = jvm.java.sql.DriverManager.getConnection(f"jdbc:sqlite:{folder / 'catalog.db'}")
    statement = database.createStatement()
    statement.execute("CREATE TABLE large (content)")
    statement.execute("PRAGMA max_page_count=2")
    statement.execute("INSERT INTO large VALUES (zeroblob(1000000))")


def connect_to_a_database(jvm: Any, _folder: Path) -> None:
    jvm.java.sql.DriverManager.getConnection(f"jdbc:postgresql://127.0.0.1:{REFUSED}/none")


def connect_to_a_server(jvm: Any, _folder: Path) -> None:
    jvm.java.net.Socket("127.0.0.1", REFUSED)


def make_a_mistake(jvm: Any, _folder: Path) -> None:
    jvm.java.util.ArrayList().get(3)


@pytest.mark.parametrize(
    ("fail", "exit_code", "words"),
    [
        (write_to_a_full_disk, 3, "No space is left on the disk"),
        (fill_a_catalog, 3, "No space is left on the disk"),
        (connect_to_a_database, 3, "The catalog, a disk or a server failed: ConnectException: Connection refused"),
        (connect_to_a_server, 3, "The catalog, a disk or a server failed: ConnectException: Connection refused"),
        (make_a_mistake, 1, "The query failed: IndexOutOfBoundsException"),
    ],
)
def test_what_the_jvm_failed_with(
    spark: SparkSession, lake_settings: Settings, tmp_path: Path, fail: Any, exit_code: int, words: str
) -> None:
    with pytest.raises(Py4JJavaError) as caught:
        fail(spark._jvm, tmp_path)
    error = explained(caught.value, lake_settings, "events")
    assert (error.exit_code, error.message.startswith(words)) == (exit_code, True), error


def test_a_rest_catalog_that_went_away_after_it_was_opened(lake_settings: Settings, tmp_path: Path) -> None:
    with RestCatalogServer(tmp_path / "server", lake_settings.catalog.warehouse_uri) as server:
        settings = changed(lake_settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=server.uri)
        open_catalog(settings)  # one client per process: opening it again asks nothing of the server
    error = explained(RuntimeError("it stopped unexpectedly"), settings, "events")
    assert (error.exit_code, error.retryable) == (3, True)
    assert error.message.startswith("Cannot read the catalog: ConnectionError")
