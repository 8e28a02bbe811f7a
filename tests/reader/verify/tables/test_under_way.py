"""Looks at the tables of a stream that goes on: micro-batches that begin after the first look are left out."""

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import duckdb
import pytest

from lakeproof.kafka.offsets import Offsets
from lakeproof.tables.names import stream_tables
from reader.connect import Session
from reader.verify.check import Scope
from reader.verify.checks.sources import Compared
from reader.verify.tables import accounts
from reader.verify.tables.accounts import difference, settle
from reader.verify.tables.files import TablesOfFiles
from reader.verify.tables.letters import ReplayedLetters
from reader.verify.tables.reach import Reach
from reader.verify.tables.replays import Replays
from reader.verify.tables.since import since_views
from reader.verify.tables.topic import TablesOfTopic

NAMES = stream_tables("events")
TOPIC = "incoming"


class Interrupted(Session):
    """A session in which the stream commits a micro-batch after each read of the ledger."""

    commit: Callable[[], None] | None = None

    def fetch(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        found = super().fetch(statement, parameters)
        if NAMES.ledger in statement and self.commit and "INSERT" not in statement:
            self.commit()
        return found


class Stepped(Session):
    """A session in which a replay takes a step after each statement, as long as it has one."""

    steps: ClassVar[list[Callable[[], None]]] = []

    def fetch(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        found = super().fetch(statement, parameters)
        if self.steps:
            self.steps.pop(0)()
        return found


class Lake:
    """Tables of a stream; each micro-batch `n` has the record at offset `n` of a topic, or in the file of that name."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.session = Interrupted(connection, [])
        for schema in ("bronze", "dead_letters", "ledger"):
            connection.execute(f"CREATE SCHEMA {schema}")
        place = "_source VARCHAR, _position BIGINT, _ingested_at TIMESTAMPTZ, _micro_batch_id BIGINT"
        reasons = "reasons STRUCT(code VARCHAR)[], raw BLOB"
        counts = ", ".join(
            f"{name} MAP(VARCHAR, BIGINT)" for name in ("dead_letters", "rescued", "discarded", "closed")
        )
        for table, columns in {
            NAMES.bronze: f"{place}, _landed_at TIMESTAMPTZ, _rescued MAP(VARCHAR, VARCHAR)",
            NAMES.dead_letters: f"{place}, _landed_at TIMESTAMPTZ, {reasons}, _attempt INTEGER",
            NAMES.ledger: "source VARCHAR, etag VARCHAR, size BIGINT, units BIGINT, bronze BIGINT, "
            f"content_hash VARCHAR, micro_batch_id BIGINT, replay BIGINT, {counts}",
            NAMES.attempts: f"{place}, _contract_version VARCHAR, {reasons}, _letter INTEGER, letter_reasons VARCHAR, "
            "_attempt INTEGER, replay BIGINT, outcome VARCHAR, salvaged BIGINT, transform VARCHAR, "
            "transform_digest VARCHAR",
        }.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")

    def _insert(self, table: str, **columns: Any) -> None:
        names, values = ", ".join(columns), ", ".join(map(str, columns.values()))
        self.session.fetch(f"INSERT INTO {table} ({names}) VALUES ({values})")

    def append(self, table: str, number: int, at: int | None = None, **more: Any) -> None:
        """Append a row of micro-batch `number` with the record `at` a place; the one of its own number if None."""
        place = {"_source": source(number if at is None else at), "_position": 0, "_ingested_at": "now()"}
        self._insert(table, **place | more, _micro_batch_id=number)

    def dead(self, number: int) -> None:
        self.append(NAMES.dead_letters, number, reasons="[{'code': 'missing'}]", raw="'x'::BLOB", _attempt=1)

    def close(self, number: int, at: int) -> None:
        """Append the attempt of a replay that closes a dead letter."""
        columns = {"_letter": 1, "letter_reasons": "'missing'", "_attempt": 2, "replay": number, "outcome": "'closed'"}
        self.append(NAMES.attempts, number, at, **columns)

    def book(self, number: int, *, dead: bool = False) -> None:
        counts = {"units": 1, "bronze": int(not dead), "dead_letters": "MAP {'missing': 1}" if dead else "MAP {}"}
        self._insert(NAMES.ledger, source=source(number), etag=number + 1, size=1, micro_batch_id=number, **counts)

    def book_replay(self, number: int, at: int) -> None:
        counts = {"units": 1, "bronze": 1, "closed": "MAP {'missing': 1}"}
        self._insert(NAMES.ledger, source=source(at), size=0, micro_batch_id=number, replay=number, **counts)

    def of_files(self) -> TablesOfFiles:
        return TablesOfFiles(self.session, NAMES, self._replays())

    def of_topic(self) -> TablesOfTopic:
        return TablesOfTopic(self.session, NAMES, TOPIC, lambda: Offsets(TOPIC), self._replays(), Reach(0))

    def letters(self) -> ReplayedLetters:
        return ReplayedLetters(self.session, NAMES, self._replays(), Reach(0), of_topic=True)

    def _replays(self) -> Replays:
        return Replays(self.session, NAMES, lambda: True)


def source(number: int) -> str:
    return f"'{TOPIC}/0/' || lpad('{number}', 19, '0')"


@pytest.fixture
def lake() -> Iterator[Lake]:
    with duckdb.connect() as connection:
        yield Lake(connection)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Return a function that takes what the stream does between the looks of a proof, one function for each pause."""

    def plan(*steps: Callable[[], None]) -> list[float]:
        pauses: list[float] = []
        left = iter(steps)

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            next(left)()

        monkeypatch.setattr(accounts, "sleep", pause)
        return pauses

    return plan


def commits(lake: Lake, number: int) -> Callable[[], None]:
    """Return a step in which one micro-batch gets to the ledger, and the next one to bronze."""

    def step() -> None:
        lake.book(number)
        lake.append(NAMES.bronze, number + 1)

    return step


def test_a_stream_without_pauses_keeps_no_proof_of_a_topic_waiting(lake: Lake, between: Any) -> None:
    lake.append(NAMES.bronze, 0)
    pauses = between(commits(lake, 0))
    tables = lake.of_topic()
    settle(tables)
    assert len(pauses) == 1
    assert (tables.totals(), tables.unbooked(0)) == ((1, 0), (0, []))


def test_a_stream_without_pauses_keeps_no_proof_of_files_waiting(lake: Lake, between: Any) -> None:
    lake.append(NAMES.bronze, 0)
    pauses = between(commits(lake, 0))
    tables = lake.of_files()
    settle(tables)
    assert len(pauses) == 1
    assert len(tables.accounts) == len(tables.bookings) == 1
    assert tables.accounts.keys() == tables.bookings.keys()


@pytest.mark.parametrize("of", [Lake.of_topic, Lake.of_files, Lake.letters])
def test_rows_that_no_ledger_row_follows_are_waited_for(
    lake: Lake, between: Any, monkeypatch: pytest.MonkeyPatch, of: Callable[[Lake], accounts.Settling]
) -> None:
    monkeypatch.setattr(accounts, "_WAIT_SECONDS", 0.2)
    lake.append(NAMES.bronze, 0)
    lake.close(0, at=0)  # this makes the row one of a replay, for the check of replays
    between(*[lambda: None] * 10_000)
    tables = of(lake)
    settle(tables)
    assert tables.load() is not None


@pytest.mark.parametrize("of", [Lake.of_topic, Lake.of_files])
def test_a_micro_batch_that_is_committed_between_two_reads_of_the_ledger_is_in_both_or_none(
    lake: Lake, between: Any, monkeypatch: pytest.MonkeyPatch, of: Callable[[Lake], TablesOfTopic | TablesOfFiles]
) -> None:
    monkeypatch.setattr(accounts, "_WAIT_SECONDS", 0.2)
    between(*[lambda: None] * 10_000)
    numbers = iter(range(1_000_000))

    def commit() -> None:
        number = next(numbers)
        lake.append(NAMES.bronze, number)
        lake.book(number)

    commit()
    monkeypatch.setattr(Interrupted, "commit", staticmethod(commit))
    tables = of(lake)
    settle(tables)
    if isinstance(tables, TablesOfTopic):
        assert tables.unbooked(0) == (0, [])
        assert all(not difference(booking, account) for _, booking, account in tables.books(0))
        assert tables.books(0)
    else:
        assert tables.accounts.keys() == tables.bookings.keys()
        assert tables.accounts
    assert next(numbers) > 1


@pytest.mark.parametrize("of", [Lake.of_topic, Lake.of_files])
def test_what_stays_outside_the_ledger_is_reported(
    lake: Lake, between: Any, monkeypatch: pytest.MonkeyPatch, of: Callable[[Lake], TablesOfTopic | TablesOfFiles]
) -> None:
    monkeypatch.setattr(accounts, "_WAIT_SECONDS", 0.2)
    lake.append(NAMES.bronze, 0)  # of an interrupted micro-batch
    between(*(lambda number=number: lake.append(NAMES.bronze, number) for number in range(1, 10_000)))
    tables = of(lake)
    settle(tables)
    if isinstance(tables, TablesOfTopic):
        assert tables.unbooked(0) == (1, ["0"])
    else:
        assert [*tables.accounts] == [f"{TOPIC}/0/{0:019}"]
        assert not tables.bookings


def test_the_first_look_may_take_longer_than_the_patience(
    lake: Lake, between: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    load = TablesOfTopic.load

    def slowly(tables: TablesOfTopic) -> float | None:
        nonlocal now
        now += 1_000.0
        return load(tables)

    monkeypatch.setattr(TablesOfTopic, "load", slowly)
    monkeypatch.setattr(accounts, "monotonic", lambda: now)
    lake.append(NAMES.bronze, 0)
    pauses = between(commits(lake, 0))
    tables = lake.of_topic()
    settle(tables)
    assert len(pauses) == 1
    assert tables.unbooked(0) == (0, [])


@pytest.mark.parametrize("of", [Lake.of_topic, Lake.of_files, Lake.letters])
@pytest.mark.parametrize("is_in_bronze", [False, True])
def test_a_replay_that_begins_after_the_first_look_changes_nothing(
    lake: Lake, between: Any, of: Callable[[Lake], Any], is_in_bronze: bool
) -> None:
    lake.dead(0)
    lake.book(0, dead=True)
    lake.append(NAMES.bronze, 1)
    lake.close(1, at=1)  # so that the check of replays waits for micro-batch 1, too

    def step() -> None:
        lake.book(1)
        lake.close(2, at=0)
        if is_in_bronze:
            lake.append(NAMES.bronze, 2, at=0)

    pauses = between(step)
    tables = of(lake)
    settle(tables)
    assert len(pauses) == 1
    if isinstance(tables, ReplayedLetters):
        assert (tables.states()["open"], tables.states()["closed"]) == (1, 0)
    elif isinstance(tables, TablesOfTopic):
        assert tables.totals() == (1, 1)
    else:
        held = tables.accounts[f"{TOPIC}/0/{0:019}"]
        assert (held.rows, held.bronze, dict(held.dead)) == (1, 0, {"missing": 1})
        lake.append(NAMES.bronze, 3, at=0)
        assert tables.compare(dict.fromkeys(tables.accounts, 1)) == ({}, {})


@pytest.mark.parametrize("after", range(24))
def test_a_replay_of_a_proven_file_within_a_look_finds_the_file_whole(
    between: Any, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS lake; USE lake")
        lake = Lake(connection)
        lake.append(NAMES.bronze, 0, _position=1)
        lake.dead(0)
        lake.book(0, dead=True)
        connection.execute(f"UPDATE {NAMES.ledger} SET units = 2, bronze = 1")
        lake.append(NAMES.bronze, 1)
        lake.book(1)
        session, proven = Stepped(connection, []), Reach(1)
        views = since_views(session, NAMES, proven, has_attempts=True, of_topic=False)
        tables = TablesOfFiles(session, views, Replays(session, views, lambda: True), proven)
        replay = [
            lambda: lake.close(2, at=0),
            lambda: lake.append(NAMES.bronze, 2, at=0),
            lambda: lake.book_replay(2, at=0),
        ]
        idle = [lambda: None]
        steps = [*idle * after, *(each for step in replay for each in [step, *idle])]
        monkeypatch.setattr(Stepped, "steps", steps)
        between(*[lambda: None] * 10_000)
        settle(tables)
        wanted = {name: booking.units for name, booking in tables.bookings.items()}
        assert wanted[f"{TOPIC}/0/{1:019}"] == 1
        assert wanted.keys() == tables.accounts.keys()
        assert tables.compare(wanted) == ({}, {})


def test_rows_of_a_replay_that_is_left_out_are_not_compared_with_the_landed_bytes(lake: Lake, between: Any) -> None:
    lake.dead(0)
    lake.book(0, dead=True)
    lake.append(NAMES.bronze, 1)
    between(lambda: lake.book(1))
    tables, replays = lake.of_topic(), lake._replays()
    settle(tables)
    replays.load()
    lake.close(2, at=0)
    lake.append(NAMES.bronze, 2, at=0)
    book = cast(Any, SimpleNamespace(tables=NAMES))
    compared = Compared(Scope(cast(Any, None), lake.session, "events", opened=book), replays)
    rows = lake.session.fetch(f"SELECT _micro_batch_id FROM {NAMES.bronze} WHERE {compared._where}")
    assert rows == [(1,)]
