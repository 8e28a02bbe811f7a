"""Consumers that start at once on a new database: each finds the tables, whoever makes them."""

import subprocess
import sys
from pathlib import Path

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
TOGETHER = 4
ROUNDS = 3


def check_starts(databases: list[str]) -> None:
    for database in databases:
        starting = [
            subprocess.Popen(
                [sys.executable, "-c", START, f"stream{number}", database],
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


def test_first_starts_at_once_on_sqlite(tmp_path: Path) -> None:
    check_starts([f"sqlite:///{tmp_path}/{number}.db" for number in range(ROUNDS)])


def test_first_starts_at_once_on_postgres(postgres: PostgresServer) -> None:
    check_starts([postgres.new_database("p@ss:w/rd%") for _ in range(ROUNDS)])
