"""Measures: accepted ones, for which DuckDB computes the same result from the same SQL."""

import math
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.lakeproof.judge.test_rule_checks import (
    FIELDS,
    RECORDS,
    VALUES,
    comparisons,
    doubles,
    exact,
    records,
    texts,
    typed,
    whole,
)
from tests.selection import examples

from lakeproof.contracts import DecimalType, Field, ListType, MapType, ObjectType, PrimitiveType
from lakeproof.contracts.model import type_name
from lakeproof.contracts.rules.expression import Call, Column, Literal, Operator
from lakeproof.contracts.rules.types import RuleError
from lakeproof.gold.measures import parse_measure
from lakeproof.gold.model import Aggregate, Measure
from lakeproof.judge.judged import value_columns
from lakeproof.judge.rule_checks import evaluate

INT, LONG, DOUBLE = PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.DOUBLE
STRING, BOOLEAN = PrimitiveType.STRING, PrimitiveType.BOOLEAN
SMALL = (
    Field("s", STRING),
    Field("free", PrimitiveType.SCALAR),
    Field("b", BOOLEAN),
    Field("i", INT),
    Field("l", LONG),
    Field("f", PrimitiveType.FLOAT),
    Field("d", DOUBLE),
    Field("m", DecimalType(10, 2)),
    Field("wide", DecimalType(32, 4)),
    Field("widest", DecimalType(33, 4)),
    Field("at", PrimitiveType.TIMESTAMP),
    Field("day", PrimitiveType.DATE),
    Field("o", ObjectType((Field("x", INT),))),
    Field("list", ListType(INT)),
    Field("map", MapType(INT)),
)
TAKEN = {
    "count(*)": (Aggregate.COUNT, LONG),
    "COUNT( * )": (Aggregate.COUNT, LONG),
    "count(o)": (Aggregate.COUNT, LONG),
    "count(list)": (Aggregate.COUNT, LONG),
    "count(f)": (Aggregate.COUNT, LONG),
    "count(i > 1)": (Aggregate.COUNT, LONG),
    "count(CASE WHEN b THEN 1 END)": (Aggregate.COUNT, LONG),
    "count(distinct s)": (Aggregate.COUNT_DISTINCT, LONG),
    "Count(Distinct (o.x))": (Aggregate.COUNT_DISTINCT, LONG),
    "count(distinct b)": (Aggregate.COUNT_DISTINCT, LONG),
    "count(distinct d)": (Aggregate.COUNT_DISTINCT, LONG),
    "sum(i)": (Aggregate.SUM, DecimalType(38, 0)),
    "sum(l)": (Aggregate.SUM, DecimalType(38, 0)),
    "sum(m)": (Aggregate.SUM, DecimalType(38, 2)),
    "sum(wide)": (Aggregate.SUM, DecimalType(38, 4)),
    "sum(m * i)": (Aggregate.SUM, DecimalType(38, 2)),
    "sum(m * l)": (Aggregate.SUM, DecimalType(38, 2)),
    "sum(length(s))": (Aggregate.SUM, DecimalType(38, 0)),
    "sum(coalesce(m, 0))": (Aggregate.SUM, DecimalType(38, 2)),
    "sum(CASE WHEN b THEN m ELSE 0 END)": (Aggregate.SUM, DecimalType(38, 2)),
    "min(i)": (Aggregate.MIN, INT),
    "max(l)": (Aggregate.MAX, LONG),
    "max(widest)": (Aggregate.MAX, DecimalType(33, 4)),
    "min(d)": (Aggregate.MIN, DOUBLE),
    "max(free)": (Aggregate.MAX, STRING),
    "min(at)": (Aggregate.MIN, PrimitiveType.TIMESTAMP),
    "max(day)": (Aggregate.MAX, PrimitiveType.DATE),
    "max(m + i)": (Aggregate.MAX, DecimalType(13, 2)),
    "min_by(s, at)": (Aggregate.MIN_BY, STRING),
    "MAX_BY(o.x, day)": (Aggregate.MAX_BY, INT),
    "min_by(d, d)": (Aggregate.MIN_BY, DOUBLE),
    "max_by(CASE WHEN b THEN m END, length(s))": (Aggregate.MAX_BY, DecimalType(10, 2)),
}
REFUSED = {
    "": "it is empty",
    "count(": "syntax error",
    "count()": "COUNT() has no argument",
    "sum()": "syntax error",
    "i": "i is not one aggregate",
    "i + 1": "is not one aggregate",
    "1": "1 is not one aggregate",
    "sum(i) + 1": "SUM(i) + 1 is not one aggregate",
    "sum(i) > 1": "is not one aggregate",
    "-sum(i)": "is not one aggregate",
    "coalesce(sum(i), 0)": "is not one aggregate",
    "CASE WHEN count(*) > 1 THEN 1 END": "is not one aggregate",
    "sum(i) FILTER (WHERE b)": "is not one aggregate",
    "sum(i) OVER ()": "is not one aggregate",
    "min(i) IGNORE NULLS": "is not one aggregate",
    "sum(count(*))": "COUNT(*) is not supported",
    "max(min(i))": "MIN(i) is not supported",
    "sum(DISTINCT i)": "DISTINCT i is not supported",
    "min(DISTINCT i)": "DISTINCT i is not supported",
    "sum(i ORDER BY i)": "is not supported",
    "min(i HAVING MAX l)": "is not supported",
    "max(i, l)": "MAX(i, l) is not supported",
    "count(i, l)": "COUNT(i, l) is not supported",
    "count(* EXCLUDE (i))": "unknown function EXCLUDE",
    "count(* EXCLUDE i)": "is not supported",
    "count(o.*)": "is not supported",
    "sum(*)": "* is not supported",
    "count(DISTINCT *)": "* is not supported",
    "count(DISTINCT i, l)": "COUNT(DISTINCT …) has several arguments",
    "count(1)": "it does not use any field",
    "sum(1 + 1)": "it does not use any field",
    "min('x')": "it does not use any field",
    "avg(i)": "unknown function avg",
    "arg_min(s, at)": "unknown function arg_min",
    "first(s)": "FIRST(s) is not one aggregate",
    "first(s ORDER BY at)": "is not one aggregate",
    "min_by(s)": "MIN_BY has one argument",
    "min_by(s, at, 2)": "is not supported",
    "min_by(DISTINCT s, at)": "is not supported",
    "min_by(s, at) OVER ()": "is not one aggregate",
    "min_by(s, 1)": "it does not use any field",
    "min_by('x', at)": "it does not use any field",
    "min_by(min(s), at)": "MIN(s) is not supported",
    "min_by(o, at)": "MIN_BY requires a number, text, a timestamp or a date, but o is object",
    "max_by(s, list)": "MAX_BY requires a number, text, a timestamp or a date, but list is array",
    "max_by(s, f)": "but f is float",
    "count_if(b)": "unknown function count_if",
    "any_value(i)": "unknown function any_value",
    "sum(random())": "unknown function random",
    "sum(i / 2)": "i / 2 is not supported",
    "sum(nothing)": "unknown field nothing",
    "sum(s)": "SUM requires an integer or a decimal, but s is string",
    "sum(b)": "SUM requires an integer or a decimal, but b is boolean",
    "sum(d)": "SUM requires an integer or a decimal, but d is double",
    "sum(f)": "but f is float",
    "sum(widest)": "widest can have 33 digits, but the maximum in a sum is 32",
    "sum(l * l)": "can have 39 digits",
    "sum(l * m * 100)": "can have 34 digits, but the maximum in a sum is 32",
    "min(b)": "MIN requires a number, text, a timestamp or a date, but b is boolean",
    "max(o)": "MAX requires a number, text, a timestamp or a date, but o is object",
    "max(f)": "but f is float",
    "min(i > 1)": "is boolean",
    "count(DISTINCT f)": "COUNT DISTINCT requires a scalar, but f is float",
    "count(DISTINCT list)": "COUNT DISTINCT requires a scalar, but list is array",
    "count(DISTINCT map)": "but map is map",
    "count(*) -- all": "it has a comment",
    "count(*); count(*)": "is not one aggregate",
    "(SELECT count(*))": "it has a SELECT",
    "sum(" + "i + " * 2_000 + "i)": "it has 8006 characters",
    "sum(" + "i + " * 500 + "i)": "nested more than 40 levels deep",
}


@pytest.mark.parametrize(("sql", "expected"), TAKEN.items(), ids=TAKEN)
def test_taken(sql, expected):
    measure = parse_measure("x", sql, SMALL)
    assert (measure.name, measure.aggregate, measure.type) == ("x", *expected)


@pytest.mark.parametrize("sql", REFUSED, ids=lambda sql: sql[:60] or "nothing")
def test_refused(sql):
    with pytest.raises(RuleError) as caught:
        parse_measure("x", sql, SMALL)
    assert REFUSED[sql] in str(caught.value)
    assert caught.value.hint
    assert "docs/contracts" not in caught.value.hint
    assert len(str(caught.value)) < 200


@given(st.text())
def test_any_text_is_a_measure_or_a_refusal(sql):
    try:  # Hypothesis also draws texts from the source code, which has measures
        measure = parse_measure("x", sql, SMALL)
    except RuleError:
        return
    assert measure.name == "x"


def test_what_a_consumer_gets():
    i, d = Column(("i",), INT), Column(("d",), DOUBLE)
    assert parse_measure("n", "count(*)", SMALL) == Measure("n", Aggregate.COUNT, None, LONG)
    assert parse_measure("n", "sum(i)", SMALL) == Measure(
        "n", Aggregate.SUM, Call(Operator.CONVERT, (i,), DecimalType(10, 0)), DecimalType(38, 0)
    )
    assert parse_measure("n", "min(d)", SMALL).argument == Call(Operator.ADD, (d, Literal(0.0, DOUBLE)), DOUBLE)
    assert parse_measure("n", "count(distinct i)", SMALL).argument == i
    first = parse_measure("n", "min_by(i, d)", SMALL)
    assert first == Measure("n", Aggregate.MIN_BY, i, INT, Call(Operator.ADD, (d, Literal(0.0, DOUBLE)), DOUBLE))
    assert first.expressions == (first.argument, first.order)


booleans = st.just("b") | comparisons(st.just("b"))
scalar = st.one_of(typed(texts, booleans), typed(exact, booleans), doubles, st.sampled_from(["moment", "day"]))
measures = st.one_of(
    st.just("count(*)"),
    st.one_of(scalar, booleans, st.sampled_from(["o", "o.deep"])).map("count({})".format),
    st.one_of(scalar, booleans).map("count(DISTINCT {})".format),
    st.one_of(typed(exact, booleans), typed(whole, booleans), st.just("l")).map("sum({})".format),
    st.one_of(scalar, st.just("d")).map("min({})".format),
    st.one_of(scalar, st.just("d")).map("max({})".format),
)
by_another = st.tuples(st.sampled_from(["min_by", "max_by"]), scalar, scalar | st.sampled_from(["i", "free"])).map(
    "{0[0]}({0[1]}, {0[2]})".format
)
DUCKDB = duckdb.connect(config={"threads": 1})


def computed(measure: Measure, rows: list[dict[str, Any]]) -> Any:
    """Return the result by the definition of the aggregates, from the values of the expression tree."""
    if measure.argument is None:
        return len(rows)
    named = dict(zip([field.name for field in FIELDS], value_columns(rows, RECORDS), strict=True))
    found = evaluate(measure.argument, named).to_pylist()
    if measure.order:
        of = min if measure.aggregate is Aggregate.MIN_BY else max
        pairs = list(zip(evaluate(measure.order, named).to_pylist(), found, strict=True))
        best = of((ordered(by) for by, _ in pairs if by is not None), default=None)
        tied = [value for by, value in pairs if by is not None and ordered(by) == best]
        return of((value for value in tied if value is not None), key=ordered, default=None)
    values = [value for value in found if value is not None]
    match measure.aggregate:
        case Aggregate.COUNT:
            return len(values)
        case Aggregate.COUNT_DISTINCT:
            return len({same(value) for value in values})
        case Aggregate.SUM:
            return sum(map(Decimal, values)) if values else None
        case Aggregate.MIN:
            return min(values, key=ordered, default=None)
        case Aggregate.MAX:
            return max(values, key=ordered, default=None)


def same(value: Any) -> Any:
    return "NaN" if value != value else value  # only NaN differs from itself


def ordered(value: Any) -> Any:
    """Return a sort key: text by its bytes, NaN above all numbers."""
    if isinstance(value, str):
        return value.encode()
    return (math.isnan(value), 0 if math.isnan(value) else value) if isinstance(value, float) else value


def in_duckdb(sql: str, kind: Any, rows: list[dict[str, Any]]) -> Any:
    DUCKDB.register("rows", pa.table(value_columns(rows, RECORDS), [field.name for field in FIELDS]))
    name = {STRING: "VARCHAR", PrimitiveType.TIMESTAMP: "TIMESTAMPTZ"}.get(kind, type_name(kind))
    [(value,)] = DUCKDB.execute(f"SELECT CAST({sql} AS {name}) FROM rows").fetchall()
    return value


@given(measures, st.lists(records, min_size=1, max_size=8))
@settings(max_examples=examples(400), deadline=None)
def test_duckdb_computes_the_same(sql, rows):
    try:
        measure = parse_measure("x", sql, FIELDS)
    except RuleError as error:
        assume("it does not use any field" not in str(error) and "digits" not in str(error))
        raise
    assert same(computed(measure, rows)) == same(in_duckdb(sql, measure.type, rows))


@pytest.mark.parametrize(
    ("sql", "values", "expected"),
    [
        ("sum(l)", [2**63 - 1] * 3, Decimal(3 * (2**63 - 1))),
        ("sum(m)", [Decimal("99999999.99")] * 3, Decimal("299999999.97")),
        ("sum(l)", [None, None], None),
        ("count(l)", [None, 1], 1),
        ("count(distinct d)", [0.0, -0.0, None, 1.0], 2),
        ("max(s)", ["a", "é", "😀", "\uffff"], "😀"),
        ("min(day)", [date(2026, 1, 2), None, date(2026, 1, 1)], date(2026, 1, 1)),
    ],
)
def test_results(sql, values, expected):
    name = next(field.name for field in FIELDS if f"({field.name})" in sql or f" {field.name})" in sql)
    rows = [dict.fromkeys(VALUES) | {name: value} for value in values]
    measure = parse_measure("x", sql, FIELDS)
    assert computed(measure, rows) == in_duckdb(sql, measure.type, rows) == expected


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0), (-0.0,)])
@pytest.mark.parametrize("aggregate", ["min", "max"])
def test_a_zero_has_no_sign_in_whatever_order(aggregate, zeros):
    measure = parse_measure("x", f"{aggregate}(d)", FIELDS)
    rows = [dict.fromkeys(VALUES) | {"d": zero} for zero in zeros]
    assert str(computed(measure, rows)) == "0.0"
