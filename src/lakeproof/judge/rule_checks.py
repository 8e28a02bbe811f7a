"""Check otherwise good records against the contract's rules, whole columns at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.contracts import Contract, PrimitiveType
from lakeproof.contracts.model import DecimalType
from lakeproof.contracts.rules.expression import Call, Column, Expression, Literal, Operator
from lakeproof.judge.judged import ArrowColumn, Fault, arrow_type
from lakeproof.reasons import Reason

Columns = dict[str, ArrowColumn]


class RulesJudge:
    """Checks records against the rules of a contract."""

    def __init__(self, contract: Contract) -> None:
        self._names = [field.name for field in contract]
        self._rules = contract.rules

    def judge(self, columns: Sequence[ArrowColumn]) -> dict[int, list[Fault]]:
        """Return the reasons, in the order of the rules, by the index of each row that breaks a rule, ascending."""
        named = dict(zip(self._names, columns, strict=True))
        found: dict[int, list[Fault]] = {}
        for rule in self._rules:
            fault = Fault(Reason.RULE_VIOLATED, rule.path, f"{rule.name}: {rule.text}")
            broken: Any = pc.invert(evaluate(rule.condition, named))
            for index in pc.indices_nonzero(broken).to_pylist():
                found.setdefault(int(index or 0), []).append(fault)
        return dict(sorted(found.items()))


def evaluate(expression: Expression, columns: Columns) -> Any:
    """Return the values of an expression for the rows of `columns`: an array, or a scalar if it uses no column."""
    match expression:
        case Literal(value, kind):
            return pa.scalar(value, arrow_type(kind))
        case Column((name, *within), kind):
            values: Any = pc.struct_field(columns[name], within) if within else columns[name]
            # The column of a table may have been widened since the contract judged its rows.
            wider = isinstance(kind, DecimalType | PrimitiveType) and values.type != arrow_type(kind)
            return values.cast(arrow_type(kind)) if wider else values
        case Call(Operator.CONVERT, (operand,), kind):
            return evaluate(operand, columns).cast(arrow_type(kind), safe=kind is not PrimitiveType.DOUBLE)
        case Call(operator, operands, _):
            return _KERNELS[operator](*(evaluate(operand, columns) for operand in operands))


def _folded(kernel: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def fold(first: Any, *others: Any) -> Any:
        for other in others:
            first = kernel(first, other)
        return first

    return fold


def _equal(left: Any, right: Any) -> Any:
    equal = pc.equal(left, right)
    if not pa.types.is_floating(left.type):
        return equal
    return pc.or_kleene(equal, pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))


def _less(left: Any, right: Any) -> Any:
    less = pc.less(left, right)
    if not pa.types.is_floating(left.type):
        return less
    # In Arrow, nothing is less than NaN. Values of the contract's columns are never NaN, but inf - inf is.
    return pc.or_kleene(less, pc.and_kleene(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def _like(text: Any, pattern: Any) -> Any:
    return pc.match_like(text, pattern.as_py())


def _if(condition: Any, then: Any, otherwise: Any) -> Any:
    return pc.if_else(pc.coalesce(condition, pa.scalar(False)), then, otherwise)


_compute: Any = pc
_KERNELS: dict[Operator, Callable[..., Any]] = {
    Operator.AND: _folded(_compute.and_kleene),
    Operator.OR: _folded(_compute.or_kleene),
    Operator.NOT: _compute.invert,
    Operator.EQUAL: _equal,
    Operator.LESS: _less,
    Operator.LIKE: _like,
    Operator.IS_NULL: _compute.is_null,
    Operator.ADD: _compute.add,
    Operator.SUBTRACT: _compute.subtract,
    Operator.MULTIPLY: _compute.multiply,
    Operator.NEGATE: _compute.negate,
    Operator.ABS: _compute.abs,
    Operator.LENGTH: _compute.utf8_length,
    Operator.COALESCE: _compute.coalesce,
    Operator.IF: _if,
}
