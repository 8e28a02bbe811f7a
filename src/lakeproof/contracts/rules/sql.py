"""Parse SQL over the fields of a record into typed expressions, for rules and measures.

sqlglot parses the SQL. Only the constructs listed below, on which engines agree, are accepted; everything else is
refused, above all anything that could reach outside of the record.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from lakeproof.contracts.model import DecimalType, Field, ObjectType, PrimitiveType
from lakeproof.contracts.rules.expression import Call, Column, Expression, Literal, Operator, fields_in
from lakeproof.contracts.rules.types import (
    MAX_DIGITS,
    OUTSIDE,
    RuleError,
    UnknownFieldError,
    arithmetic,
    comparison,
    convert,
    cut,
    digits,
    shown,
    unified,
)

MAX_SIZE = 4_000  # characters of an expression
MAX_DEPTH = 40  # levels of nesting in an expression

_BOOLEAN, _TEXT, _INT, _LONG, _DOUBLE = (
    PrimitiveType.BOOLEAN,
    PrimitiveType.STRING,
    PrimitiveType.INT,
    PrimitiveType.LONG,
    PrimitiveType.DOUBLE,
)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SYNTAX = 'Write an SQL expression like `amount > 0`. Quote a field that is named like a keyword: "order".'
FUNCTIONS = ("abs", "coalesce", "length")
_T = TypeVar("_T")
_COMPARISONS: dict[type[exp.Expr], tuple[Operator, bool, bool]] = {  # operator, operands swapped, inverted
    exp.EQ: (Operator.EQUAL, False, False),
    exp.NEQ: (Operator.EQUAL, False, True),
    exp.LT: (Operator.LESS, False, False),
    exp.GT: (Operator.LESS, True, False),
    exp.LTE: (Operator.LESS, True, True),
    exp.GTE: (Operator.LESS, False, True),
}
_ARITHMETIC: dict[type[exp.Expr], Operator] = {
    exp.Add: Operator.ADD,
    exp.Sub: Operator.SUBTRACT,
    exp.Mul: Operator.MULTIPLY,
}
# Engines differ in the precedence of these operators.
_LOOSE: tuple[Any, ...] = (exp.Connector, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, *_COMPARISONS)
_HINTS: dict[type[exp.Expr], str] = {
    exp.Div: "Engines differ on integer division and on division by 0. Multiply the other side instead.",
    exp.Mod: "Engines differ on a divisor of 0.",
    exp.Null: "A comparison with NULL is never true and never false. Use IS NULL or IS NOT NULL.",
    exp.Cast: "A value has the type of its field. Write a time as plain text: '2026-11-21T00:00:00Z'.",
    exp.Escape: "Use a pattern with %, _ and literal characters only.",
}


def parse_rule(sql: str, fields: tuple[Field, ...]) -> Expression:
    """Parse a boolean expression over `fields`."""
    condition = parse_sql(sql, lambda tree: read_expression(tree, fields))
    if condition.kind is not _BOOLEAN:
        raise RuleError("it is not a condition", "Compare it with a value.")
    if not fields_in(condition):
        raise RuleError("it does not use any field of the record", "Use a field of the contract.")
    return condition


def parse_sql(sql: str, read: Callable[[exp.Expr], _T], functions: Sequence[str] = FUNCTIONS) -> _T:
    """Parse SQL and convert its tree with `read`, which must refuse unknown nodes."""
    if len(sql) > MAX_SIZE:
        raise RuleError(f"it has {len(sql)} characters", f"Use at most {MAX_SIZE}, or split it.")
    try:
        _check_tokens(sql, functions)
        return read(sqlglot.parse_one(sql, into=exp.Condition))
    except ParseError as error:
        found = error.errors[0] if error.errors else {}
        near = f" at {cut(str(found['highlight']))!r}, character {found['col']}" if found.get("highlight") else ""
        raise RuleError(f"syntax error{near}", _SYNTAX) from None
    except SqlglotError as error:
        raise RuleError(f"syntax error: {error}", _SYNTAX) from None
    except RecursionError:
        raise _too_deep() from None


def read_expression(node: exp.Expr, fields: tuple[Field, ...]) -> Expression:
    """Convert a parsed expression over `fields`."""
    return _Reader(fields).read(node, 0)


def _check_tokens(sql: str, functions: Sequence[str]) -> None:
    tokens = sqlglot.tokenize(sql)
    if not tokens:
        raise RuleError("it is empty", _SYNTAX)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        kind = token.token_type
        if token.comments or kind is sqlglot.TokenType.HINT:
            raise RuleError("it has a comment", "Remove it. Engines may read comments as hints.")
        if kind is sqlglot.TokenType.SELECT:
            raise RuleError(
                "it has a SELECT, but it can only use the fields of one record", "Write only the expression."
            )
        is_called = following is not None and following.token_type is sqlglot.TokenType.L_PAREN
        if is_called and kind is sqlglot.TokenType.VAR and token.text.lower() not in functions:
            raise RuleError(
                f"unknown function {cut(token.text)}", f"Supported functions: {', '.join(functions).upper()}."
            )


class _Reader:
    """Each method converts a parsed expression to a typed one."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self._fields = fields

    def read(self, node: exp.Expr, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise _too_deep()

        def part(inner: Any) -> Expression:
            return self.read(inner, depth + 1)

        kind = type(node)
        if kind is exp.Paren:
            only(node, "this")
            return part(node.this)
        if kind in (exp.And, exp.Or):
            only(node, "this", "expression")
            operator = Operator.AND if kind is exp.And else Operator.OR
            operands = [_boolean(part(inner), inner) for inner in node.flatten(unnest=False)]
            return Call(operator, tuple(operands), _BOOLEAN)
        if kind is exp.Not:
            only(node, "this")
            return _not(_boolean(part(node.this), node.this))
        if kind in _COMPARISONS:
            return self._compare(node, part)
        if kind in _ARITHMETIC:
            only(node, "this", "expression")
            return arithmetic(_ARITHMETIC[kind], part(node.this), part(node.expression), node)
        reader = self._READERS.get(kind)
        if reader is None:
            raise RuleError(f"{shown(node)} is not supported", _HINTS.get(kind, OUTSIDE))
        return reader(self, node, part)

    def _compare(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "this", "expression")
        _refuse_loose(node, node.this, node.expression)
        operator, swapped, inverted = _COMPARISONS[type(node)]
        left, right = part(node.this), part(node.expression)
        compared = comparison(operator, *((right, left) if swapped else (left, right)), node)
        return _not(compared) if inverted else compared

    def _between(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "this", "low", "high")
        _refuse_loose(node, node.this, node.args["low"], node.args["high"])
        value, low, high = part(node.this), part(node.args["low"]), part(node.args["high"])
        below = comparison(Operator.LESS, value, low, node)
        above = comparison(Operator.LESS, high, value, node)
        return Call(Operator.AND, (_not(below), _not(above)), _BOOLEAN)

    def _in(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "this", "expressions")
        _refuse_loose(node, node.this)
        if not node.expressions:
            raise RuleError(f"{shown(node)} has an empty list", "List at least one value.")
        _refuse_loose(node, *node.expressions)
        value = part(node.this)
        found = tuple(comparison(Operator.EQUAL, value, part(item), node) for item in node.expressions)
        return Call(Operator.OR, found, _BOOLEAN)

    def _like(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "this", "expression", "negate")
        _refuse_loose(node, node.this)
        value, pattern = part(node.this), node.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise RuleError(f"the pattern of {shown(node)} is not a string literal", "Use a literal, like 'A%'.")
        if value.kind is not _TEXT:
            raise RuleError(f"LIKE requires text, but {shown(node.this)} is not text", "Use another comparison.")
        found = Call(Operator.LIKE, (value, part(pattern)), _BOOLEAN)
        return _not(found) if node.args.get("negate") else found

    def _is(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "this", "expression")
        if isinstance(node.this, _LOOSE):
            raise RuleError(f"{shown(node)} is ambiguous", "Put the expression before IS in parentheses.")
        value, what = part(node.this), node.expression
        unknown = Call(Operator.IS_NULL, (value,), _BOOLEAN)
        if isinstance(what, exp.Null):
            return unknown
        if not isinstance(what, exp.Boolean):
            raise RuleError(f"{shown(node)} is not supported", "Use IS NULL, IS TRUE or IS FALSE.")
        right = value if what.this else _not(value)
        return Call(Operator.AND, (_not(unknown), _boolean(right, node.this)), _BOOLEAN)

    def _case(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "ifs", "default")
        branches = [(branch.this, branch.args["true"]) for branch in node.args["ifs"]]
        results = [part(result) for _, result in branches]
        if default := node.args.get("default"):
            results.append(part(default))
        results = unified(results, node)
        chosen = results.pop() if default else Literal(None, results[0].kind)
        for (condition, _), result in zip(reversed(branches), reversed(results), strict=True):
            holds = _boolean(part(condition), condition)
            chosen = Call(Operator.IF, (holds, result, chosen), result.kind)
        return chosen

    def _coalesce(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "this", "expressions")
        found = unified([part(inner) for inner in (node.this, *node.expressions)], node)
        return Call(Operator.COALESCE, tuple(found), found[0].kind)

    def _length(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "this")
        value = part(node.this)
        if value.kind is not _TEXT:
            raise RuleError(f"LENGTH requires text, but {shown(node.this)} is not text", "Use another comparison.")
        return Call(Operator.LENGTH, (value,), _INT)

    def _signed(self, node: exp.Expr, part: Callable[[Any], Expression]) -> Expression:
        only(node, "this")
        value = part(node.this)
        if isinstance(node, exp.Neg) and isinstance(value, Literal) and value.kind not in (_TEXT, _BOOLEAN):
            return replace(value, value=-value.value)  # type: ignore[operator]  # a number, by its type
        if value.kind is not _DOUBLE:  # the least integer has no positive counterpart
            value = convert(value, DecimalType(*digits(value, node)), node)
        operator = Operator.NEGATE if isinstance(node, exp.Neg) else Operator.ABS
        return Call(operator, (value,), value.kind)

    def _literal(self, node: exp.Expr, _part: Callable[[Any], Expression]) -> Expression:
        text = str(node.this)
        if node.is_string:
            if "\\" in text:
                raise RuleError(f"{shown(node)} has a backslash, which engines interpret differently", "Remove it.")
            return Literal(text, _TEXT)
        match = _NUMBER.fullmatch(text)
        if not match:
            raise RuleError(f"{cut(text)} is not a number", "Use decimal digits.")
        if match[2]:
            return Literal(float(text), _DOUBLE)
        number = Decimal(text)
        if "." not in text and number < 1 << 63:
            return Literal(int(number), _LONG)
        scale = -int(number.as_tuple().exponent)
        precision = max(len(number.as_tuple().digits), scale)
        if precision > MAX_DIGITS:
            raise RuleError(f"{cut(text)} has more than {MAX_DIGITS} digits", "Use fewer digits.")
        return Literal(number, DecimalType(precision, scale))

    def _truth(self, node: exp.Expr, _part: Callable[[Any], Expression]) -> Expression:
        return Literal(bool(node.this), _BOOLEAN)

    def _column(self, node: exp.Expr, _part: Callable[[Any], Expression]) -> Expression:
        path: list[str] = []
        inner: Any = node
        while isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Identifier):
            path.insert(0, inner.expression.name)
            inner = inner.this
        if not isinstance(inner, exp.Column) or not all(isinstance(step, exp.Identifier) for step in inner.parts):
            raise RuleError(f"{shown(node)} is not supported")
        only(inner, "this", "table", "db", "catalog")
        path = [step.name for step in inner.parts] + path
        fields, kind = self._fields, None
        for index, name in enumerate(path):
            found = next((field for field in fields if field.name == name), None)
            if found is None:
                known = ", ".join(field.name for field in fields) or "none, because it is not an object"
                raise UnknownFieldError(".".join(path[: index + 1]), f"Available fields: {known}.")
            kind = found.type
            fields = kind.fields if isinstance(kind, ObjectType) else ()
        return Column(tuple(path), _TEXT if kind is PrimitiveType.SCALAR else kind)  # type: ignore[arg-type]

    _READERS: dict[type[exp.Expr], Callable[..., Expression]] = {  # noqa: RUF012 - a table of the methods above
        exp.Between: _between,
        exp.In: _in,
        exp.Like: _like,
        exp.Is: _is,
        exp.Case: _case,
        exp.Coalesce: _coalesce,
        exp.Length: _length,
        exp.Neg: _signed,
        exp.Abs: _signed,
        exp.Literal: _literal,
        exp.Boolean: _truth,
        exp.Column: _column,
        exp.Dot: _column,
    }


def _boolean(item: Expression, node: exp.Expr) -> Expression:
    if item.kind is not _BOOLEAN:
        raise RuleError(f"{shown(node)} is not a boolean", "Compare it with a value.")
    return item


def _not(item: Expression) -> Expression:
    return Call(Operator.NOT, (item,), _BOOLEAN)


def only(node: exp.Expr, *known: str) -> None:
    """Refuse unknown parts of a parsed expression."""
    for name, value in node.args.items():
        if value and name not in known:
            raise RuleError(f"{shown(node)} is not supported")


def _refuse_loose(node: exp.Expr, *operands: exp.Expr) -> None:
    if any(isinstance(operand.unnest(), _LOOSE) for operand in operands):
        raise RuleError(
            f"{shown(node)} compares a condition, which engines interpret differently",
            "Join conditions with AND, OR and NOT.",
        )


def _too_deep() -> RuleError:
    return RuleError(f"it is nested more than {MAX_DEPTH} levels deep", "Split it.")
