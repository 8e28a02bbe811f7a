"""Canonical form of expressions, independent of the types of the fields."""

from datetime import date
from decimal import Decimal
from fractions import Fraction

from lakeproof.contracts.rules.expression import Call, Column, Expression, Literal, Operator

Meaning = list["str | bool | Meaning | None"]


def meaning(expression: Expression) -> Meaning:
    """Return the canonical form of an expression as JSON. Equivalent expressions may still differ."""
    match expression:
        case Literal(value):
            return _of_literal(value)
        case Column(path):
            return ["field", *path]
        case Call(Operator.CONVERT, (operand,)):
            return meaning(operand)
        case Call(operator, operands):
            return [operator, *map(meaning, operands)]


def _of_literal(value: bool | int | float | Decimal | str | date | None) -> Meaning:
    match value:
        case None | bool():
            return ["value", value]
        case int() | Decimal():
            return ["number", str(Fraction(value))]
        case float():
            return ["double", value.hex()]
        case str():
            return ["text", value]
        case date():
            return ["time", value.isoformat()]
