"""Typed expression trees, which any columnar engine can evaluate."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from lakeproof.contracts.model import Type


class Operator(StrEnum):
    """Operators. Null means unknown, as in SQL."""

    AND = "and"
    OR = "or"
    NOT = "not"
    EQUAL = "equal"
    LESS = "less"
    """Text is ordered by UTF-8 bytes; NaN equals itself and is the greatest double, as in Spark and DuckDB."""
    LIKE = "like"  # text, and a literal pattern of ``%``, ``_`` and characters without a backslash
    IS_NULL = "is_null"
    CONVERT = "convert"  # widens numbers, so that it cannot fail
    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"  # doubles follow IEEE 754; decimals are exact: the result has room for all digits
    NEGATE = "negate"
    ABS = "abs"
    LENGTH = "length"  # in Unicode code points
    COALESCE = "coalesce"
    IF = "if"  # the second operand if the first is true, the third if it is false or null


@dataclass(frozen=True)
class Literal:
    """A constant; None is null."""

    value: bool | int | float | Decimal | str | date | None
    kind: Type


@dataclass(frozen=True)
class Column:
    """A field of the record, or of a nested object; null if an object is null."""

    path: tuple[str, ...]
    kind: Type


@dataclass(frozen=True)
class Call:
    """An operator applied to operands."""

    operator: Operator
    operands: tuple["Expression", ...]
    kind: Type


Expression: TypeAlias = Literal | Column | Call


def fields_in(expression: Expression) -> set[str]:
    """Paths of the fields in an expression: ``event.page``."""
    match expression:
        case Column(path):
            return {".".join(path)}
        case Call(_, operands):
            return set().union(*map(fields_in, operands))
        case _:
            return set()


@dataclass(frozen=True)
class Rule:
    """A condition for whole records: broken if it is false, not if it is null."""

    name: str  # prefix of the reason
    path: str  # JSONPath of what the rule is about: ``$`` for the record
    text: str  # shown in a reason: the description, or the SQL
    condition: Expression
