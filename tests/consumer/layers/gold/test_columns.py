"""Measures and windows in Arrow agree with the definition of the aggregates over the judge's own evaluation."""

from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lakeproof.gold.test_measures import SMALL, by_another, computed, measures, same
from tests.lakeproof.judge.test_rule_checks import FIELDS, RECORDS, VALUES, records

from consumer.layers.gold.columns import START, aggregated, in_windows, pieces_in_windows
from consumer.layers.gold.touched import merged
from lakeproof.contracts import PrimitiveType
from lakeproof.contracts.rules.types import RuleError
from lakeproof.errors import LakeproofError
from lakeproof.gold.measures import parse_measure
from lakeproof.gold.model import Aggregate, Measure, Product, Publish, Window
from lakeproof.judge.judged import value_columns

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR, MICROSECOND = timedelta(hours=1), timedelta(microseconds=1)


HOURLY = Window(HOUR, HOUR)
COUNT = Measure("n", Aggregate.COUNT, None, PrimitiveType.LONG)


def product(*found: Measure, window: Window = HOURLY) -> Product:
    return Product("p", "records", "", (), window, found, Publish.UPDATES, ("table",))


def rows_of(found: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = [*value_columns(found, RECORDS), pa.array([NOW] * len(found), pa.timestamp("us", "UTC"))]
    return pa.RecordBatch.from_arrays(columns, names=[*(field.name for field in FIELDS), "now"])


def computed_by_arrow(found: list[dict[str, Any]], made: Product) -> pa.Table:
    return aggregated(in_windows(rows_of(found), made, "now"), made, NOW)


def taken(sql: str, index: int) -> Measure | None:
    try:
        return parse_measure(f"m{index}", sql, FIELDS)
    except RuleError:
        return None


@given(st.lists(measures | by_another, min_size=20, max_size=25), st.lists(records, min_size=1, max_size=6))
def test_arrow_computes_the_same(sqls: list[str], found: list[dict[str, Any]]) -> None:
    parsed = {sql: measure for index, sql in enumerate(sqls) if (measure := taken(sql, index))}
    made = product(*parsed.values(), COUNT)
    [row] = computed_by_arrow(found, made).to_pylist()
    assert (row["window_start"], row["window_end"]) == (NOW, NOW + HOUR)
    assert row["n"] == len(found)
    for sql, measure in parsed.items():
        expected = computed(measure, found)
        assert same(row[measure.name]) == same(expected), sql


def test_results_at_the_ends_of_types() -> None:
    largest = 2**63 - 1
    cases: dict[str, tuple[str, list[Any]]] = {
        "sum(l)": ("l", [largest] * 3),
        "max(-(l))": ("l", [-largest - 1, 0]),
        "count(distinct d)": ("d", [0.0, -0.0, None, 1.0]),
        "min(d)": ("d", [0.0, -0.0]),
        "max(d)": ("d", [-0.0, -1.0]),
        "max(d * 1e308 - d * 1e308)": ("d", [1.0, 1e10]),  # NaN
        "max(s)": ("s", ["a", "é", "😀", "\uffff"]),
        "count(CASE WHEN length(s) = 1 THEN 1 END)": ("s", ["😀", "a"]),
        "count(CASE WHEN s LIKE '_' THEN 1 END)": ("s", ["😀", "ab"]),
        "count(CASE WHEN moment < '1582-10-10T00:00:00.000001Z' THEN 1 END)": (
            "moment",
            [datetime(1582, 10, 10, tzinfo=UTC), datetime(1582, 10, 10, 1, tzinfo=UTC)],
        ),
        "count(CASE WHEN day < '1582-10-11' THEN 1 END)": ("day", [datetime(1582, 10, d).date() for d in (10, 11)]),
        "min(day)": ("day", [datetime(1, 1, 1).date(), None]),
    }
    for sql, (field, values) in cases.items():
        found = [dict.fromkeys(VALUES) | {field: value} for value in values]
        made = product(parse_measure("m", sql, FIELDS))
        [row] = computed_by_arrow(found, made).to_pylist()
        expected = computed(made.measures[0], found)
        assert (str(row["m"]), type(row["m"])) == (str(expected), type(expected)), sql


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({10**32 - 1: 1_000_000}, False),
        ({10**32 - 1: 1_000_001}, True),
        ({10**32 - 1: 2_000_000}, True),  # Arrow's sum is negative
        ({10**32 - 1: 4_000_000}, True),  # Arrow's sum is positive, but wrong
        ({10**32 - 1: 600_000, 1 - 10**32: 600_000}, True),  # in DuckDB, it depends on their order
        ({10**26: 1_200_000, -(10**26): 1_200_000}, False),
    ],
)
def test_a_sum_of_more_than_38_digits_is_refused(values: dict[int, int], *, refused: bool) -> None:
    made = product(parse_measure("total", "sum(wide)", SMALL))
    with localcontext(prec=60):
        units = {Decimal(value).scaleb(-4): count for value, count in values.items()}
        total = sum(value * count for value, count in units.items())
    wide = pa.concat_arrays([pa.repeat(pa.scalar(each, pa.decimal128(32, 4)), n) for each, n in units.items()])
    at = pa.repeat(pa.scalar(NOW, pa.timestamp("us", "UTC")), len(wide))
    rows = in_windows(pa.record_batch({"wide": wide, "at": at}), made, "at")
    if refused:
        with pytest.raises(LakeproofError, match="The measure total of p has more than 38 digits in a window"):
            aggregated(rows, made, NOW)
    else:
        assert aggregated(rows, made, NOW)["total"].to_pylist() == [total]


def test_the_windows_of_a_sum_are_checked_by_themselves() -> None:
    made = product(parse_measure("total", "sum(wide)", SMALL))
    largest = pa.scalar(Decimal(10**32 - 1).scaleb(-4, Context(prec=60)), pa.decimal128(32, 4))
    rows = pa.table({START: np.arange(1_200_000) % 2, "_value0": pa.repeat(largest, 1_200_000)})
    found = aggregated(rows, made, NOW)["total"].to_pylist()
    assert found == [Decimal("5999999999999999999999999999999940.0000")] * 2
    assert aggregated(rows.slice(0, 0), made, NOW).num_rows == 0
    nulls = rows.set_column(1, "_value0", pa.nulls(1_200_000, largest.type))
    assert aggregated(nulls, made, NOW)["total"].to_pylist() == [None, None]


def test_the_types_of_the_columns() -> None:
    sqls = ["count(*)", "sum(i)", "sum(m)", "min(i)", "max(m + i)", "max(free)", "min(moment)", "max(d)", "min(day)"]
    made = product(*(parse_measure(f"m{index}", sql, FIELDS) for index, sql in enumerate(sqls)))
    found = computed_by_arrow([], made)
    assert [str(each.type) for each in found.schema if each.name.startswith("m")] == [
        "int64", "decimal128(38, 0)", "decimal128(38, 2)", "int32", "decimal128(13, 2)", "string",
        "timestamp[us, tz=UTC]", "double", "date32[day]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("size", "every"),
    [(HOUR, HOUR), (HOUR, HOUR / 4), (timedelta(days=7), timedelta(days=7)), (timedelta(days=7), timedelta(days=1))],
)
def test_a_row_is_in_the_windows_that_contain_its_event_time(size: timedelta, every: timedelta) -> None:
    moments = [
        EPOCH + sign * offset + off * MICROSECOND
        for offset in (timedelta(0), HOUR, timedelta(days=7), timedelta(days=20_000, hours=5))
        for sign in (1, -1)
        for off in (-1, 0, 1)
    ]
    made = product(COUNT, window=Window(size, every))
    rows = pa.record_batch({"at": pa.array([*moments, None], pa.timestamp("us", "UTC"))})
    found = sorted(in_windows(rows, made, "at")[START].to_pylist())
    step, length = every // MICROSECOND, size // MICROSECOND
    expected = []
    for at in ((moment - EPOCH) // MICROSECOND for moment in moments):
        start = -(-(at - length + 1) // step) * step  # the first window that contains it
        while start <= at:
            expected.append(start)
            start += step
    assert found == sorted(expected)


def test_windows_that_overlap_repeat_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.layers.gold.columns.ROWS", 100)
    made = product(COUNT, window=Window(timedelta(days=1), timedelta(minutes=30)))  # 48 windows for each row
    at = pa.array([EPOCH + number * HOUR for number in range(7)], pa.timestamp("us", "UTC"))
    pieces = list(pieces_in_windows([pa.record_batch({"at": at})], made, "at"))
    assert [piece.num_rows for piece in pieces] == [96, 96, 96, 48]
    assert pa.concat_tables(pieces).equals(in_windows(pa.record_batch({"at": at}), made, "at"))


def test_spans_are_merged() -> None:
    assert merged([]) == []
    assert merged([(5, 7), (0, 2), (2, 3), (6, 9)]) == [(0, 3), (5, 9)]
    assert merged([(10 * number, 10 * number + 1) for number in range(200)]) == [(0, 1991)]
