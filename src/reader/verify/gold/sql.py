"""Expressions and aggregates in DuckDB's SQL. Every literal has an explicit type, so DuckDB infers none."""

from datetime import UTC, date, datetime, timedelta

from lakeproof.catalog import quoted
from lakeproof.contracts import DecimalType, PrimitiveType
from lakeproof.contracts.model import Type
from lakeproof.contracts.rules.expression import Call, Column, Expression, Literal, Operator
from lakeproof.gold.model import Aggregate, Measure
from reader.views import identifier

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    PrimitiveType.STRING: "VARCHAR",
    PrimitiveType.SCALAR: "VARCHAR",
    PrimitiveType.BOOLEAN: "BOOLEAN",
    PrimitiveType.INT: "INTEGER",
    PrimitiveType.LONG: "BIGINT",
    PrimitiveType.FLOAT: "FLOAT",
    PrimitiveType.DOUBLE: "DOUBLE",
    PrimitiveType.TIMESTAMP: "TIMESTAMPTZ",
    PrimitiveType.DATE: "DATE",
}
_FORMS = {
    Operator.NOT: "(NOT {})",
    Operator.EQUAL: "({} = {})",
    Operator.LESS: "({} < {})",
    Operator.LIKE: "({} LIKE {})",
    Operator.IS_NULL: "({} IS NULL)",
    Operator.ADD: "({} + {})",
    Operator.SUBTRACT: "({} - {})",
    Operator.MULTIPLY: "({} * {})",
    Operator.NEGATE: "(- {})",
    Operator.ABS: "abs({})",
    Operator.LENGTH: "length({})",
    Operator.IF: "CASE WHEN {} THEN {} ELSE {} END",
}
_JOINED = {Operator.AND: " AND ", Operator.OR: " OR ", Operator.COALESCE: ", "}


def value_of(expression: Expression, columns: str) -> str:
    """Return SQL of an expression over the rows of a table with the alias `columns`."""
    match expression:
        case Literal(value, kind):
            return _literal(value, kind)
        case Column(path):
            return ".".join([columns, *map(identifier, path)])
        case Call(Operator.CONVERT, (operand,), kind):
            return f"CAST({value_of(operand, columns)} AS {type_of(kind)})"
        case Call(operator, operands):
            values = [value_of(operand, columns) for operand in operands]
            if operator in _JOINED:
                joined = f"({_JOINED[operator].join(values)})"
                return f"coalesce{joined}" if operator is Operator.COALESCE else joined
            return _FORMS[operator].format(*values)


def aggregate_of(measure: Measure, values: str, order: str = "") -> str:
    """Return SQL of a measure; `values` and `order` are SQL of its argument and of its order, if any."""
    match measure.aggregate:
        case Aggregate.COUNT:
            found = f"count({values})" if measure.argument else "count(*)"
        case Aggregate.COUNT_DISTINCT:
            found = f"count(DISTINCT {values})"
        case Aggregate.SUM | Aggregate.MIN | Aggregate.MAX:
            found = f"{measure.aggregate}({values})"
        case Aggregate.MIN_BY:  # null sorts last
            row = f"{{'o': {order}, 'n': {values} IS NULL, 'v': {values}}}"
            found = f"(min({row}) FILTER ({order} IS NOT NULL)).v"
        case Aggregate.MAX_BY:  # null sorts first
            row = f"{{'o': {order}, 'n': {values} IS NOT NULL, 'v': {values}}}"
            found = f"(max({row}) FILTER ({order} IS NOT NULL)).v"
    return f"CAST({found} AS {type_of(measure.type)})"


def type_of(kind: Type) -> str:
    """Return DuckDB's name for a type of expressions."""
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _TYPES[kind]  # type: ignore[index]  # the others have no conversions, literals or results


def _literal(value: object, kind: Type) -> str:
    if value is None:
        text = "NULL"
    elif isinstance(value, datetime):
        text = f"make_timestamptz({(value - _EPOCH) // timedelta(microseconds=1)})"
    elif isinstance(value, date):
        text = f"DATE '1970-01-01' + {(value - _EPOCH.date()).days}"
    else:
        text = quoted(str(value))
    return f"CAST({text} AS {type_of(kind)})"
