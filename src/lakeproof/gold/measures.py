"""Parse the SQL of a measure: one aggregate of an expression that rules of contracts support.

Sums on which engines may differ are refused: of doubles, which depend on the order of records, and of too many digits.
"""

from typing import Any

from sqlglot import exp

from lakeproof.contracts.model import DecimalType, Field, PrimitiveType, Type, type_name
from lakeproof.contracts.rules.expression import Call, Expression, Literal, Operator, fields_in
from lakeproof.contracts.rules.sql import FUNCTIONS, only, parse_sql, read_expression
from lakeproof.contracts.rules.types import MAX_DIGITS, OUTSIDE, RuleError, convert, digits, shown
from lakeproof.gold.model import Aggregate, Measure

MAX_DIGITS_IN_SUM = MAX_DIGITS - 6  # maximum digits of a summand: a sum of a million summands still fits

_AGGREGATES: dict[type[exp.Expr], Aggregate] = {
    exp.Count: Aggregate.COUNT,
    exp.Sum: Aggregate.SUM,
    exp.Min: Aggregate.MIN,
    exp.Max: Aggregate.MAX,
    exp.ArgMin: Aggregate.MIN_BY,
    exp.ArgMax: Aggregate.MAX_BY,
}
_CALLS = tuple(aggregate.value for aggregate in _AGGREGATES.values())
_LONG, _DOUBLE = PrimitiveType.LONG, PrimitiveType.DOUBLE
_ORDERED = {
    PrimitiveType.STRING,
    PrimitiveType.INT,
    PrimitiveType.LONG,
    PrimitiveType.DOUBLE,
    PrimitiveType.TIMESTAMP,
    PrimitiveType.DATE,
}
_PAGE = "See docs/gold.md#measures for what is supported."
_FORM = (
    f"Write one of {', '.join(_CALLS).upper()}, like `sum(amount)`. To count only some records, write "
    "`count(CASE WHEN amount > 0 THEN 1 END)`."
)


def parse_measure(name: str, sql: str, fields: tuple[Field, ...]) -> Measure:
    """Read a measure over records with `fields`."""
    try:
        return parse_sql(sql, lambda tree: _measure(name, tree, fields), (*_CALLS, *FUNCTIONS))
    except RuleError as error:
        error.hint = _PAGE if error.hint == OUTSIDE else error.hint
        raise


def _measure(name: str, tree: exp.Expr, fields: tuple[Field, ...]) -> Measure:
    aggregate = _AGGREGATES.get(type(tree))
    if aggregate is None:
        raise RuleError(f"{shown(tree)} is not one aggregate", _FORM)
    if aggregate in (Aggregate.MIN_BY, Aggregate.MAX_BY):
        return _by(name, aggregate, tree, fields)
    only(tree, "this", "big_int")  # a flag that sqlglot sets on each COUNT
    inner: Any = tree.this
    if inner is None:
        raise RuleError(f"{shown(tree)} has no argument", "Write COUNT(*) to count records.")
    if aggregate is Aggregate.COUNT:
        if isinstance(inner, exp.Star):
            only(inner)
            return Measure(name, aggregate, None, _LONG)
        if isinstance(inner, exp.Distinct):
            return Measure(name, Aggregate.COUNT_DISTINCT, _distinct(inner, fields), _LONG)
        return Measure(name, aggregate, _argument(inner, fields), _LONG)
    value = _argument(inner, fields)
    if aggregate is Aggregate.SUM:
        value, kind = _summed(value, inner)
        return Measure(name, aggregate, value, kind)
    value = _ordered(aggregate, value, inner)
    return Measure(name, aggregate, value, value.kind)


def _by(name: str, aggregate: Aggregate, tree: exp.Expr, fields: tuple[Field, ...]) -> Measure:
    """Read MIN_BY or MAX_BY."""
    only(tree, "this", "expression")
    if tree.expression is None:
        message = f"{aggregate.upper()} has one argument"
        raise RuleError(message, f"Write what the records are ordered by: {aggregate.upper()}(page, ordered_at).")
    value, order = (_ordered(aggregate, _argument(each, fields), each) for each in (tree.this, tree.expression))
    return Measure(name, aggregate, value, value.kind, order)


def _ordered(aggregate: Aggregate, value: Expression, node: exp.Expr) -> Expression:
    """Return a value whose order is the same in all engines."""
    if value.kind not in _ORDERED and not isinstance(value.kind, DecimalType):
        raise _unfit(aggregate, node, value.kind, "a number, text, a timestamp or a date")
    if value.kind is _DOUBLE:
        return Call(Operator.ADD, (value, Literal(0.0, _DOUBLE)), _DOUBLE)  # converts -0.0 to 0.0
    return value


def _argument(node: exp.Expr, fields: tuple[Field, ...]) -> Expression:
    value = read_expression(node, fields)
    if not fields_in(value):
        raise RuleError("it does not use any field of the record", "Write COUNT(*) to count records.")
    return value


def _distinct(node: exp.Distinct, fields: tuple[Field, ...]) -> Expression:
    only(node, "expressions")
    if len(node.expressions) != 1:
        raise RuleError("COUNT(DISTINCT …) has several arguments", "Write one measure for each.")
    value = _argument(node.expressions[0], fields)
    if value.kind not in {*_ORDERED, PrimitiveType.BOOLEAN} and not isinstance(value.kind, DecimalType):
        raise _unfit("count distinct", node.expressions[0], value.kind, "a scalar")
    return value


def _summed(value: Expression, node: exp.Expr) -> tuple[Expression, DecimalType]:
    """Return the values as decimals, and the type of their sum."""
    if value.kind not in (PrimitiveType.INT, _LONG) and not isinstance(value.kind, DecimalType):
        raise _unfit(Aggregate.SUM, node, value.kind, "an integer or a decimal")
    precision, scale = digits(value, node)
    if precision > MAX_DIGITS_IN_SUM:
        raise RuleError(
            f"{shown(node)} can have {precision} digits, but the maximum in a sum is {MAX_DIGITS_IN_SUM}",
            "Use field types with fewer digits: int, or a smaller decimal.",
        )
    return convert(value, DecimalType(precision, scale), node), DecimalType(MAX_DIGITS, scale)


def _unfit(aggregate: str, node: exp.Expr, kind: Type, expected: str) -> RuleError:
    hint = "Use another field, or COUNT."
    if kind in (PrimitiveType.FLOAT, _DOUBLE):
        hint = "Engines have different results. Change the type of the field" + (
            " to decimal." if aggregate == Aggregate.SUM else " to double."
        )
    return RuleError(f"{aggregate.upper()} requires {expected}, but {shown(node)} is {type_name(kind)}", hint)
