"""A server that the consumer needs is unavailable: one clear line, exit code 3; the next run resumes."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.consumer.lake import Invoke, rows
from tests.consumer.test_cli import environment, land
from tests.lakes import changed, variables
from tests.logs import failure
from tests.programs import forked
from tests.selection import only_with_all
from tests.servers import PostgresServer, RestCatalogServer, Server

from consumer.cli import app
from lakeproof.settings import Settings
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

PASSWORD = "p@ss:w/rd%"
# With ALL=1, the landing log represents everything that Postgres stores.
_on_postgres = pytest.param("on_postgres_catalog", marks=pytest.mark.long)


@dataclass(frozen=True)
class Dependent:
    """A lake, a server that it depends on, and a pattern for the start of the error line while that is unavailable."""

    settings: Settings
    server: Server
    words: str

    def environment(self) -> dict[str, str]:
        names = ("LAKE_CATALOG", "LAKE_CATALOG_URI", "LAKE_LANDING_LOG_URI")
        own = {name: value for name, value in variables(self.settings).items() if name in names}
        return environment(self.settings) | own

    def drain(self) -> "subprocess.CompletedProcess[str]":
        command = [*forked("consumer"), "run", "events", "--available-now"]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=300, check=False)

    def check_words(self, said: str) -> None:
        """Check that the last line of the log names the unavailable server and no password, and has a hint."""
        assert "Traceback" not in said
        assert not [form for form in (PASSWORD, "p%40ss", "%2Frd") if form in said]
        failed = failure(said)
        # The first query to need the server fails: while it opens the catalog, or while it reads a table.
        assert re.match(rf"(?:\S+-\S+: )?{self.words}", failed["message"]), failed
        assert "LAKE_" in failed["hint"]

    def check_rows(self, count: int, invoke: Invoke) -> None:
        """Check that the next run takes all files, each once."""
        invoke(changed(self.settings, LAKE_SETTLE_SECONDS=0), app, "run", "events", "--available-now")
        assert sorted(int(row["event_id"]) for row in rows(self.settings, "bronze.events")) == list(range(count))
        (found,) = verify(self.settings, "events", values=False)
        assert not found.off


@pytest.fixture
def on_postgres_catalog(lake_settings: Settings, tmp_path: Path) -> Iterator[Dependent]:
    with PostgresServer(tmp_path / "server") as server:
        settings = changed(lake_settings, LAKE_CATALOG_URI=server.new_database(PASSWORD))
        yield Dependent(settings, server, "Cannot (?:open|read) the catalog")


@pytest.fixture
def on_rest_catalog(lake_settings: Settings, tmp_path: Path) -> Iterator[Dependent]:
    with RestCatalogServer(tmp_path / "server", lake_settings.catalog.warehouse_uri) as server:
        settings = changed(lake_settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=server.uri)
        yield Dependent(settings, server, "Cannot (?:open|read) the catalog")


@pytest.fixture
def on_postgres_landing_log(lake_settings: Settings, tmp_path: Path) -> Iterator[Dependent]:
    with PostgresServer(tmp_path / "server") as server:
        settings = changed(lake_settings, LAKE_LANDING_LOG_URI=server.new_database(PASSWORD))
        yield Dependent(settings, server, "Cannot use the landing log")


def check_away_at_the_start(lake: Dependent, invoke: Invoke) -> None:
    land(lake.settings, 0, 2)
    lake.server.stop()
    done = lake.drain()
    assert done.returncode == 3, done.stderr
    lake.check_words(done.stderr)
    lake.server.start()
    lake.check_rows(2, invoke)


@pytest.mark.all
@pytest.mark.parametrize("lake", [_on_postgres, "on_rest_catalog"])
def test_a_catalog_that_is_away_at_the_start(request: pytest.FixtureRequest, lake: str, invoke: Invoke) -> None:
    check_away_at_the_start(request.getfixturevalue(lake), invoke)


@pytest.mark.all
def test_a_landing_log_that_is_away_at_the_start(on_postgres_landing_log: Dependent, invoke: Invoke) -> None:
    check_away_at_the_start(on_postgres_landing_log, invoke)


@pytest.mark.parametrize(
    "lake", [_on_postgres, only_with_all("on_rest_catalog"), only_with_all("on_postgres_landing_log")]
)
def test_a_server_that_goes_away_in_the_middle(
    request: pytest.FixtureRequest, lake: str, tmp_path: Path, invoke: Invoke
) -> None:
    dependent: Dependent = request.getfixturevalue(lake)
    land(dependent.settings, 0, 2)
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "consumer", "run", "events", "--trigger", "200 milliseconds"]
        process = subprocess.Popen(command, env=dependent.environment(), stderr=output, start_new_session=True)
    try:
        while '"event": "micro-batch"' not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        dependent.server.stop()
        land(dependent.settings, 2, 2)
        assert process.wait(400) == 3, log.read_text()
    finally:
        process.kill()
    dependent.check_words(log.read_text())
    dependent.server.start()
    dependent.check_rows(4, invoke)
