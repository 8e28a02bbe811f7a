"""Measures in DuckDB's SQL equal the definition of the aggregates, and so the results in Spark."""

from datetime import UTC, date, datetime
from decimal import localcontext
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.lakeproof.gold.test_measures import TAKEN, by_another, computed, measures, same
from tests.lakeproof.judge.test_rule_checks import FIELDS, RECORDS, VALUES, records
from tests.selection import examples

from lakeproof.contracts.rules.types import RuleError
from lakeproof.gold.measures import parse_measure
from lakeproof.gold.model import Measure
from lakeproof.judge.judged import value_columns
from reader.verify.gold.sql import aggregate_of, value_of

DUCKDB = duckdb.connect(config={"threads": 1})
DUCKDB.execute("SET TimeZone = 'UTC'")
LARGEST = 2**63 - 1


def in_duckdb(measure: Measure, rows: list[dict[str, Any]]) -> Any:
    """Return verify's result for rows, whose order must not matter."""
    DUCKDB.register("rows", pa.table(value_columns(rows, RECORDS), [field.name for field in FIELDS]))
    sql = f"SELECT {aggregate_of(measure, 'x', 'y')} FROM (SELECT {selected(measure)} FROM rows AS _silver)"
    [(found,)] = DUCKDB.execute(sql).fetchall()
    return found


def selected(measure: Measure) -> str:
    value, order = (value_of(each, "_silver") if each else "NULL" for each in (measure.argument, measure.order))
    return f"{value} AS x, {order} AS y"


@given(measures | by_another, st.lists(records, min_size=1, max_size=8))
@settings(max_examples=examples(400), deadline=None)
def test_a_measure_has_the_value_that_its_definition_gives(sql: str, rows: list[dict[str, Any]]) -> None:
    try:
        measure = parse_measure("x", sql, FIELDS)
    except RuleError as error:
        assume("it does not use any field" not in str(error) and "digits" not in str(error))
        raise
    expected, found = computed(measure, rows), in_duckdb(measure, rows)
    assert same(found) == same(expected)
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("sql", "field", "values"),
    [
        ("sum(l)", "l", [LARGEST] * 3),
        ("sum(m * l)", "l", [LARGEST, -LARGEST]),
        ("max(-(l))", "l", [-LARGEST - 1, 0]),
        ("max(abs(l))", "l", [-LARGEST - 1, 0]),
        ("sum(l)", "l", [None, None]),
        ("count(l)", "l", [None, 1]),
        ("count(distinct d)", "d", [0.0, -0.0, None, 1.0]),
        ("min(d)", "d", [0.0, -0.0]),
        ("max(d)", "d", [-0.0, -1.0]),
        ("max(d * 1e308 - d * 1e308)", "d", [1.0, 1e10]),
        ("min(d * 1e308 - d * 1e308)", "d", [1.0, 1e10]),
        ("count(distinct d * 1e308 - d * 1e308)", "d", [1e10, 1e11, 1.0]),
        ("count(CASE WHEN d * 1e308 > 1e308 THEN 1 END)", "d", [1e10, 1.0]),
        ("max(s)", "s", ["a", "é", "😀", "\uffff"]),
        ("min_by(s, m)", "s", ["b", None, "a", ""]),  # of values in the same place, the least; null is the greatest
        ("max_by(s, m)", "s", ["a", "b", None]),
        ("max_by(s, m)", "s", [None, None]),
        ("min_by(s, i)", "s", ["a"]),  # none without an order
        ("min_by(d, d)", "d", [0.0, -0.0, None]),
        ("max_by(m, d * 1e308 - d * 1e308)", "d", [1.0, 1e10]),
        ("min(s)", "s", ["B", "a", "a ", ""]),
        ("count(distinct s)", "s", ["a", "A", "a ", "é", "e\u0301"]),
        ("count(CASE WHEN s = 'a' THEN 1 END)", "s", ["a", "A", "a "]),
        ("count(CASE WHEN s LIKE '_' THEN 1 END)", "s", ["😀", "ab", "e\u0301"]),
        ("count(CASE WHEN s LIKE 'a%c' THEN 1 END)", "s", ["a\nb\nc", "aXc", "AXC", "a\\c", "abcd"]),
        ("count(CASE WHEN length(s) = 1 THEN 1 END)", "s", ["😀", "a", "e\u0301"]),
        ("count(CASE WHEN s <> 'it''s {0}' THEN 1 END)", "s", ["it's {0}", None, "x"]),
        ("count(CASE WHEN m = 1 THEN 1 END)", "m", ["1.00", "1.01", None]),
        ("sum(m * 3 - m)", "m", ["99999999.99", "-0.01"]),
        ("max(CASE WHEN b THEN m ELSE 0.125 END)", "m", ["0.13", "-0.01"]),
        ("count(b IS NOT TRUE)", "b", [True, False, None]),
        ("min(coalesce(i, -1))", "i", [None, 2**31 - 1, -(2**31)]),
        ("count(CASE WHEN i = l THEN 1 END)", "i", [None, 1]),
        ("max(o.n)", "o", [None, {"n": None, "deep": None}, {"n": 3, "deep": None}]),
        ("count(o.deep)", "o", [None, {"n": 1, "deep": None}, {"n": 1, "deep": {"t": None}}]),
        ("count(o)", "o", [None, {"n": None, "deep": None}]),
        ("min(day)", "day", [date(1, 1, 1), None]),
        ("max(day)", "day", [date(9999, 12, 31), date(1, 1, 1)]),
        ("count(CASE WHEN day < '1582-10-11' THEN 1 END)", "day", [date(1582, 10, 10), date(1582, 10, 11)]),
        (
            "count(CASE WHEN moment < '1582-10-10T00:00:00.000001Z' THEN 1 END)",
            "moment",
            [datetime(1582, 10, 10, tzinfo=UTC), datetime(1582, 10, 10, 1, tzinfo=UTC)],
        ),
        ("count(CASE WHEN moment = '1969-12-31T23:59:59.999999Z' THEN 1 END)", "moment", [
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)
        ]),
    ],
)  # fmt: skip
def test_results_at_the_ends_of_types(sql: str, field: str, values: list[Any]) -> None:
    rows = [dict.fromkeys(VALUES) | {"m": "99999999.99", "b": True} | {field: value} for value in values]
    rows = [row | {"m": pa.scalar(row["m"]).cast(pa.decimal128(10, 2)).as_py() if row["m"] else None} for row in rows]
    measure = parse_measure("x", sql, FIELDS)
    with localcontext(prec=60):
        expected, found = computed(measure, rows), in_duckdb(measure, rows)
    assert (str(found).strip("-") if found != found else str(found)) == str(expected)  # the sign of NaN is meaningless
    assert type(found) is type(expected)
    assert in_duckdb(measure, rows[::-1]) == found or found != found


def test_every_measure_that_is_taken_has_sql() -> None:
    """For fields of all types, also without rows."""
    from tests.lakeproof.gold.test_measures import SMALL

    columns = ", ".join(f"NULL::{kind} AS {name}" for name, kind in _SMALL_TYPES.items())
    for sql in TAKEN:
        measure = parse_measure("x", sql, SMALL)
        rows = f"(SELECT {selected(measure)} FROM (SELECT {columns} LIMIT 0) AS _silver)"
        query = f"SELECT {aggregate_of(measure, 'x', 'y')} FROM {rows}"
        [(found,)] = DUCKDB.execute(query).fetchall()
        assert found == (0 if sql.lower().startswith("count") else None), sql


_SMALL_TYPES = {
    "s": "VARCHAR",
    "free": "VARCHAR",
    "b": "BOOLEAN",
    "i": "INTEGER",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "m": "DECIMAL(10, 2)",
    "wide": "DECIMAL(32, 4)",
    "widest": "DECIMAL(33, 4)",
    '"at"': "TIMESTAMPTZ",
    "day": "DATE",
    "o": "STRUCT(x INTEGER)",
    "list": "INTEGER[]",
    "map": "MAP(VARCHAR, INTEGER)",
}
