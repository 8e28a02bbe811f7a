"""Consumers that start at once on a new database: each finds the tables, whoever makes them."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.servers import PostgresServer

START = """
import sys
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog
from lakeproof.state.lease import lease
stream, database = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with lease(database, stream):
    ContractLog(database).make_current(stream, "digest", b"text")
    print(LandingLog(database, stream).head().seq, flush=True)
"""
CATALOG = """
import sys
from pathlib import Path
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import settings_of
from lakeproof.tables.schemas import ensure_schema_changes, ensure_tables
stream, database = sys.argv[1:]
stream = ("events", "clickstream", "sensors", "events")[int(stream.removeprefix("stream"))]
warehouse = sys.argv[2].split("/")[-1].removesuffix(".db")
settings = settings_of({"LAKE_HOME": "lake-" + warehouse, "LAKE_CATALOG_URI": database})
print("ready", flush=True)
sys.stdin.readline()
catalog = open_catalog(settings)
ensure_tables(catalog, load_contract(Path("@contracts@"), stream))
ensure_schema_changes(catalog)
print(0, flush=True)
"""
CATALOG = CATALOG.replace("@contracts@", str(ROOT / "contracts"))
TOGETHER = 4
ROUNDS = 3


def check_starts(databases: list[str], start: str, folder: Path) -> None:
    for database in databases:
        starting = [
            subprocess.Popen(
                [sys.executable, "-c", start, f"stream{number}", database],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(TOGETHER)
        ]
        for process in starting:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in starting:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        done = [process.communicate(timeout=120) for process in starting]
        assert [(process.returncode, *said) for process, said in zip(starting, done, strict=True)] == [
            (0, "0\n", "")
        ] * TOGETHER


@pytest.mark.parametrize("start", [START, CATALOG], ids=["state", "catalog"])
def test_first_starts_at_once_on_sqlite(tmp_path: Path, start: str) -> None:
    check_starts([f"sqlite:///{tmp_path}/{number}.db" for number in range(ROUNDS)], start, tmp_path)


@pytest.mark.parametrize("start", [START, CATALOG], ids=["state", "catalog"])
def test_first_starts_at_once_on_postgres(postgres: PostgresServer, tmp_path: Path, start: str) -> None:
    check_starts([postgres.new_database("p@ss:w/rd%") for _ in range(ROUNDS)], start, tmp_path)
