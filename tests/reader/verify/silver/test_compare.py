"""Silver filled by the plain model is clean, and every change to it is found."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reader.verify.silver.tables import (
    BRONZE,
    CONFLICTS,
    KEPT,
    LATE,
    LEDGER,
    NOON,
    VERDICTS,
    Row,
    Tables,
    decided,
    event,
    in_memory,
)
from tests.selection import only_with_all

from lakeproof.contracts import Contract, Silver, SilverStrategy, load_contract
from reader.verify.check import Result
from reader.verify.checks.silver import compare_silver
from reader.verify.findings import Findings
from reader.verify.silver import verdicts

EVENTS = load_contract(Path(__file__).parents[4] / "contracts", "events")
WEEK = timedelta(days=7)


@pytest.fixture(scope="module", autouse=True)
def _small_slices() -> Iterator[None]:
    """Make slices so small that a few rows need several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdicts, "_SLICE_ROWS", 8)
        patch.setattr(verdicts, "_CHUNK_ROWS", 3)
        yield


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        yield opened


def contract(horizon: timedelta | None = WEEK) -> Contract:
    return replace(EVENTS, silver=Silver(horizon, SilverStrategy.MERGE))


def verify(
    connection: duckdb.DuckDBPyConnection, tables: Tables, horizon: timedelta | None = WEEK, end: int = 10
) -> Result:
    session = in_memory(connection, contract(horizon), tables)
    recomputed = verdicts.RecomputedVerdicts(session, contract(horizon), end)
    return compare_silver(session, contract(horizon), recomputed, Findings())


@st.composite
def bronze_rows(draw: st.DrawFn) -> list[Row]:
    """Some micro-batches of some sources; a few keys, so that they meet, over many days, so that they part again."""
    rows = []
    now = 0.0
    for number in sorted(draw(st.sets(st.integers(0, 9), max_size=5))):
        now += draw(st.sampled_from((0, 1, 5, 10)))
        for source in draw(st.sets(st.sampled_from("abc"), min_size=1)):
            first = 1_000 * number
            for position in range(first, first + draw(st.integers(0, 5))):
                days = now - draw(st.sampled_from((0, 0, 1, 6, 7, 7.5, 20, -3, -30)))
                key, content = draw(st.sampled_from("xyz")), draw(st.sampled_from("ab"))
                ingested_at = NOON + timedelta(days=now + draw(st.sampled_from((0, 0.5, 2))))
                rows.append(event((number, source, position), key, days, content, _ingested_at=ingested_at))
    return draw(st.permutations(rows))


HORIZONS = st.sampled_from((WEEK, WEEK, WEEK, timedelta(hours=12), None))


@given(bronze=bronze_rows(), horizon=HORIZONS, end=st.integers(0, 11))
def test_what_the_model_decides_is_clean(
    connection: duckdb.DuckDBPyConnection, bronze: list[Row], horizon: timedelta | None, end: int
) -> None:
    known = [row for row in bronze if row["_micro_batch_id"] < end]
    tables = decided(known, horizon)
    found = verify(connection, tables | {BRONZE: bronze}, horizon, end)
    assert found.findings == ()
    assert found.waiting == len(bronze) - len(known)
    counted = Counter({name: sum(row[name] for row in tables[LEDGER]) for name in VERDICTS})
    assert {verdict.value: rows for verdict, rows in found.facts["verdicts"].items()} == counted


def test_the_horizon_itself_is_still_decided(connection: duckdb.DuckDBPyConnection) -> None:
    """Of rows that meet others with their key, and of one that does not; a microsecond earlier is too early."""
    early = -7 - 1e-6 / 86_400
    bronze = [
        event((0, "a", 0), "edge", days=-7),
        event((0, "a", 1), "before", days=early),
        event((0, "a", 2), "now"),
        event((1, "b", 0), "edge", days=-7),
        event((1, "b", 1), "before", days=early),
        event((1, "b", 2), "before"),
        event((1, "b", 3), "alone", days=-7),
        event((1, "b", 4), "alone, before", days=early),
    ]
    tables = decided(bronze, WEEK)
    assert [row["_position"] for row in tables[KEPT]] == [0, 1, 2, 2, 3]
    assert [row["_position"] for row in tables[LATE]] == [1, 4]
    assert verify(connection, tables).clean


def change_value(row: Row, draw: st.DrawFn) -> None:
    name = draw(st.sampled_from(("user_id", "event_id", "event_timestamp", "properties", "_landed_at", "_source")))
    values = {"properties": [("a", "1"), ("b", "")], "event_timestamp": row["event_timestamp"] + timedelta(seconds=1)}
    row[name] = values.get(name, NOON - WEEK if name == "_landed_at" else "other")


def change_one_thing(tables: Tables, draw: st.DrawFn) -> None:
    """Change one thing that matters in one of the tables."""
    name = draw(st.sampled_from(sorted(name for name in (KEPT, CONFLICTS, LATE, LEDGER) if tables[name])))
    rows = tables[name] = [dict(row) for row in tables[name]]
    row = draw(st.sampled_from(rows))
    changes: list[Callable[[], Any]] = [
        lambda: rows.remove(row),
        lambda: rows.append(dict(row)),
        lambda: row.update({"source" if name == LEDGER else "_source": "other"}),
    ]
    if name == LEDGER:
        changes.append(lambda: row.update({(counter := draw(st.sampled_from(VERDICTS))): row[counter] + 1}))
    else:
        others = [other for other in (KEPT, CONFLICTS, LATE) if other != name]
        changes.append(lambda: change_value(row, draw))
        changes.append(lambda: (rows.remove(row), tables[draw(st.sampled_from(others))].append(row)))
        changes.append(lambda: tables[draw(st.sampled_from(others))].append(row))
    if name == CONFLICTS:
        changes.append(lambda: row.update(_winner_position=row["_winner_position"] + 1))
        changes.append(lambda: row.update(_winner_source=None))
    if name == LATE:
        changes.append(lambda: row.update(_horizon=row["_horizon"] + timedelta(microseconds=1)))
    draw(st.sampled_from(changes))()


@given(bronze=bronze_rows().filter(len), horizon=HORIZONS, data=st.data())
def test_no_change_goes_unnoticed(
    connection: duckdb.DuckDBPyConnection, bronze: list[Row], horizon: timedelta | None, data: st.DataObject
) -> None:
    tables = decided(bronze, horizon)
    change_one_thing(tables, data.draw)
    assert not verify(connection, tables, horizon).clean


CLEAN = [
    event((0, "a", 0), "x"),
    event((0, "a", 1), "y"),
    event((1, "b", 0), "x"),
    event((1, "b", 1), "x", content="b"),
    event((2, "c", 0), "z", days=-8),
    event((2, "c", 1), "x", days=10),
    event((3, "d", 0), "x", days=4),
]
"""Kept, kept; a duplicate, a conflict; one that is late, another conflict; then x is kept again."""


def edit(name: str, place: tuple[str, int], **changes: Any) -> Callable[[Tables], None]:
    def fault(tables: Tables) -> None:
        tables[name] = [row | changes if _place(row) == place else row for row in tables[name]]

    return fault


def drop(name: str, place: tuple[str, int]) -> Callable[[Tables], None]:
    return lambda tables: tables.update({name: [row for row in tables[name] if _place(row) != place]})


def add(name: str, place: tuple[str, int], **changes: Any) -> Callable[[Tables], None]:
    """Add a row of bronze to a table."""
    return lambda tables: tables[name].extend([row | changes for row in tables[BRONZE] if _place(row) == place])


def _place(row: Row) -> tuple[str, int]:
    return (row["source"], row["micro_batch_id"]) if "source" in row else (row["_source"], row["_position"])


def both(*faults: Callable[[Tables], None]) -> Callable[[Tables], None]:
    def fault(tables: Tables) -> None:
        for each in faults:
            each(tables)

    return fault


def book_twice(tables: Tables) -> None:
    tables[LEDGER].append(tables[LEDGER][0])


EARLY, LAST = "2026-01-13 12:00:00+00", "2026-01-23 12:00:00+00"
FAULTS: dict[str, tuple[Callable[[Tables], None], list[tuple[str, str, int, str]]]] = {
    # fault: the table, what it is, how many rows, and the example
    "a kept row that is not in bronze": (add(KEPT, ("a", 0), _position=7),
        [(KEPT, "not in bronze", 1, "a, position 7")]),
    "a kept row of no source": (add(KEPT, ("a", 0), _source=None), [(KEPT, "not in bronze", 1, "no source")]),
    "a kept row of another micro-batch": (edit(KEPT, ("a", 1), _micro_batch_id=2),
        [(KEPT, "missing: should be kept", 1, "a, position 1"), (KEPT, "not in bronze", 1, "a, position 1")]),
    "a kept row of no micro-batch": (edit(KEPT, ("a", 1), _micro_batch_id=None),
        [(KEPT, "missing: should be kept", 1, "a, position 1"), (KEPT, "not in bronze", 1, "a, position 1")]),
    "a conflict that is not in bronze": (add(CONFLICTS, ("b", 1), _source="e"),
        [(CONFLICTS, "not in bronze", 1, "e, position 1")]),
    "a late row that is not in bronze": (add(LATE, ("c", 0), _position=8),
        [(LATE, "not in bronze", 1, "c, position 8")]),
    "a kept row with other values": (edit(KEPT, ("a", 1), user_id="c", properties=None),
        [(KEPT, "differs from its row in bronze", 1, "a, position 1: user_id, properties")]),
    "a kept row with other provenance": (edit(KEPT, ("a", 1), _landed_at=None, _contract_version="2"),
        [(KEPT, "differs from its row in bronze", 1, "a, position 1: _landed_at, _contract_version")]),
    "a conflict with other values": (edit(CONFLICTS, ("b", 1), user_id="c"),
        [(CONFLICTS, "differs from its row in bronze", 1, "b, position 1: user_id")]),
    "a late row with other values": (edit(LATE, ("c", 0), product_id=""),
        [(LATE, "differs from its row in bronze", 1, "c, position 0: product_id")]),
    "a kept row twice": (add(KEPT, ("a", 1)), [(KEPT, "several rows of one record", 1, "a, position 1: 2 rows")]),
    "a kept row missing": (drop(KEPT, ("a", 1)), [(KEPT, "missing: should be kept", 1, "a, position 1")]),
    "a row that is kept again missing": (drop(KEPT, ("d", 0)), [(KEPT, "missing: should be kept", 1, "d, position 0")]),
    "a conflict missing": (drop(CONFLICTS, ("b", 1)),
        [(CONFLICTS, "missing: should be a conflict", 1, "b, position 1")]),
    "a late row missing": (drop(LATE, ("c", 0)), [(LATE, "missing: should be late", 1, "c, position 0")]),
    "a duplicate kept": (add(KEPT, ("b", 0)),
        [(KEPT, "should be a duplicate", 1, "b, position 0: same key and content as a, position 0")]),
    "a conflict kept": (both(drop(CONFLICTS, ("b", 1)), add(KEPT, ("b", 1))),
        [(KEPT, "should be a conflict", 1, "b, position 1: same key as a, position 0, other content")]),
    "a late row kept": (both(drop(LATE, ("c", 0)), add(KEPT, ("c", 0))),
        [(KEPT, "should be late", 1, f"c, position 0: event time 2026-01-12 12:00:00+00, horizon {EARLY}")]),
    "a kept row as a conflict": (both(drop(KEPT, ("d", 0)), add(CONFLICTS, ("d", 0))),
        [(CONFLICTS, "should be kept", 1, f"d, position 0: event time 2026-01-24 12:00:00+00, horizon {LAST}")]),
    "a kept row as late": (both(drop(KEPT, ("a", 0)), add(LATE, ("a", 0))),
        [(LATE, "should be kept", 1, "a, position 0: event time 2026-01-20 12:00:00+00, horizon none")]),
    "a duplicate as a conflict": (add(CONFLICTS, ("b", 0)),
        [(CONFLICTS, "should be a duplicate", 1, "b, position 0: same key and content as a, position 0")]),
    "a conflict that is kept, too": (add(KEPT, ("b", 1)),
        [(KEPT, "should be a conflict", 1, "b, position 1: same key as a, position 0, other content")]),
    "a conflict with the wrong winner": (edit(CONFLICTS, ("b", 1), _winner_source="b", _winner_position=0),
        [(CONFLICTS, "wrong winner", 1, "b, position 1: points to b, position 0, expected a, position 0")]),
    "a conflict without a winner": (edit(CONFLICTS, ("b", 1), _winner_source=None),
        [(CONFLICTS, "wrong winner", 1, "b, position 1: points to no source, expected a, position 0")]),
    "a late row with the wrong horizon": (edit(LATE, ("c", 0), _horizon=NOON),
        [(LATE, "wrong horizon", 1, f"c, position 0: has 2026-01-20 12:00:00+00, expected {EARLY}")]),
    "a late row without a horizon": (edit(LATE, ("c", 0), _horizon=None),
        [(LATE, "wrong horizon", 1, f"c, position 0: has none, expected {EARLY}")]),
    "a count in the ledger": (edit(LEDGER, ("b", 1), duplicates=2),
        [(LEDGER, "wrong counts", 1, "b, micro-batch 1: duplicates: ledger 2, recounted 1")]),
    "a count that is null": (edit(LEDGER, ("b", 1), duplicates=None, bronze=3),
        [(LEDGER, "wrong counts", 1,
            "b, micro-batch 1: bronze: ledger 3, recounted 2; duplicates: ledger 0, recounted 1")]),
    "a duplicate counted as late": (edit(LEDGER, ("b", 1), duplicates=0, late=1),
        [(LEDGER, "wrong counts", 1,
            "b, micro-batch 1: duplicates: ledger 0, recounted 1; late: ledger 1, recounted 0")]),
    "a ledger row missing": (drop(LEDGER, ("b", 1)), [(LEDGER, "wrong counts", 1, "b, micro-batch 1: no row")]),
    "a ledger row twice": (book_twice, [(LEDGER, "wrong counts", 1, "a, micro-batch 0: 2 rows")]),
    "a ledger row of no source": (lambda tables: tables[LEDGER].append({"source": "e", "micro_batch_id": 1}),
        [(LEDGER, "wrong counts", 1, "e, micro-batch 1: bronze has no rows of it")]),
    "a row of bronze more": (lambda tables: tables[BRONZE].append(event((1, "b", 9), "q")),
        [(LEDGER, "wrong counts", 1, "b, micro-batch 1: bronze: ledger 2, recounted 3; kept: ledger 0, recounted 1"),
            (KEPT, "missing: should be kept", 1, "b, position 9")]),
}  # fmt: skip


# The first of each table, or of what can be wrong with a row; the others with ALL=1.
BY_DEFAULT = (
    "a kept row that is not in bronze",
    "a kept row with other values",
    "a kept row twice",
    "a kept row missing",
    "a duplicate kept",
    "a conflict kept",
    "a late row kept",
    "a conflict with the wrong winner",
    "a late row with the wrong horizon",
    "a count in the ledger",
    "a ledger row missing",
)


@pytest.mark.parametrize("name", [name if name in BY_DEFAULT else only_with_all(name) for name in FAULTS])
def test_each_fault_is_found(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    fault, expected = FAULTS[name]
    tables = decided(CLEAN, WEEK)
    assert verify(connection, tables).clean
    fault(tables)
    found = verify(connection, tables).findings
    assert [(each.place, each.what, each.rows, *each.details) for each in found] == expected


def test_examples_are_few_and_all_rows_are_counted(connection: duckdb.DuckDBPyConnection) -> None:
    places = [(number, f"s{number}", position) for number in range(5) for position in range(4)]
    bronze = [event(place, str(place)) for place in places]
    tables = decided(bronze, WEEK)
    tables[KEPT] = [row | {"user_id": "b"} for row in tables[KEPT]]
    [finding] = verify(connection, tables).findings
    assert (finding.rows, len(finding.details)) == (20, 5)
    assert finding.details[0] == "s0, position 0: user_id"
    assert finding.details[4] == "s1, position 0: user_id"


def test_an_empty_stream_is_clean(connection: duckdb.DuckDBPyConnection) -> None:
    found = verify(connection, decided([], WEEK), end=0)
    assert (found.findings, found.waiting, sum(found.facts["verdicts"].values())) == ((), 0, 0)


def test_rows_of_silver_without_any_of_bronze_are_found(connection: duckdb.DuckDBPyConnection) -> None:
    found = verify(connection, decided(CLEAN, WEEK) | {BRONZE: []})
    assert {(each.place, each.what, each.rows) for each in found.findings} == {
        (KEPT, "not in bronze", 3),
        (CONFLICTS, "not in bronze", 2),
        (LATE, "not in bronze", 1),
        (LEDGER, "wrong counts", 4),
    }
