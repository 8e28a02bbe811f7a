"""Unify the types in an expression without loss, failures or differences between engines."""

from decimal import Decimal

from sqlglot import exp

from lakeproof.contracts.constraints import read_moment
from lakeproof.contracts.model import DecimalType, ListType, MapType, ObjectType, PrimitiveType, Type
from lakeproof.contracts.rules.expression import Call, Column, Expression, Literal, Operator

OUTSIDE = "See docs/contracts/rules.md for what is supported."
MAX_DIGITS = 38

_EXACT_IN_DOUBLE = 15
_MAX_SHOWN = 60
_BOOLEAN, _TEXT, _INT, _LONG, _DOUBLE = (
    PrimitiveType.BOOLEAN,
    PrimitiveType.STRING,
    PrimitiveType.INT,
    PrimitiveType.LONG,
    PrimitiveType.DOUBLE,
)
_MOMENTS = {PrimitiveType.TIMESTAMP: "2026-11-21T00:00:00Z", PrimitiveType.DATE: "2026-11-21"}


class RuleError(Exception):
    """Error for SQL that cannot be used, with the reason and a hint."""

    def __init__(self, message: str, hint: str = OUTSIDE) -> None:
        super().__init__(message)
        self.hint = hint


class UnknownFieldError(RuleError):
    """The expression uses an unknown field."""

    def __init__(self, path: str, hint: str) -> None:
        super().__init__(f"unknown field {cut(path)}", hint)
        self.path = path


def comparison(operator: Operator, left: Expression, right: Expression, node: exp.Expr) -> Expression:
    """A comparison of two expressions of compatible types."""
    left, right = unified([left, right], node)
    if operator is Operator.LESS and left.kind is _BOOLEAN:
        raise RuleError(f"{shown(node)}: booleans cannot be ordered", "Compare them with =.")
    return Call(operator, (left, right), _BOOLEAN)


def arithmetic(operator: Operator, left: Expression, right: Expression, node: exp.Expr) -> Expression:
    """An arithmetic operation on two numbers."""
    left, right = (side if side.kind is _DOUBLE else _number(side, node) for side in (left, right))
    if _DOUBLE in (left.kind, right.kind):
        left, right = unified([left, right], node)
        return Call(operator, (left, right), _DOUBLE)
    (precision, scale), (other_precision, other_scale) = digits(left, node), digits(right, node)
    left, right = (convert(side, DecimalType(*digits(side, node)), node) for side in (left, right))
    if operator is Operator.MULTIPLY:
        kind = DecimalType(precision + other_precision + 1, scale + other_scale)
    else:
        whole = max(precision - scale, other_precision - other_scale)
        kind = DecimalType(whole + max(scale, other_scale) + 1, max(scale, other_scale))
    return Call(operator, (left, right), _fitting(kind, node))


def unified(found: list[Expression], node: exp.Expr) -> list[Expression]:
    """Convert expressions to a common type without loss."""
    kinds = {item.kind for item in found}
    for kind in kinds & _MOMENTS.keys():
        return [_moment(item, kind, node) for item in found]  # type: ignore[arg-type]
    if kinds in ({_TEXT}, {_BOOLEAN}):
        return found
    if _DOUBLE in kinds:
        return [convert(item, _DOUBLE, node) for item in found]
    found = [_number(item, node) for item in found]
    if kinds <= {_INT, _LONG}:
        return [convert(item, _LONG, node) for item in found]
    sizes = [digits(item, node) for item in found]
    scale = max(behind for _, behind in sizes)
    kind = DecimalType(max(precision - behind for precision, behind in sizes) + scale, scale)
    return [convert(item, _fitting(kind, node), node) for item in found]


def _number(item: Expression, node: exp.Expr) -> Expression:
    if item.kind in (_INT, _LONG) or isinstance(item.kind, DecimalType):
        return item
    if item.kind is PrimitiveType.FLOAT:
        raise RuleError(f"{shown(node)}: engines compare float differently", "Change the type of the field to double.")
    if isinstance(item.kind, ObjectType | ListType | MapType):
        raise RuleError(
            f"{shown(node)} compares an object, an array or a map",
            "Use a field within the object. Arrays and maps only support IS NULL.",
        )
    raise RuleError(f"{shown(node)} mixes different types", "Use values of the same type.")


def digits(item: Expression, node: exp.Expr) -> tuple[int, int]:
    """Return the maximum digits of a number: total, and after the decimal point."""
    kind = _number(item, node).kind
    if isinstance(item, Literal) and isinstance(item.value, int):
        return len(str(abs(item.value))), 0
    if isinstance(kind, DecimalType):
        return kind.precision, kind.scale
    return (10 if kind is _INT else 19), 0


def convert(item: Expression, kind: Type, node: exp.Expr) -> Expression:
    """Convert an expression to another type, if that is exact."""
    if item.kind == kind:
        return item
    if isinstance(item, Literal) and isinstance(item.value, int | Decimal) and not isinstance(item.value, bool):
        if kind is not _DOUBLE:
            return Literal(Decimal(item.value) if isinstance(kind, DecimalType) else item.value, kind)
        if len(Decimal(item.value).as_tuple().digits) <= _EXACT_IN_DOUBLE:
            return Literal(float(item.value), kind)
        raise RuleError(
            f"{shown(node)}: engines round a long number next to a double differently",
            f"Use at most {_EXACT_IN_DOUBLE} digits.",
        )
    if kind is _DOUBLE and not (item.kind in (_INT, _LONG) and isinstance(item, Column)):
        raise RuleError(
            f"{shown(node)}: a double can only be combined with doubles, integer fields and number literals",
            "Use values of the same type.",
        )
    return Call(Operator.CONVERT, (item,), kind)


def _moment(item: Expression, kind: PrimitiveType, node: exp.Expr) -> Expression:
    if item.kind is kind:
        return item
    hint = f"Write a {kind.value} like '{_MOMENTS[kind]}'."
    if not isinstance(item, Literal) or not isinstance(item.value, str):
        raise RuleError(f"{shown(node)} mixes different types", hint)
    value = read_moment(item.value, kind)
    if value is None:
        raise RuleError(f"{shown(node)}: {cut(item.value)!r} is not a {kind.value}", hint)
    return Literal(value, kind)


def _fitting(kind: DecimalType, node: exp.Expr) -> DecimalType:
    if kind.precision > MAX_DIGITS:
        raise RuleError(
            f"{shown(node)} can have {kind.precision} digits, but the maximum is {MAX_DIGITS}",
            "Use field types with fewer digits: int, or a smaller decimal.",
        )
    return kind


def shown(node: exp.Expr) -> str:
    """Format SQL for a message, shortened."""
    return cut(node.sql())


def cut(text: str) -> str:
    """Shorten a text for a message."""
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
