"""Each kind of fault in a table of gold is found, and nothing is reported for a table filled by the model."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.consumer.layers.gold.lakes import FINAL, NOON, SLIDING, SPENDING, VISITS, order
from tests.consumer.layers.gold.model import Order, Spec, windows
from tests.lakeproof.gold.products import CONTRACT
from tests.selection import examples, first_by_default, only_with_all

from lakeproof.contracts import parse_contract
from lakeproof.gold.model import Product
from lakeproof.gold.product_file import parse_product
from lakeproof.tables.schemas import bronze_schema, gold_schema
from reader.connect import Session
from reader.verify.findings import Finding, Findings
from reader.verify.gold import windows as windows_module
from reader.verify.gold.compare import compare_gold
from reader.verify.gold.windows import Taken, Windows
from reader.verify.spans import Span

ORDERS = parse_contract(CONTRACT.encode(), "orders.yaml", "orders")
SILVER = bronze_schema(ORDERS).as_arrow()
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
HOUR = timedelta(hours=1)
TABLE = "gold.product"
MONTHLY = Spec(
    SLIDING.text.replace("{size: 2 days, every: 6 hours}", "{size: 30 days, every: 10 days}"),
    (),
    SLIDING.measures,
    timedelta(days=30),
    timedelta(days=10),
)
SPECS = [SPENDING, SLIDING, MONTHLY, FINAL, VISITS]
NAMES = ["tumbling", "sliding", "over days", "final", "session"]

Row = dict[str, Any]


def product_of(spec: Spec) -> Product:
    name = spec.text.partition("name: ")[2].splitlines()[0]
    return parse_product(spec.text.encode(), f"{name}.yaml", name, lambda _: ORDERS)


def columns(spec: Spec) -> list[str]:
    return ["window_start", "window_end", *spec.keys, *spec.measures]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE SCHEMA silver")
        connection.execute("CREATE SCHEMA gold")
        yield Session(connection, [])


class Lake:
    """Silver, and a table of gold filled by the model.

    Parameters
    ----------
    session
        A session whose own database has the schemas.
    spec
        The product.
    orders
        Rows of silver; those without a micro-batch are in micro-batch 0.
    end
        The micro-batch of silver up to which gold is filled.
    horizon
        Horizon of the product, if its windows are final.
    """

    def __init__(
        self, session: Session, spec: Spec, orders: list[Order], end: int = 1, horizon: datetime | None = None
    ) -> None:
        self.session, self.spec, self.product = session, spec, product_of(spec)
        orders = [{"_micro_batch_id": 0} | each for each in orders]
        self.taken = Taken("silver.orders", end, None if horizon is None else (horizon - EPOCH) // MICROSECOND)
        self._write("silver.orders", SILVER, orders)
        known = [each for each in orders if each["_micro_batch_id"] < end]
        self.rows = [
            dict(zip(columns(spec), map(_unsigned, row), strict=True)) for row in windows(known, spec, horizon)
        ]

    def _write(self, name: str, schema: pa.Schema, rows: list[Row]) -> None:
        connection = self.session.connection
        connection.register("written", pa.Table.from_pylist(rows, schema=schema))
        connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM written")
        connection.unregister("written")

    def verify(self, rows: list[Row] | None = None, within: Span | None = None) -> dict[str, Finding]:
        """Return the findings for a table with these rows, by kind; only for windows that start in `within`."""
        schema = gold_schema(self.product).as_arrow()
        self._write(TABLE, schema, self.rows if rows is None else rows)
        found = Findings()
        spans = [within] if within else None
        count = compare_gold(self.session, self.product, ORDERS, TABLE, self.taken, TABLE, found, spans)
        assert count == len(self.rows) or within
        assert self.session.fetch("SELECT * FROM duckdb_tables() WHERE table_name LIKE 'verify%'") == []
        return {finding.what: finding for finding in found.whole()}


def _unsigned(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value  # a zero has no sign


ORDERS_OF_A_DAY = [
    order(NOON, "a", "1.00"),
    order(NOON + HOUR / 2, "a", "2.00", channel="shop", ratio=-1.0),
    order(NOON, None, "3.00"),
    order(NOON, "", None),
    order(NOON + HOUR, "a", "-4.00", count=None, ratio=None),
    order(None, "a", "5.00"),
    order(EPOCH - MICROSECOND, "old", "6.00", ratio=-0.0),
    order(NOON, "a", "7.00", _micro_batch_id=1),  # not in gold yet
]


@pytest.fixture
def lake(session: Session) -> Lake:
    return Lake(session, SPENDING, ORDERS_OF_A_DAY)


def test_a_table_as_the_model_makes_it(lake: Lake) -> None:
    assert len(lake.rows) == 5
    assert lake.verify() == {}


def other(value: Any) -> Any:
    """Return another value of the same type, as close as possible."""
    match value:
        case None:
            return 0
        case Decimal():
            # Towards zero, so that it has no more digits than the column.
            return value + (1 if value <= 0 else -1) * Decimal(1).scaleb(int(value.as_tuple().exponent))
        case datetime():
            return value + MICROSECOND
        case _:
            return value + 1


CHANGES: dict[str, tuple[str, Callable[[list[Row]], Any], str]] = {
    "a row is missing": ("missing", lambda rows: rows.pop(1), '2026-11-20 12:00:00+00, customer null, count 1'),
    "a row of a window without orders": (
        "not expected",
        lambda rows: rows.append(rows[1] | {"window_start": NOON - HOUR, "window_end": NOON}),
        "2026-11-20 11:00:00+00, customer null, count 1",
    ),
    "a row of another key": (
        "not expected",
        lambda rows: rows.append(rows[1] | {"customer": "z"}),
        '2026-11-20 12:00:00+00, customer "z", count 1',
    ),
    "a row that is not aligned": (
        "not expected",
        lambda rows: rows.append(rows[1] | {"window_start": NOON + MICROSECOND}),
        "2026-11-20 12:00:00.000001+00, customer null, count 1",
    ),
    "a row without a window": (
        "not expected",
        lambda rows: rows.append(rows[1] | {"window_start": None}),
        "no window_start, customer null, count 1",
    ),
    "a row in the far future": (
        "not expected",
        lambda rows: rows.append(rows[1] | {"window_start": datetime(9999, 1, 1, tzinfo=UTC)}),
        "9999-01-01 00:00:00+00, customer null, count 1",
    ),
    "a row twice": (
        "several rows of one window",
        lambda rows: rows.append(rows[1]),
        "2026-11-20 12:00:00+00, customer null, count 1: 2 rows",
    ),
    "a window that is longer": (
        "wrong window_end",
        lambda rows: rows[1].update(window_end=NOON + 2 * HOUR),
        "2026-11-20 12:00:00+00, customer null, count 1: "
        "has 2026-11-20 14:00:00+00, expected 2026-11-20 13:00:00+00",
    ),
    "a window without an end": (
        "wrong window_end",
        lambda rows: rows[1].update(window_end=None),
        "2026-11-20 12:00:00+00, customer null, count 1: has null, expected 2026-11-20 13:00:00+00",
    ),
    "a negative zero": (
        "wrong steepest",
        lambda rows: rows[0].update(steepest=-0.0),
        '1969-12-31 23:00:00+00, customer "old", count 1: has -0.0, expected 0.0',
    ),
    "not a number": (
        "wrong steepest",
        lambda rows: rows[1].update(steepest=float("nan")),
        "2026-11-20 12:00:00+00, customer null, count 1: has nan, expected 0.5",
    ),
    "a cent": (
        "wrong spent",
        lambda rows: rows[1].update(spent=Decimal("3.01")),
        "2026-11-20 12:00:00+00, customer null, count 1: has 3.01, expected 3.00",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("slice_rows", first_by_default([1, 1_000_000]))
def test_a_planted_fault_is_found(lake: Lake, change: str, slice_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "_SLICE_ROWS", slice_rows)
    what, plant, example = CHANGES[change]
    lake.rows.sort(key=lambda row: (row["window_start"], row["customer"] is not None, row["customer"] or ""))
    rows = [dict(row) for row in lake.rows]
    plant(rows)
    assert lake.verify(rows) == {what: Finding(TABLE, what, 1, (example,))}


@pytest.mark.parametrize("measure", SPENDING.measures)
@pytest.mark.parametrize("to_null", first_by_default([False, True]))
def test_a_wrong_value_of_each_measure_is_found(lake: Lake, measure: str, to_null: bool) -> None:
    for index, row in enumerate(lake.rows):
        if to_null and row[measure] is None:
            continue
        rows = [dict(each) for each in lake.rows]
        rows[index][measure] = None if to_null else other(row[measure])
        assert [(each.what, each.rows) for each in lake.verify(rows).values()] == [(f"wrong {measure}", 1)]


@pytest.mark.parametrize(("key", "value"), [("customer", "z"), ("count", None), ("count", 2)])
def test_another_key_is_a_window_that_is_missing_and_one_that_is_not_expected(lake: Lake, key: str, value: Any) -> None:
    rows = [row | {key: value} if row["customer"] is None else row for row in lake.rows]
    assert {kind: found.rows for kind, found in lake.verify(rows).items()} == {"missing": 1, "not expected": 1}


def test_a_key_that_another_window_has(lake: Lake) -> None:
    """Null and empty text are different keys."""
    rows = [row | {"customer": "" if row["customer"] is None else row["customer"]} for row in lake.rows]
    found = lake.verify(rows)
    assert found.keys() == {"missing", "several rows of one window", "wrong spent", "wrong cheapest", "wrong large"}
    assert found["missing"].details == ("2026-11-20 12:00:00+00, customer null, count 1",)


def test_a_window_that_is_there_with_two_values(lake: Lake) -> None:
    rows = [*lake.rows, lake.rows[2] | {"orders": 100}]
    assert lake.verify(rows).keys() == {"several rows of one window", "wrong orders"}


def test_what_silver_has_beyond_the_micro_batch_of_gold_is_not_expected(session: Session) -> None:
    ahead = Lake(session, SPENDING, ORDERS_OF_A_DAY, end=2).rows
    lake = Lake(session, SPENDING, ORDERS_OF_A_DAY, end=1)
    assert lake.verify(ahead).keys() == {"wrong orders", "wrong spent", "wrong large"}


def test_a_row_of_silver_without_a_micro_batch_is_in_no_window(session: Session) -> None:
    lake = Lake(session, SPENDING, ORDERS_OF_A_DAY)
    session.fetch("INSERT INTO silver.orders BY NAME SELECT * REPLACE (NULL AS _micro_batch_id) FROM silver.orders")
    assert lake.verify() == {}


def test_a_final_window_is_expected_once_the_horizon_has_passed_it(session: Session) -> None:
    for horizon, published in ((NOON + HOUR - MICROSECOND, 1), (NOON + HOUR, 4), (NOON + 2 * HOUR, 5)):
        lake = Lake(session, FINAL, ORDERS_OF_A_DAY, horizon=horizon)
        assert (len(lake.rows), lake.verify()) == (published, {})
    found = Lake(session, FINAL, ORDERS_OF_A_DAY, horizon=NOON + HOUR).verify(lake.rows)
    assert {kind: finding.rows for kind, finding in found.items()} == {"not expected": 1}


def test_examples_are_few_and_short(session: Session) -> None:
    text = SPENDING.text.replace("orders: count(*)", "orders: max(customer)")
    spec = Spec(text, SPENDING.keys, SPENDING.measures, HOUR, HOUR)
    long = "\x1b[31m" + "é" * 1_000
    lake = Lake(session, spec, [order(NOON, f"{number}{long}") for number in range(7)])
    (finding,) = lake.verify([row | {"orders": "short"} for row in lake.rows]).values()
    assert (finding.rows, len(finding.details)) == (7, 5)
    assert finding.details[0].startswith('2026-11-20 12:00:00+00, customer "0\\u001B[31mé')
    assert finding.details[0].endswith('é…"')
    assert '…", count 1: has "short", expected "0' in finding.details[0]


PLANTED_IN_SESSIONS: dict[str, tuple[Callable[[list[Row]], Any], set[str]]] = {
    "a late row did not join two sessions": (
        lambda rows: rows.append(rows[1] | {"window_start": NOON + HOUR / 2}),
        {"not expected"},
    ),
    "a session that begins with its second row": (
        lambda rows: rows[1].update(window_start=NOON + HOUR / 3),
        {"missing", "not expected"},
    ),
    "a session that ends with its first row": (
        lambda rows: rows[1].update(window_end=NOON + HOUR / 2),
        {"wrong window_end"},
    ),
    "the channel of the second row": (lambda rows: rows[1].update(arrived="web"), {"wrong arrived"}),
    "no channel": (lambda rows: rows[2].update(arrived="web"), {"wrong arrived"}),
    "the total of the row before the last": (
        lambda rows: rows[1].update(left_with=Decimal("1.00")),
        {"wrong left_with"},
    ),
}


@pytest.mark.parametrize("fault", first_by_default(PLANTED_IN_SESSIONS, 3))
@pytest.mark.parametrize("slice_rows", first_by_default([1, 1_000_000]))
def test_a_fault_planted_in_sessions_is_found(
    session: Session, fault: str, slice_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows_module, "_SLICE_ROWS", slice_rows)
    lake = Lake(
        session,
        VISITS,
        [
            order(NOON + HOUR / 3, "a", channel="web"),
            order(NOON, "a", channel="shop"),
            order(NOON, "a", channel=None),
            order(NOON + 2 * HOUR / 3, "a", total="2.00"),
            order(NOON, "b", channel=None),
            order(NOON + HOUR / 3, "b"),
            order(NOON, None),
            order(NOON + 7 * HOUR / 6, "z"),
            order(NOON + 2 * HOUR / 3, "z"),  # half an hour before: two sessions
        ],
    )
    lake.rows.sort(key=lambda row: row["customer"] or "")
    assert [row["arrived"] for row in lake.rows] == ["web", "shop", None, "web", "web"]
    assert lake.verify() == {}
    plant, expected = PLANTED_IN_SESSIONS[fault]
    rows = [dict(row) for row in lake.rows]
    plant(rows)
    assert lake.verify(rows).keys() == expected


moments = st.sampled_from([NOON + step * number for number in range(-3, 4) for step in (HOUR / 3, 36 * HOUR)])
orders = st.builds(
    order,
    st.none() | moments | st.just(EPOCH - MICROSECOND),
    st.sampled_from([None, "", "a"]),
    st.sampled_from([None, "0.00", "-1.50", "99999999.99", "2.00"]),
    channel=st.sampled_from([None, "web", "shop"]),
    count=st.sampled_from([None, 1, 2]),
    ratio=st.sampled_from([None, -1.5, -0.0, 0.0]),
    _micro_batch_id=st.integers(0, 3),
)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
@pytest.mark.parametrize("slice_rows", [1, pytest.param(3, marks=pytest.mark.long), only_with_all(1_000_000)])
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_verify_finds_exactly_the_tables_that_differ_from_the_model(
    session: Session, spec: Spec, slice_rows: int, data: st.DataObject
) -> None:
    """For any silver, and any number of changes to rows of gold."""
    found = data.draw(st.lists(orders, max_size=12))
    horizon = data.draw(moments) if spec.final else None
    lake = Lake(session, spec, found, data.draw(st.integers(0, 4)), horizon)
    chance = data.draw(st.randoms(use_true_random=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows_module, "_SLICE_ROWS", slice_rows)
        assert lake.verify() == {}
        rows = damaged(chance, lake.rows)
        assert bool(lake.verify(rows)) == (Counter(map(values, rows)) != Counter(map(values, lake.rows)))


def damaged(chance: random.Random, rows: list[Row]) -> list[Row]:
    """Return rows of gold after a few changes, some of which may cancel out."""
    rows = [dict(row) for row in rows]
    for _ in range(chance.randint(0, 3)):
        if not rows:
            return rows
        row = chance.choice(rows)
        match chance.randint(0, 3):
            case 0:
                rows.remove(row)
            case 1:
                rows.append(dict(row))
            case 2:
                column = chance.choice([*row])
                choices = [each[column] for each in rows]
                if not isinstance(row[column], str | None):
                    choices.append(other(row[column]))
                row[column] = chance.choice(choices)
            case 3:
                row["window_start"] += chance.choice((HOUR, -HOUR, 6 * HOUR))
    return rows


def values(row: Row) -> tuple[Any, ...]:
    """Return a row's values; for doubles, the sign of a zero counts."""
    return tuple(str(value) if isinstance(value, float) else value for value in row.values())


def test_slices_are_all_times_and_no_time_twice(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "_SLICE_ROWS", 2)
    lake = Lake(session, SLIDING, [order(NOON + number * 6 * HOUR) for number in range(5)])
    slices = Windows(session, lake.product, ORDERS, lake.taken).slices(Span())
    assert len(slices) == 5
    assert (slices[0].start, slices[-1].end) == (None, None)
    assert all(one.end == following.start for one, following in pairwise(slices))
    assert all(each.start < each.end for each in slices[1:-1] if each.start and each.end)


@pytest.mark.parametrize("after", [-MICROSECOND, timedelta(0), MICROSECOND, HOUR])
def test_a_span_may_begin_between_the_starts_of_windows(session: Session, after: timedelta) -> None:
    """As with --new: the horizon, from which unpublished windows are compared, is any time."""
    lake = Lake(session, SLIDING, [order(NOON + number * 5 * HOUR) for number in range(10)])
    span = Span((NOON + after - EPOCH) // MICROSECOND)
    assert lake.verify(within=span) == {}
    assert lake.verify(lake.rows[:-1], span).keys() == {"missing"}


def test_rows_that_gold_does_not_have_yet(session: Session) -> None:
    recomputed = Windows(session, product_of(SPENDING), ORDERS, Lake(session, SPENDING, ORDERS_OF_A_DAY, end=2).taken)
    assert [recomputed.rows_since(number) for number in (0, 1, 2)] == [7, 1, 0]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(orders, max_size=12), moments, st.none() | moments, st.sampled_from([FINAL, SLIDING, MONTHLY]))
def test_rows_of_windows_that_close(
    session: Session, found: list[Order], horizon: datetime, before: datetime | None, spec: Spec
) -> None:
    lake = Lake(session, spec, found, end=4)
    count = 0
    for each in found:
        ends = [row[1] for row in windows([each], Spec(spec.text, (), {}, spec.size, spec.every))]
        count += any(end <= horizon and (before is None or end > before) for end in ends)
    at, earlier = ((time - EPOCH) // MICROSECOND if time else None for time in (horizon, before))
    assert Windows(session, lake.product, ORDERS, lake.taken).rows_that_close(at or 0, earlier) == count
