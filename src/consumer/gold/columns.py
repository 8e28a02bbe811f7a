"""A product's keys, windows and measures as columns of Spark."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as spark

from lakeproof.contracts import DecimalType, PrimitiveType
from lakeproof.contracts.model import Type
from lakeproof.contracts.rules.expression import Call, Expression, Literal, Operator
from lakeproof.contracts.rules.expression import Column as Field
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Aggregate, Measure, Product
from lakeproof.tables.names import UPDATED_AT

START = "_start"
"""The start of a window, in microseconds since 1970."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def in_windows(rows: DataFrame, product: Product, event_time: str) -> DataFrame:
    """Rows of silver as the product needs them, each once for every window that it is in.

    Returns
    -------
    DataFrame
        The start of the window, the keys as :func:`key_names` has them, and the values of the measures.
    """
    size, every = micros(product.window.size), micros(product.window.every)
    at = F.unix_micros(F.col(event_time))
    newest = at - F.pmod(at, F.lit(every))
    starts = newest if size == every else F.explode(F.sequence(newest - (size - every), newest, F.lit(every)))
    return rows.where(F.col(event_time).isNotNull()).select(
        starts.alias(START),
        *(_field(key.path).alias(name) for key, name in zip(product.keys, key_names(product), strict=True)),
        *(
            value_of(measure.argument).alias(_value(index))
            for index, measure in enumerate(product.measures)
            if measure.argument
        ),
    )


def aggregated(rows: DataFrame, product: Product, updated_at: datetime) -> DataFrame:
    """What :func:`in_windows` returned as rows of the product's table."""
    keys, size = key_names(product), micros(product.window.size)
    found = rows.groupBy(START, *keys).agg(
        *(_aggregate(measure, F.col(_value(index))).alias(_measure(index)) for index, measure in _numbered(product))
    )
    return found.select(
        F.timestamp_micros(START).alias(WINDOW_START),
        F.timestamp_micros(F.col(START) + size).alias(WINDOW_END),
        *(F.col(name).alias(key.name) for key, name in zip(product.keys, keys, strict=True)),
        *(F.col(_measure(index)).alias(measure.name) for index, measure in _numbered(product)),
        timestamp(micros(updated_at - EPOCH)).alias(UPDATED_AT),
    )


def key_names(product: Product) -> list[str]:
    """Names of the columns of keys while a product is computed: none is that of another column."""
    return [f"_key{index}" for index in range(len(product.keys))]


def value_of(expression: Expression) -> Column:
    """The value of an expression for each row."""
    match expression:
        case Literal(value, kind):
            return _literal(value, kind)
        case Field(path, _):
            return _field(path)
        case Call(Operator.CONVERT, (operand,), kind):
            return value_of(operand).cast(_type(kind))
        case Call(Operator.LIKE, (text, Literal(pattern, _))):
            return value_of(text).like(str(pattern))
        case Call(operator, operands, _):
            return _OPERATORS[operator](*map(value_of, operands))


def timestamp(at: int) -> Column:
    """The same time for each row, from microseconds since 1970: Python's times end with the year 9999."""
    return F.timestamp_micros(F.lit(at).cast("long"))


def micros(length: timedelta) -> int:
    """A length of time in microseconds."""
    return length // _MICROSECOND


def _numbered(product: Product) -> list[tuple[int, Measure]]:
    return list(enumerate(product.measures))


def _value(index: int) -> str:
    return f"_value{index}"


def _measure(index: int) -> str:
    return f"_measure{index}"


def _field(path: tuple[str, ...]) -> Column:
    return F.col(".".join(f"`{name}`" for name in path))


def _aggregate(measure: Measure, values: Column) -> Column:
    match measure.aggregate:
        case Aggregate.COUNT:
            return F.count(values if measure.argument else F.lit(1))
        case Aggregate.COUNT_DISTINCT:
            return F.count_distinct(values)
        case Aggregate.SUM:
            found = F.sum(values)
        case Aggregate.MIN:
            found = F.min(values)
        case Aggregate.MAX:
            found = F.max(values)
    return found.cast(_type(measure.type))


def _literal(value: object, kind: Type) -> Column:
    """A literal. Numbers as text and times as numbers: what Spark makes of Python's own objects is less exact."""
    if isinstance(value, datetime):
        return timestamp(micros(value - EPOCH))
    if isinstance(value, date):
        return F.date_from_unix_date(F.lit((value - EPOCH.date()).days))
    if value is None or isinstance(value, bool | float):
        return F.lit(value).cast(_type(kind))
    return F.lit(str(value)).cast(_type(kind))


def _type(kind: Type) -> spark.DataType:
    if isinstance(kind, DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    return {
        PrimitiveType.STRING: spark.StringType(),
        PrimitiveType.SCALAR: spark.StringType(),
        PrimitiveType.BOOLEAN: spark.BooleanType(),
        PrimitiveType.INT: spark.IntegerType(),
        PrimitiveType.LONG: spark.LongType(),
        PrimitiveType.FLOAT: spark.FloatType(),
        PrimitiveType.DOUBLE: spark.DoubleType(),
        PrimitiveType.TIMESTAMP: spark.TimestampType(),
        PrimitiveType.DATE: spark.DateType(),
    }[kind]  # type: ignore[index]  # of the other types, a measure has fields only, which need no conversion


_OPERATORS: dict[Operator, Callable[..., Column]] = {
    Operator.AND: lambda *operands: reduce(Column.__and__, operands),
    Operator.OR: lambda *operands: reduce(Column.__or__, operands),
    Operator.NOT: Column.__invert__,
    Operator.EQUAL: Column.__eq__,
    Operator.LESS: Column.__lt__,
    Operator.IS_NULL: Column.isNull,
    Operator.ADD: Column.__add__,
    Operator.SUBTRACT: Column.__sub__,
    Operator.MULTIPLY: Column.__mul__,
    Operator.NEGATE: Column.__neg__,
    Operator.ABS: F.abs,
    Operator.LENGTH: F.char_length,
    Operator.COALESCE: F.coalesce,
    Operator.IF: lambda condition, then, otherwise: F.when(condition, then).otherwise(otherwise),
}
