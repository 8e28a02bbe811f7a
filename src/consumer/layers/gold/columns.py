"""Keys, windows and measures of a product, computed on whole Arrow columns."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumer.iceberg.data_files import field_at
from consumer.iceberg.memory import ROWS
from lakeproof.contracts.rules.expression import Column, Expression
from lakeproof.contracts.rules.types import MAX_DIGITS
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Aggregate, Measure, Product
from lakeproof.judge.judged import arrow_type
from lakeproof.judge.rule_checks import evaluate
from lakeproof.tables.names import UPDATED_AT

START = "_start"
"""The start of a window, in microseconds since 1970."""
END = "_end"
"""The exclusive end of a session, in microseconds since 1970."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIMESTAMP = pa.timestamp("us", "UTC")
_ORDERED = (Aggregate.MIN, Aggregate.MAX, Aggregate.MIN_BY, Aggregate.MAX_BY)


def columns_of(product: Product, event_time: str, *, measures: bool = True) -> list[str]:
    """Return the names of the columns of silver that :func:`in_windows` takes."""
    keys = [str(key) for key in product.keys]
    paths = [*keys, *(sorted(product.fields - {*keys}) if measures else ()), event_time]
    return list(dict.fromkeys(path.partition(".")[0] for path in paths))


def in_windows(rows: pa.RecordBatch, product: Product, event_time: str, *, measures: bool = True) -> pa.Table:
    """Return keys and inputs of measures from rows of silver, each row once for every window that it is in."""
    columns: dict[str, Any] = {name: _small(rows.column(name)) for name in rows.schema.names}
    at = field_at(columns, event_time)
    if at.null_count:
        columns = {name: column.filter(at.is_valid()) for name, column in columns.items()}
        at = at.drop_null()
    found = {
        name: _normal(evaluate(Column(key.path, key.type), columns))
        for key, name in zip(product.keys, key_names(product), strict=True)
    }
    for index, measure in enumerate(product.measures if measures else ()):
        if measure.argument:
            found[_value(index)] = _values(measure, measure.argument, columns, len(at))
        if measure.order:
            found[_order(index)] = _values(measure, measure.order, columns, len(at))
    size, every = micros(product.window.size), micros(product.window.every)
    times = at.cast(_TIMESTAMP).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if product.window.session:
        return pa.table({START: times} | found)
    newest = times - np.mod(times, every)
    if size == every:
        return pa.table({START: newest} | found)
    before = np.arange(product.window.overlap)
    starts = (newest[:, None] - before[None, :] * every).ravel()
    places = pa.array(np.repeat(np.arange(len(newest)), len(before)))
    return pa.table({START: starts} | {name: column.take(places) for name, column in found.items()})


def pieces_in_windows(
    batches: Iterable[pa.RecordBatch], product: Product, event_time: str, *, measures: bool = True
) -> Iterator[pa.Table]:
    """Yield :func:`in_windows` of rows, of some at a time: windows that overlap repeat each row up to 1,440 times."""
    length = max(ROWS // product.window.overlap, 1)
    for batch in batches:
        for start in range(0, batch.num_rows, length):
            yield in_windows(batch.slice(start, length), product, event_time, measures=measures)


def aggregated(rows: pa.Table, product: Product, updated_at: datetime) -> pa.Table:
    """Aggregate the rows of :func:`in_windows`, for sessions with their ends, to rows of the product's table."""
    keys = key_names(product)
    if not product.window.session:
        rows = rows.append_column(END, pc.add(rows[START], micros(product.window.size)))
    for index, measure in enumerate(product.measures):
        if measure.aggregate is Aggregate.SUM:
            _check_sum(rows.select([START, END, *keys, _value(index)]), measure, product)
    ranked = {index: _Ranked.of(rows, index, each) for index, each in enumerate(product.measures) if each.order}
    for index, each in ranked.items():
        rows = rows.set_column(rows.column_names.index(_value(index)), _value(index), each.ranks)
    grouped = rows.group_by([START, END, *keys]).aggregate(
        [_aggregate(*numbered) for numbered in enumerate(product.measures)]
    )
    starts: Any = grouped[START]
    ends: Any = grouped[END]
    found: dict[str, Any] = {WINDOW_START: starts.cast(_TIMESTAMP), WINDOW_END: ends.cast(_TIMESTAMP)}
    found |= {key.name: grouped[name] for key, name in zip(product.keys, keys, strict=True)}
    results = grouped.columns[2 + len(keys) :]  # counts of all rows have the same name
    for index, (measure, values) in enumerate(zip(product.measures, results, strict=True)):
        found[measure.name] = _result(measure, ranked[index].values_at(values) if index in ranked else values)
    found[UPDATED_AT] = pa.repeat(pa.scalar(updated_at, _TIMESTAMP), grouped.num_rows)
    return pa.table(found)


def _check_sum(rows: pa.Table, measure: Measure, product: Product) -> None:
    """Refuse a sum that can have more than 38 digits at some point: Arrow would wrap silently.

    The values are added without their signs. So the result depends neither on the order of the rows, in which DuckDB
    may exceed its type and then come back, nor on how the rows are spread over tasks.
    """
    *group, value = rows.column_names
    kind: Any = rows.schema.field(value).type
    if rows.num_rows * 10**kind.precision <= 10**MAX_DIGITS:  # true for all but millions of values of many digits
        return
    sizes = pc.abs(rows[value]).cast(pa.decimal256(kind.precision, kind.scale))
    sums = rows.set_column(len(group), value, sizes).group_by(group).aggregate([(value, "sum")])
    largest = pc.max(sums[f"{value}_sum"]).as_py()
    if largest is not None and largest >= Decimal(1).scaleb(MAX_DIGITS - kind.scale):
        raise LakeproofError(
            f"The measure {measure.name} of {product.name} has more than {MAX_DIGITS} digits in a window: its values "
            f"sum up to {largest:.3E}, without their signs.",
            f"Use smaller windows or more keys in {product.name}.yaml, or leave out extreme values, like "
            "`sum(CASE WHEN amount < 1000000 THEN amount END)`. Then run "
            f"`consumer rebuild gold {product.name}`. See docs/gold.md#measures.",
        )


@dataclass(frozen=True)
class _Ranked:
    """The values of a measure with an order, by rank: the least rank has the least order."""

    ranks: Any  # of each row; null if the order is null
    values: Any  # the value of each rank

    @staticmethod
    def of(rows: pa.Table, index: int, measure: Measure) -> "_Ranked":
        """Rank the rows by order, then by value, with null at the far end."""
        values, order = rows[_value(index)].combine_chunks(), rows[_order(index)].combine_chunks()
        nulls = pc.is_null(values) if measure.aggregate is Aggregate.MIN_BY else pc.is_valid(values)
        columns = pa.table({"order": order, "null": nulls, "value": values})
        sorted_rows = pc.sort_indices(columns, [(name, "ascending") for name in columns.column_names])
        ranks = np.empty(len(values), np.int64)
        ranks[sorted_rows.to_numpy()] = np.arange(len(values))
        return _Ranked(pa.array(ranks, mask=order.is_null().to_numpy(zero_copy_only=False)), values.take(sorted_rows))

    def values_at(self, ranks: Any) -> Any:
        """Return the values of ranks; null for null."""
        return pa.chunked_array([self.values.take(chunk) for chunk in ranks.chunks], self.values.type)


def key_names(product: Product) -> list[str]:
    """Return the names of key columns while a product is computed, different from all other columns."""
    return [f"_key{index}" for index in range(len(product.keys))]


def micros(length: timedelta) -> int:
    """Return a length of time in microseconds."""
    return length // _MICROSECOND


def _value(index: int) -> str:
    return f"_value{index}"


def _order(index: int) -> str:
    return f"_order{index}"


def _values(measure: Measure, argument: Expression, columns: dict[str, Any], rows: int) -> Any:
    """Return the value of each row that a measure aggregates."""
    values = evaluate(argument, columns)
    if isinstance(values, pa.Scalar):
        values = pa.array([values.as_py()] * rows, values.type)
    if measure.aggregate in _ORDERED and pa.types.is_floating(values.type):
        return _ordered(values.cast(pa.float64()))
    return _normal(values)


def _aggregate(index: int, measure: Measure) -> Any:
    name = _value(index)
    match measure.aggregate:
        case Aggregate.COUNT:
            return (name, "count") if measure.argument else ([], "count_all")
        case Aggregate.COUNT_DISTINCT:
            return name, "count_distinct"
        case Aggregate.SUM:
            return name, "sum"
        case Aggregate.MIN | Aggregate.MIN_BY:
            return name, "min"
        case Aggregate.MAX | Aggregate.MAX_BY:
            return name, "max"


def _result(measure: Measure, values: Any) -> Any:
    kind = arrow_type(measure.type)
    if measure.aggregate in _ORDERED and pa.types.is_floating(kind):
        values = pa.chunked_array([_of_ordered(chunk) for chunk in values.chunks], pa.float64())
    return values.cast(kind)


def _normal(values: Any) -> Any:
    """Make equal values identical: no -0.0, and a single NaN."""
    if not pa.types.is_floating(values.type):
        return values
    positive = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(positive), pa.scalar(float("nan"), values.type), positive)


def _ordered(values: Any) -> Any:
    """Return doubles as integers with the same order, and NaN above all: Arrow skips NaN."""
    bits = np.frombuffer(_normal(values).fill_null(0.0).to_numpy(zero_copy_only=False).tobytes(), np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bits)
    return pa.array(ordered, mask=values.is_null().to_numpy(zero_copy_only=False))


def _of_ordered(values: Any) -> Any:
    ordered = values.fill_null(0).to_numpy(zero_copy_only=False)
    bits = np.where(ordered < 0, ordered ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), ordered)
    return pa.array(bits.view(np.float64), mask=values.is_null().to_numpy(zero_copy_only=False))


def _small(values: Any) -> Any:
    """Return values without Arrow's large types, which literals do not have."""
    kind = small_type(values.type)
    return values if kind == values.type else values.cast(kind)


def small_type(kind: pa.DataType) -> pa.DataType:
    """Return the same type without Arrow's large types."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(small_type(each.type)) for each in kind])
    return kind
