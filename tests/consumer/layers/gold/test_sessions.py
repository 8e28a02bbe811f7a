"""Sessions on Arrow columns equal the plain model, in any order of rows."""

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.consumer.layers.gold.lakes import NOON, VISITS, columns, order
from tests.consumer.layers.gold.model import Order, by_key, sessions
from tests.lakeproof.gold.products import CONTRACT
from tests.selection import examples

from consumer.layers.gold.columns import END, START, aggregated, in_windows
from consumer.layers.gold.sessions import joined, overlapping, sessions_from, sessions_of
from lakeproof.contracts import parse_contract
from lakeproof.gold.product_file import parse_product
from lakeproof.tables.schemas import bronze_schema

ORDERS = parse_contract(CONTRACT.encode(), "orders.yaml", "orders")
SILVER = bronze_schema(ORDERS).as_arrow()
GAP = 30 * 60_000_000
MINUTE = timedelta(minutes=1)
PRODUCTS = {
    keys: parse_product(VISITS.text.replace("[customer]", keys).encode(), "visits.yaml", "visits", lambda _: ORDERS)
    for keys in ("[customer]", "[]", "[customer, place.city]")
}

moments = st.sampled_from([NOON + minutes * MINUTE for minutes in (0, 1, 10, 29, 30, 31, 45, 60, 75, 90, 3_000)])
orders = st.builds(
    order,
    st.none() | moments | moments.map(lambda at: at - timedelta(microseconds=1)),
    st.sampled_from([None, "", "a"]),
    st.sampled_from([None, "0.00", "-1.50", "2.00"]),
    channel=st.sampled_from([None, "web", "shop"]),
    ratio=st.sampled_from([None, -1.5, -0.0, 0.0]),
    city=st.sampled_from([None, "x"]),
)


def windows_of(found: list[Order], keys: str, *, measures: bool = True) -> pa.Table:
    rows = pa.RecordBatch.from_pylist(found, schema=pa.schema([field.with_nullable(True) for field in SILVER]))
    return in_windows(rows, PRODUCTS[keys], "ordered_at", measures=measures)


def micros(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000 + at.microsecond


def spans(*found: tuple[str, datetime, datetime]) -> pa.Table:
    who, starts, ends = zip(*found, strict=True)
    return pa.table({START: list(map(micros, starts)), END: list(map(micros, ends)), "_key0": list(who)})


@example([[order(NOON + 30 * MINUTE), order(NOON + 40 * MINUTE)], [order(NOON)]], "[customer]")
@given(st.lists(st.lists(orders, max_size=8), max_size=5), st.sampled_from([*PRODUCTS]))
@settings(max_examples=examples(80), deadline=None)
def test_corrected_sessions_are_those_of_all_rows(batches: list[list[Order]], keys: str) -> None:
    """Each batch meets sessions of the table; these sessions and their rows are replaced, and no others."""
    product = PRODUCTS[keys]
    taken: list[Order] = []
    table: list[dict[str, Any]] = []
    for batch in batches:
        taken += batch
        new = windows_of(batch, keys, measures=False)
        if not new.num_rows:
            continue
        opened = joined(new.append_column(END, pa.array([at + GAP for at in new[START].to_pylist()], pa.int64())))
        met = overlapping(as_sessions(table, keys, opened.schema), sessions_from(opened))
        touched = sessions_from(joined(pa.concat_tables([opened, met])))
        old = touched.of(as_sessions(table, keys, opened.schema).append_column("row", pa.array(range(len(table)))))
        mine = touched.of(windows_of(taken, keys))
        assert set(old["row"].to_pylist()) == set(found_in(table, met, keys))
        table = [row for index, row in enumerate(table) if index not in set(old["row"].to_pylist())]
        table += aggregated(sessions_of(mine, GAP), product, NOON).to_pylist()
    names = [key.name for key in product.keys]
    spec = VISITS.__class__(VISITS.text, tuple(names), VISITS.measures, VISITS.size, VISITS.every, session=True)
    assert by_key(tuple(row[name] for name in columns(spec)) for row in table) == sessions(taken, spec)


def as_sessions(table: list[dict[str, Any]], keys: str, schema: pa.Schema) -> pa.Table:
    names = dict(zip([f"_key{index}" for index in range(5)], [key.name for key in PRODUCTS[keys].keys], strict=False))
    rows = [
        {START: micros(row["window_start"]), END: micros(row["window_end"])}
        | {column: row[name] for column, name in names.items()}
        for row in table
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def found_in(table: list[dict[str, Any]], met: pa.Table, keys: str) -> list[int]:
    known = as_sessions(table, keys, met.schema).to_pylist()
    return [known.index(row) for row in met.to_pylist()]


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        ([0, 30], [(0, 30), (30, 60)]),
        ([0, 29], [(0, 59)]),
        ([60, 0, 29, 58], [(0, 90)]),
        ([5, 5, 5], [(5, 35)]),
        ([], []),
    ],
)
def test_a_gap_ends_a_session(minutes: list[int], expected: list[tuple[int, int]]) -> None:
    rows = windows_of([order(NOON + at * MINUTE) for at in minutes], "[customer]")
    found = sessions_of(rows, GAP)
    pairs = set(zip(found[START].to_pylist(), found[END].to_pylist(), strict=True))
    assert pairs == {(micros(NOON + start * MINUTE), micros(NOON + end * MINUTE)) for start, end in expected}


def test_a_long_session_holds_the_short_ones_behind_its_start() -> None:
    """The end of the long session counts, not the end of the session that starts last."""
    hour = 60 * MINUTE
    found = joined(
        spans(
            ("a", NOON, NOON + 5 * hour),
            ("a", NOON + hour, NOON + 2 * hour),
            ("a", NOON + 3 * hour, NOON + 4 * hour),
            ("b", NOON + hour, NOON + 2 * hour),
            ("a", NOON + 5 * hour, NOON + 6 * hour),
        )
    )
    assert found.sort_by([("_key0", "ascending"), (START, "ascending")]) == spans(
        ("a", NOON, NOON + 5 * hour), ("a", NOON + 5 * hour, NOON + 6 * hour), ("b", NOON + hour, NOON + 2 * hour)
    )


def test_only_sessions_that_overlap_are_met() -> None:
    hour = 60 * MINUTE
    wanted = sessions_from(spans(("a", NOON, NOON + hour), ("a", NOON + 9 * hour, NOON + 10 * hour)))
    known = [
        ("a", NOON - hour, NOON),
        ("a", NOON - hour, NOON + MINUTE),
        ("a", NOON + hour, NOON + 2 * hour),
        ("b", NOON, NOON + hour),
        ("a", NOON - 9 * hour, NOON + 20 * hour),
    ]
    assert overlapping(spans(*known), wanted) == spans(known[1], known[4])
