"""Rules: results of the judge, and of DuckDB for the same SQL."""

import json
import pickle
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.judging import units_of
from tests.selection import examples

from lakeproof.contracts import Contract, DecimalType, Field, ObjectType, PrimitiveType, Rule
from lakeproof.contracts.rules.sql import parse_rule
from lakeproof.contracts.rules.types import RuleError
from lakeproof.judge.batch import Judge
from lakeproof.judge.judged import value_columns
from lakeproof.judge.rule_checks import evaluate

INNER = ObjectType((Field("n", PrimitiveType.INT), Field("deep", ObjectType((Field("t", PrimitiveType.STRING),)))))
FIELDS = (
    Field("s", PrimitiveType.STRING),
    Field("free", PrimitiveType.SCALAR),
    Field("b", PrimitiveType.BOOLEAN),
    Field("i", PrimitiveType.INT),
    Field("l", PrimitiveType.LONG),
    Field("d", PrimitiveType.DOUBLE),
    Field("m", DecimalType(10, 2)),
    Field("w", DecimalType(20, 7)),
    Field("moment", PrimitiveType.TIMESTAMP),
    Field("day", PrimitiveType.DATE),
    Field("o", INNER),
)
RECORDS = Contract("records", "1", "", FIELDS, ("s",), "moment")

letters = st.text(st.sampled_from("aAbéß%_.\n '\"(😀"), max_size=4)
small = st.integers(-100, 100)
cents = st.decimals(Decimal(-1000), Decimal(1000), places=2)
instants = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
days = st.dates(date(1900, 1, 1), date(2100, 1, 1))
inner = st.fixed_dictionaries(
    {"n": st.none() | small, "deep": st.none() | st.fixed_dictionaries({"t": st.none() | letters})}
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": letters | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "free": letters,
    "b": st.booleans(),
    "i": small,
    "l": small | st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(2**53 - 2, 2**53 + 2),
    "d": st.floats(allow_nan=False, allow_infinity=False) | small.map(float),
    "m": cents,
    "w": cents | st.decimals(Decimal(-1000), Decimal(1000), places=7),
    "moment": instants,
    "day": days,
    "o": inner,
}
records = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def one_of(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


def binary(left: st.SearchStrategy[str], operators: str, right: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(left, st.sampled_from(operators.split()), right).map(lambda parts: f"({' '.join(parts)})")


def brief(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return the strategy under a short name: for deeply nested strategies, Hypothesis's output grows sixty-fold per
    level, to gigabytes for a failed test."""

    @st.composite
    def sql(draw: st.DrawFn) -> str:
        return draw(strategy)

    return sql()


def typed(leaves: st.SearchStrategy[str], conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Generate expressions of a type from its leaves, with the constructs that every type has."""
    return st.one_of(
        leaves,
        st.lists(leaves, min_size=1, max_size=3).map(lambda found: f"COALESCE({', '.join(found)})"),
        st.tuples(conditions, leaves, leaves).map("CASE WHEN {0[0]} THEN {0[1]} ELSE {0[2]} END".format),
        st.tuples(conditions, leaves, conditions, leaves).map(
            "CASE WHEN {0[0]} THEN {0[1]} WHEN {0[2]} THEN {0[3]} END".format
        ),
    )


integers = one_of("i", "o.n", "LENGTH(s)", "LENGTH(o.deep.t)") | small.map(str)
narrow = one_of("m", "i") | cents.map(str)
fixed = one_of("w") | narrow  # the product of two w would have 41 digits, more than a rule may
whole = st.one_of(integers, binary(integers, "+ - *", integers), integers.map("-({})".format))
products = binary(fixed, "*", narrow) | binary(narrow, "*", fixed)
exact = st.one_of(fixed, binary(fixed, "+ -", fixed), products, fixed.map("ABS({})".format), whole)
real = one_of("d", "l", "i") | small.map(str) | cents.map(str) | one_of("1e3", "1.5e-3", "1e308")
doubles = st.one_of(
    binary(st.just("d"), "+ - *", real), binary(binary(st.just("d"), "+ - *", real), "- *", st.just("d"))
)
texts = one_of("s", "free", "o.deep.t") | letters.map(quoted)


def comparisons(conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    found = []
    ordered = "= <> != < <= > >="
    for values, others in (
        (typed(exact, conditions), typed(exact, conditions)),
        (typed(integers, conditions), one_of("l") | st.integers(-(2**63) + 1, 2**63 - 1).map(str)),
        (st.just("d") | doubles, real | doubles),
        (typed(texts, conditions), typed(texts, conditions)),
        (st.just("moment"), st.just("moment") | instants.map(lambda at: quoted(at.isoformat().replace("+00:00", "Z")))),
        (st.just("day"), st.just("day") | days.map(lambda day: quoted(day.isoformat()))),
    ):
        found += [
            binary(values, ordered, others),
            st.tuples(values, st.sampled_from(["", "NOT "]), others, others).map(
                "({0[0]} {0[1]}BETWEEN {0[2]} AND {0[3]})".format
            ),
            st.tuples(values, st.sampled_from(["", "NOT "]), st.lists(others, min_size=1, max_size=3)).map(
                lambda parts: f"({parts[0]} {parts[1]}IN ({', '.join(parts[2])}))"
            ),
        ]
    found.append(st.tuples(texts, st.sampled_from(["", "NOT "]), letters).map(
        lambda parts: f"({parts[0]} {parts[1]}LIKE {quoted(parts[2])})"
    ))  # fmt: skip
    found.append(st.tuples(one_of(*VALUES, "o.n", "o.deep", "o.deep.t"), one_of("", "NOT ")).map(
        lambda parts: f"({parts[0]} IS {parts[1]}NULL)"
    ))  # fmt: skip
    return brief(st.one_of(found))


def joined(conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return brief(
        st.one_of(
            binary(conditions, "AND OR", conditions),
            st.tuples(conditions, conditions, conditions).map("{0[0]} AND {0[1]} OR NOT {0[2]}".format),
            conditions.map("(NOT {})".format),
            st.tuples(conditions, one_of("TRUE", "FALSE", "NULL")).map("(({0[0]}) IS {0[1]})".format),
            comparisons(conditions),
        )
    )


plain = comparisons(st.just("b"))
rules = st.recursive(plain | st.just("b"), joined, max_leaves=6).map("(b IS NULL OR TRUE) AND ({})".format)
DUCKDB = duckdb.connect(config={"threads": 1})


def in_duckdb(sql: str, columns: list[Any]) -> list[bool | None]:
    DUCKDB.register("rows", pa.table(columns, [field.name for field in FIELDS]))
    return [holds for (holds,) in DUCKDB.execute(f"SELECT {sql} FROM rows").fetchall()]


def judged(sql: str, columns: list[Any]) -> list[bool | None]:
    named = dict(zip([field.name for field in FIELDS], columns, strict=True))
    return evaluate(parse_rule(sql, FIELDS), named).to_pylist()


@given(rules, st.lists(records, min_size=1, max_size=8))
@settings(max_examples=examples(300), deadline=None)
def test_duckdb_reads_the_same_sql_alike(sql, rows):
    columns = value_columns(rows, RECORDS)
    assert judged(sql, columns) == in_duckdb(sql, columns)


def test_what_hypothesis_prints_of_rules_stays_short():
    assert len(repr(joined(joined(plain)))) < 1_000


@pytest.mark.parametrize("left", ["m", "w", "i", "-1000.00"])
@pytest.mark.parametrize("right", ["m", "w", "i", "-1000.00"])
def test_a_product_has_as_many_digits_as_the_test_above_lets_it_have(left, right):
    rule = f"COALESCE({left} * {right}, w - m, ABS(w), 1000.00) = m"
    if (left, right) == ("w", "w"):
        with pytest.raises(RuleError, match="41 digits"):
            parse_rule(rule, FIELDS)
    else:
        parse_rule(rule, FIELDS)


ORDERS = Contract(
    "orders",
    "1",
    "",
    (
        Field("id", PrimitiveType.STRING, required=True),
        Field("total", DecimalType(10, 2)),
        Field("paid", DecimalType(10, 2)),
    ),
    ("id",),
    "at",
)
SQL = {"positive": "total > 0", "settled": "paid <= total OR total IS NULL", "named": "id NOT LIKE 'test%'"}
JUDGE = Judge(
    replace(
        ORDERS, rules=tuple(Rule(name, "$", f"<{name}>", parse_rule(sql, ORDERS.fields)) for name, sql in SQL.items())
    )
)


def outcomes(judge: Judge, *units: str) -> dict[int, list[str]]:
    """Return the reasons of each unit by position, empty for a kept record. Check that raw bytes are kept."""
    found: dict[int, list[str]] = {}
    for row in units_of(judge.judge(f"[{','.join(units)}]".encode())):
        found[row["_position"]] = [
            f"{fault['code']} {fault['path']} {fault['detail']}" for fault in row["reasons"] or []
        ]
        unit = units[row["_position"]]
        if row["reasons"] is None:
            assert row["id"] == json.loads(unit)["id"]
        else:
            assert row["raw"] == unit.encode()
    return found


def test_each_broken_rule_is_a_reason():
    verdicts = {
        '{"id":"a","total":2,"paid":1}': [],
        '{"id":"test","total":-1,"paid":1}': ["positive", "settled", "named"],
        '{"id":"b","paid":1}': [],
        '{"id":"c","total":1,"paid":null}': [],
        '{"id":"\\u0064","total":0}': ["positive"],
        '{"id":"e","total":1.00,"paid":1.01}': ["settled"],
    }
    assert outcomes(pickle.loads(pickle.dumps(JUDGE)), *verdicts) == {
        position: [f"rule_violated $ {name}: <{name}>" for name in names]
        for position, names in enumerate(verdicts.values())
    }


def test_rules_are_asked_of_records_that_fit_otherwise_however_they_were_judged():
    unfit = ["1", '{"id":"test","total":"x"}', '{"total":-1}']
    # The fast judge leaves a key with an escape to the exact judge.
    units = [*unfit, '{"id":"a","total":-1}', '{"\\u0069d":"b","total":-1}', '{"id":"a:\\":","total":1}', *unfit]
    codes = {
        position: [reason.split()[0] for reason in reasons] for position, reasons in outcomes(JUDGE, *units).items()
    }
    bad = [["not_an_object"], ["wrong_type"], ["missing_field"]]
    assert codes == dict(enumerate([*bad, ["rule_violated"], ["rule_violated"], [], *bad]))


@given(st.lists(st.tuples(st.none() | small, st.none() | small), min_size=1))
@settings(max_examples=examples(50), deadline=None)
def test_a_unit_is_in_one_place_only(amounts):
    units = [json.dumps({"id": "a", "total": total, "paid": paid}) for total, paid in amounts]
    found = outcomes(JUDGE, *units)
    for position, (total, paid) in enumerate(amounts):
        positive, settled = total is None or total > 0, None in (total, paid) or paid <= total
        assert len(found[position]) == [positive, settled].count(False)
    assert len(found) == len(units)


def test_numbers_are_exact_to_the_last_digit():
    rows = [{"l": 2**63 - 1, "i": -(2**31), "m": Decimal("99999999.99"), "w": Decimal("9999999999999.9999999")}]
    columns = value_columns([dict.fromkeys(VALUES) | row for row in rows], RECORDS)
    for sql, holds in {
        "l + l = 18446744073709551614": True,
        "l * 10 - l = 83010348331692982263": True,
        "-i = 2147483648 AND ABS(i) = 2147483648": True,
        "m * m = 9999999998000000.0001": True,
        "w + 0.0000001 = 10000000000000": True,
        "l = 9223372036854775806.9999999999": False,
        "l > 9223372036854775806": True,
    }.items():
        assert judged(sql, columns) == [holds], sql
