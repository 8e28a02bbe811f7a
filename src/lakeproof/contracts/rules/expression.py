"""What a rule asks of a record, as a tree whose every part has a type; any engine of columns can evaluate it."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from lakeproof.contracts.model import Type


class Operator(StrEnum):
    """What is done with operands. Null means unknown, as in SQL."""

    AND = "and"
    OR = "or"
    NOT = "not"
    EQUAL = "equal"
    LESS = "less"
    """Text is ordered by its UTF-8 bytes. Doubles as in Spark and DuckDB: NaN equals itself, and nothing is above."""
    LIKE = "like"
    """Text, and a literal pattern of ``%``, ``_`` and characters without a backslash."""
    IS_NULL = "is_null"
    CONVERT = "convert"
    """Of numbers only, and such that nothing can fail: it widens."""
    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    """Of doubles by IEEE 754, of decimals exactly: the type of the result has room for all digits."""
    NEGATE = "negate"
    ABS = "abs"
    LENGTH = "length"
    """In Unicode code points."""
    COALESCE = "coalesce"
    IF = "if"
    """The second operand where the first is true, the third where it is false or null."""


@dataclass(frozen=True)
class Literal:
    """A value that is the same for every record; null if it is None."""

    value: bool | int | float | Decimal | str | date | None
    kind: Type


@dataclass(frozen=True)
class Column:
    """A field of the record, or one within its objects: null where one of them is."""

    path: tuple[str, ...]
    kind: Type


@dataclass(frozen=True)
class Call:
    """What an operator makes of its operands."""

    operator: Operator
    operands: tuple["Expression", ...]
    kind: Type


Expression: TypeAlias = Literal | Column | Call


def fields_in(expression: Expression) -> set[str]:
    """Paths of the fields that an expression uses: ``event.page``."""
    match expression:
        case Column(path):
            return {".".join(path)}
        case Call(_, operands):
            return set().union(*map(fields_in, operands))
        case _:
            return set()


@dataclass(frozen=True)
class Rule:
    """What each record must meet as a whole: broken where the condition is false, not where it is null."""

    name: str  # prefix of the reason
    path: str  # JSONPath of what the rule is about: ``$`` for the record
    text: str  # shown in a reason: the description, or the SQL
    condition: Expression
