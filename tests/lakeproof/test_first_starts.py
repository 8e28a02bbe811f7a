"""Consumers that start at the same time on a new database: each finds the tables, whichever creates them."""

from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyiceberg.catalog import Catalog
from tests.conftest import ROOT
from tests.selection import ALL, first_by_default
from tests.servers import PostgresServer

from lakeproof import catalog
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import settings_of
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog
from lakeproof.state.lease import lease
from lakeproof.tables.schemas import ensure_schema_changes, ensure_tables

STREAMS = ("events", "clickstream", "sensors", "events")
ROUNDS = 3 if ALL else 2
Start = Callable[[int, str, Path], None]
_barriers: list[Barrier] = []
"""The barrier of the processes that start at the same time."""


def start_state(number: int, database: str, folder: Path) -> None:
    stream = f"stream{number}"
    with lease(database, stream):
        ContractLog(database).make_current(stream, "digest", b"text")
        assert LandingLog(database, stream).head().seq == 0


def start_catalog(number: int, database: str, folder: Path) -> None:
    home = folder / database.rpartition("/")[2].removesuffix(".db")
    opened = open_catalog(settings_of({"LAKE_HOME": home, "LAKE_CATALOG_URI": database}))
    ensure_tables(opened, load_contract(ROOT / "contracts", STREAMS[number]))
    ensure_schema_changes(opened)


STARTS = pytest.mark.parametrize("start", first_by_default([start_catalog, start_state]))


def begin(barrier: Barrier) -> None:
    _barriers.append(barrier)


@pytest.fixture(scope="module")
def processes() -> Iterator[Pool]:
    """A pool of processes that start at the same time, forked from a process that has imported this module."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with context.Pool(len(STREAMS), begin, [context.Barrier(len(STREAMS))]) as pool:
        yield pool


def start_together(start: Start, number: int, database: str, folder: Path) -> None:
    _barriers[0].wait()
    start(number, database, folder)


def check_starts(processes: Pool, databases: list[str], start: Start, folder: Path) -> None:
    for database in databases:
        work = [(start, number, database, folder) for number in range(len(STREAMS))]
        processes.starmap_async(start_together, work, chunksize=1).get(timeout=120)


@pytest.mark.all
@STARTS
def test_first_starts_at_once_on_sqlite(processes: Pool, tmp_path: Path, start: Start) -> None:
    check_starts(processes, [f"sqlite:///{tmp_path}/{number}.db" for number in range(ROUNDS)], start, tmp_path)


@pytest.mark.all
@STARTS
def test_first_starts_at_once_on_postgres(
    processes: Pool, postgres: PostgresServer, tmp_path: Path, start: Start
) -> None:
    check_starts(processes, [postgres.new_database("p@ss:w/rd%") for _ in range(ROUNDS)], start, tmp_path)


@pytest.mark.parametrize("code", ["42P07", "42710", "23505"])
def test_tables_that_another_start_has_just_created_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """Postgres reports a table of another transaction in three ways, by how far that one is."""

    class CreatedError(Exception):
        orig = SimpleNamespace(sqlstate=code)

    load, refusals = catalog._loaded, [CreatedError(), CreatedError()]

    def refuse_first(properties: Mapping[str, str]) -> Catalog:
        if refusals:
            raise refusals.pop()
        return load(properties)

    monkeypatch.setattr(catalog, "_loaded", refuse_first)
    settings = settings_of({"LAKE_HOME": tmp_path, "LAKE_CATALOG_URI": f"sqlite:///{tmp_path}/catalog.db"})
    assert open_catalog(settings).list_namespaces() == []
    assert not refusals
