"""The state database: created once, by the first process, and rejected if its version is unknown."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import inspect
from tests.servers import PostgresServer

from lakeproof.errors import LakeproofError
from lakeproof.state.database import open_database, transaction

OPEN = """
import sys
from lakeproof.state.landing_log import LandingLog
print("ready", flush=True)
sys.stdin.readline()
LandingLog(sys.argv[1], "events")
print("open", flush=True)
"""


@pytest.mark.long
def test_many_first_starts_at_once_all_succeed(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'state.db'}"
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for start in starts:
        assert start.stdout is not None
        assert start.stdout.readline() == "ready\n"
    ended = []
    for start in starts:  # all are ready: let them start
        assert start.stdin is not None
        start.stdin.write("go\n")
        start.stdin.flush()
    for start in starts:
        said, errors = start.communicate(timeout=60)
        ended.append((start.returncode, said, errors))
    assert ended == [(0, "open\n", "")] * 6


def test_an_open_database_has_its_version(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    assert {"landed_files", "leases", "state_version"} <= set(inspect(engine).get_table_names())


def test_a_connection_that_the_server_has_closed_is_replaced(postgres: PostgresServer) -> None:
    engine = open_database(postgres.new_database())
    with transaction(engine) as connection:
        own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    postgres.end_session(own)
    with transaction(engine) as connection:
        assert connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one() != own
    engine.dispose()


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    open_database(f"sqlite:///{path}").dispose()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE state_version SET version = 99")
    with pytest.raises(LakeproofError, match="created by a newer version"):
        open_database(f"sqlite:///{path}")


def test_a_database_without_a_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE landed_files (uri TEXT)")
    with pytest.raises(LakeproofError, match="development version"):
        open_database(f"sqlite:///{path}")
