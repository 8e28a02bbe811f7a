"""Rows of a topic compared with the ranges of the ledger, in tables that DuckDB has in memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.errors import UnavailableError
from lakeproof.kafka.offsets import Offsets, source_name
from lakeproof.tables.names import stream_tables
from reader.connect import Session
from reader.verify.checks.topic import Range, _gaps, _taken
from reader.verify.findings import Status
from reader.verify.landed.messages import label_of as message_label
from reader.verify.tables.reach import Reach
from reader.verify.tables.replays import Replays
from reader.verify.tables.topic import TablesOfTopic, label_of

TOPIC = "incoming"
NAMES = stream_tables("events")
START = Offsets.of(TOPIC, {0: 20})


@dataclass(frozen=True)
class Planned(Session):
    """A session that keeps the plan of each query."""

    plans: list[str] = field(default_factory=list)

    def fetch(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        if statement.startswith(("SELECT", "WITH")):
            plan = self.connection.execute(f"EXPLAIN {statement}", parameters).fetchall()
            self.plans.append("".join(text for _, text in plan))
        return super().fetch(statement, parameters)


@contextmanager
def session_of(ranges: Sequence[Range], rows: Sequence[int], letters: Sequence[int] = ()) -> Iterator[Planned]:
    """Open a session whose ledger has ranges of partition 0, and whose tables have messages of one unit each.

    The micro-batch of a range is its place in the list.
    """
    with duckdb.connect(config={"threads": 1}) as connection:
        for statement in (
            "CREATE SCHEMA bronze; CREATE SCHEMA dead_letters; CREATE SCHEMA ledger",
            f"CREATE TABLE {NAMES.ledger} (source VARCHAR, etag VARCHAR, size BIGINT, units BIGINT, bronze BIGINT, "
            "dead_letters MAP(VARCHAR, BIGINT), rescued MAP(VARCHAR, BIGINT), discarded MAP(VARCHAR, BIGINT), "
            "micro_batch_id BIGINT)",
            f"CREATE TABLE {NAMES.bronze} (_source VARCHAR, _position BIGINT, _ingested_at TIMESTAMPTZ, "
            "_micro_batch_id BIGINT)",
            f"CREATE TABLE {NAMES.dead_letters} (_source VARCHAR, _position BIGINT, _ingested_at TIMESTAMPTZ, "
            "_micro_batch_id BIGINT, reasons STRUCT(code VARCHAR)[], raw BLOB, _attempt INTEGER)",
        ):
            connection.execute(statement)
        source = f"'{TOPIC}/0/' || lpad(place::VARCHAR, 19, '0')"
        connection.execute(
            f"INSERT INTO {NAMES.ledger} SELECT {source}, behind::VARCHAR, behind - place, behind - place, "
            "behind - place, NULL, NULL, NULL, number FROM (SELECT unnest(?::BIGINT[]) AS place, "
            "unnest(?::BIGINT[]) AS behind, unnest(range(?)) AS number)",
            [[first for first, _ in ranges], [end for _, end in ranges], len(ranges)],
        )
        connection.execute(
            f"INSERT INTO {NAMES.bronze} SELECT {source}, 0, now(), 0 FROM (SELECT unnest(?::BIGINT[]) AS place)",
            [rows],
        )
        connection.execute(
            f"INSERT INTO {NAMES.dead_letters} SELECT {source}, 0, now(), 0, [{{'code': 'tombstone'}}], NULL, 1 "
            "FROM (SELECT unnest(?::BIGINT[]) AS place)",
            [letters],
        )
        yield Planned(connection, [])


def test_fields_of_a_contract_do_not_change_the_label_of_a_row() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE rows AS SELECT 'k'::BLOB AS _key, [{'key': 'h', 'value': 'v'::BLOB}] AS _headers, "
            "{'key': 'x'::BLOB, 'value': 'y'::BLOB} AS pair"
        )
        sql = label_of(Session(connection, []), "rows")
        assert connection.execute(f"SELECT {sql} FROM rows").fetchall() == [(message_label(b"k", [("h", b"v")]),)]


def tables_of(session: Session, proven: int = 0, accounted: Callable[[], Offsets] = lambda: START) -> TablesOfTopic:
    replays = Replays(session, NAMES, lambda: False)
    return TablesOfTopic(session, NAMES, TOPIC, accounted, replays, Reach(proven))


@pytest.mark.all
def test_units_are_not_compared_with_each_range() -> None:
    ranges = [(at, at + 10) for at in range(0, 5_000, 10)]
    with session_of(ranges, list(range(4_990)), list(range(4_990, 5_000))) as session:
        tables = tables_of(session)
        tables.load()
        assert tables.unbooked(0) == (0, [])
        assert [(at, held.rows) for at, _, held in tables.books(0)] == [(at, 10) for at, _ in ranges]
        joined = [plan for plan in session.plans if "verify_topic_ranges" in plan and "verify_topic_units" in plan]
        assert len(joined) == 4
        assert all("ASOF_JOIN" in plan for plan in joined)


places = st.lists(st.integers(0, 30), max_size=12, unique=True)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=6), places, places, st.integers(0, 3))
def test_rows_are_counted_for_the_ranges_that_have_them(
    spans: list[tuple[int, int]], rows: list[int], letters: list[int], proven: int
) -> None:
    ranges = [(at, at + length) for at, length in spans]
    outside = sorted(at for at in [*rows, *letters] if not any(first <= at < end for first, end in ranges))
    overlaps = any(first < behind for (_, behind), (first, _) in zip(sorted(ranges), sorted(ranges)[1:], strict=False))
    with session_of(ranges, rows, letters) as session:
        tables = tables_of(session, proven)
        tables.load()
        count, shown = tables.unbooked(0)
        assert (count, shown) == (len(outside), [str(at) for at in outside[:5]])
        found = [(at, held.bronze, sum(held.dead.values()), held.rows) for at, _, held in tables.books(0)]
    if overlaps:
        assert Status.DOUBLED in {status for status, _ in _gaps(sorted(ranges), [(0, 40)])}
        return
    counts = [
        (first, sum(first <= at < end for at in rows), sum(first <= at < end for at in letters))
        for first, end in sorted(ranges[proven:])
    ]
    assert found == [(at, bronze, dead, bronze + dead) for at, bronze, dead in counts]


@pytest.mark.parametrize(("ranges", "told"), [([(3, 5), (8, 12)], []), ([(3, 9), (8, 12)], [Status.CHANGED])])
def test_a_range_that_ends_behind_what_was_taken_is_found(ranges: list[Range], told: list[Status]) -> None:
    assert [status for status, _ in _gaps(ranges, [(3, 5), (8, 12)])] == told


def test_rows_of_partitions_that_the_topic_lacks_are_foreign() -> None:
    with session_of([(0, 3)], [0, 1], [2]) as session:
        tables = tables_of(session)
        tables.load()
        assert tables.foreign([0, 1]) == (0, 0)
        assert tables.foreign([1]) == (3, 1)
        session.fetch(f"UPDATE {NAMES.bronze} SET _source = replace(_source, '{TOPIC}', 'other')")
        tables.load()
        assert tables.foreign([0, 1]) == (2, 0)


@pytest.mark.parametrize("commits", [1, 2])
def test_a_batch_over_the_past_that_commits_meanwhile_doubles_nothing(commits: int) -> None:
    past = [(0, at, at + 2) for at in range(0, 4 * commits, 4)]
    with session_of([(20, 30)], []) as session:
        done: list[tuple[int, int, int]] = []

        def accounted() -> Offsets:
            """Return the marker; then, the batch commits."""
            before = Offsets.of(TOPIC, {0: 30}).with_past(done)
            if past:
                done.append(past.pop())
                source, end = source_name(TOPIC, 0, done[-1][1]), done[-1][2]
                session.fetch(f"INSERT INTO {NAMES.ledger} (source, etag) VALUES ('{source}', '{end}')")
            return before

        tables = tables_of(session, accounted=accounted)
        tables.load()
        assert len(tables.ranges(0)) == 1 + commits
        assert _gaps(tables.ranges(0), _taken(START, tables.accounted, 0)) == []


def test_a_batch_over_the_past_that_commits_all_the_time_is_reported() -> None:
    past = iter(range(100))
    with session_of([], []) as session, pytest.raises(UnavailableError, match=r"adds to ledger\.events all the time"):
        tables_of(session, accounted=lambda: START.with_past([(0, next(past) * 2, 300)])).load()
