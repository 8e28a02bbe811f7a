"""A change of the state database whose answer is lost was made; the next run repeats it without effect."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from tests.lost_answers import PostgresProxy
from tests.selection import first_by_default
from tests.servers import PostgresServer

from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.failures import clear_failures, failures, record_failure
from lakeproof.state.given_up import give_up_before, given_up_before
from lakeproof.state.landing_log import LandingLog, Position
from lakeproof.state.lease import Lease, QueryState, state_of
from lakeproof.state.sink_positions import SinkPosition, SinkPositions
from lakeproof.storage import StoredFile

AT = datetime(2026, 11, 24, tzinfo=UTC)
FILES = [(name, StoredFile(f"file:///{name}", 1, "tag", AT)) for name in ("a", "b")]
SENT = SinkPosition("table", "topic", "1")


@dataclass
class Database:
    """A state database whose answers to commits are lost while `losing` is set."""

    proxy: PostgresProxy
    uri: str
    losing: bool = False


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    proxy = PostgresProxy(postgres.port, lambda tag: tag == "COMMIT" and made.losing)
    made = Database(proxy, proxy.through(postgres.new_database()))
    yield made
    proxy.close()


def _log(uri: str) -> LandingLog:
    return LandingLog(uri, "s")


def _names(uri: str) -> object:
    log = _log(uri)
    return [(file.seq, file.name, file.etag) for file in log.files(0, 9)], log.head().seq, log.has(log.head())


def _begin(uri: str) -> object:
    log = ContractLog(uri)
    log.make_current("s", "digest", b"text")
    return log.begin("s", "0", "1")


CHANGES: dict[str, tuple[Callable[[str], object], Callable[[str], object]]] = {
    "files discovered": (lambda uri: _log(uri).append(FILES), _names),
    "files looked at again": (lambda uri: _log(uri).look_again(_log(uri).files(0, 9)), _names),
    "files given up": (lambda uri: _log(uri).give_up(["a"]), lambda uri: _log(uri).given_up()),
    "log rebuilt": (
        lambda uri: _log(uri).rebuild(Position(7, "chain"), _log(uri).files(0, 9)),
        lambda uri: _log(uri).base,
    ),
    "offsets given up": (lambda uri: give_up_before(uri, "s", 0, 7), lambda uri: given_up_before(uri, "s", 0)),
    "contract kept": (
        lambda uri: ContractLog(uri).keep("digest", b"text"),
        lambda uri: ContractLog(uri).text("digest"),
    ),
    "contract begun": (_begin, lambda uri: ContractLog(uri).current("s")),
    "failure recorded": (lambda uri: record_failure(uri, "q", LakeproofError("m", "h")), failures),
    "failure cleared": (lambda uri: clear_failures(uri, ["q"]), failures),
}


@pytest.mark.parametrize("change", first_by_default(CHANGES, 2))
def test_a_change_whose_answer_is_lost_is_there_once(change: str, database: Database, postgres: PostgresServer) -> None:
    do, state = CHANGES[change]
    undisturbed = postgres.new_database()
    do(undisturbed)
    for losing in (True, True, False):  # the first one may only have created the tables
        database.losing = losing
        with pytest.raises(UnavailableError) if losing else nullcontext():
            do(database.uri)
    assert database.proxy.lost
    assert state(database.uri) == state(undisturbed)


def test_a_log_that_was_opened_twice_is_one(database: Database) -> None:
    """The row with a log's own origin is committed, but the answer is lost."""
    ContractLog(database.uri)  # creates the tables
    database.losing = True
    with pytest.raises(UnavailableError):
        _log(database.uri)
    database.losing = False
    assert _log(database.uri).base == _log(database.uri).base


def test_a_sink_is_where_it_was_moved_to(database: Database) -> None:
    positions = SinkPositions(database.uri)
    database.losing = True
    with pytest.raises(UnavailableError):
        positions.record("sink", "table", SENT, None)
    database.losing = False
    assert SinkPositions(database.uri).get("sink") == SENT


@pytest.mark.all
def test_a_lease_whose_answer_was_lost_blocks_nobody(database: Database) -> None:
    """The process with the lease ended, since it got no answer; the next one takes it at once, and renews it."""
    ContractLog(database.uri)
    database.losing = True
    program = "import sys; from lakeproof.state.lease import *; Lease(open_database(sys.argv[1]), 's').take()"
    ended = subprocess.run([sys.executable, "-c", program, database.uri], capture_output=True, text=True, check=False)
    assert "UnavailableError" in ended.stderr
    database.losing = False
    assert state_of(database.uri, "s") is QueryState.DIED
    held = Lease(ContractLog(database.uri)._engine, "s")
    held.take()
    database.losing = True
    with pytest.raises(UnavailableError):
        held.check()
    database.losing = False
    held.check()
    database.losing = True
    held.give_back()  # which is only logged
    database.losing = False
    assert state_of(database.uri, "s") is QueryState.STOPPED
