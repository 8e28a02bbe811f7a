"""The contract in effect, and the texts of all earlier ones."""

from pathlib import Path
from typing import Any

import pytest
from tests.selection import first_by_default
from tests.servers import PostgresServer

from lakeproof.errors import UnavailableError
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.database import transaction


@pytest.fixture(params=first_by_default(["sqlite", "postgres"]))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database()
    return f"sqlite:///{tmp_path / 'log.db'}"


def test_texts_are_kept(database: str) -> None:
    log = ContractLog(database)
    log.keep("d1", b"one")
    log.keep("d1", b"one")
    assert (log.text("d1"), log.text("d2")) == (b"one", None)


def test_each_stream_has_one_that_holds(database: str) -> None:
    log, running = ContractLog(database), ContractLog(database)
    assert running.current("events") is None
    log.make_current("events", "d1", b"one")
    log.make_current("sensors", "d2", b"two")
    assert (running.current("events"), running.current("sensors")) == ("d1", "d2")
    log.make_current("events", "d3", b"three")
    assert (running.current("events"), running.text("d3"), running.text("d1")) == ("d3", b"three", b"one")


def test_of_two_that_write_the_same_at_once_one_does(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ContractLog(database)
    real = ContractLog.text

    def late(self: ContractLog, digest: str) -> Any:
        found = real(self, digest)
        monkeypatch.undo()
        ContractLog(database).keep(digest, b"one")
        return found

    monkeypatch.setattr(ContractLog, "text", late)
    log.keep("d1", b"one")
    assert log.text("d1") == b"one"


def test_a_database_that_fails_is_one_line(database: str, tmp_path: Path) -> None:
    log = ContractLog(database)
    with transaction(log._engine) as connection:
        connection.exec_driver_sql("DROP TABLE current_contracts")
    with pytest.raises(UnavailableError, match=r"no such table|relation .* does not exist") as caught:
        log.current("events")
    assert "LAKE_LANDING_LOG_URI" in caught.value.hint


def test_a_micro_batch_that_was_begun_keeps_its_contract(tmp_path: Path) -> None:
    log = ContractLog(f"sqlite:///{tmp_path / 'state.db'}")
    assert log.begin("events", "a", "b") is None
    log.make_current("events", "first", b"1")
    assert log.begin("events", "a", "b") == "first"
    log.make_current("events", "second", b"2")
    assert log.begin("events", "a", "b") == "first"
    assert log.begin("events", "b", "c") == "second"
    assert log.begin("sensors", "a", "b") is None
