"""A product's keys, windows and measures, computed on whole columns of Arrow."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumer.commit.data_files import field_at
from consumer.judge.judged import arrow_type
from consumer.judge.rule_checks import evaluate
from lakeproof.contracts.rules.expression import Expression, fields_in
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Aggregate, Measure, Product
from lakeproof.tables.names import UPDATED_AT

START = "_start"
"""The start of a window, in microseconds since 1970."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIMESTAMP = pa.timestamp("us", "UTC")
_compute: Any = pc  # its stubs lack functions


def columns_of(product: Product, event_time: str, *, measures: bool) -> list[str]:
    """Names of the columns of silver that :func:`in_windows` takes."""
    paths = [str(key) for key in product.keys]
    if measures:
        paths += sorted(set().union(*(fields_in(each.argument) for each in product.measures if each.argument)))
    return list(dict.fromkeys(path.partition(".")[0] for path in [*paths, event_time]))


def in_windows(rows: pa.RecordBatch, product: Product, event_time: str, *, measures: bool = True) -> pa.Table:
    """Rows of silver as the product needs them, each once for every window that it is in.

    Returns
    -------
    pyarrow.Table
        The start of the window, the keys as :func:`key_names` has them, and the values of the measures.
    """
    columns: dict[str, Any] = {name: _small(rows.column(name)) for name in rows.schema.names}
    at = field_at(columns, event_time)
    if at.null_count:
        columns = {name: column.filter(at.is_valid()) for name, column in columns.items()}
        at = at.drop_null()
    found = {
        name: _normal(field_at(columns, str(key))) for key, name in zip(product.keys, key_names(product), strict=True)
    }
    for index, measure in enumerate(product.measures if measures else ()):
        if measure.argument:
            found[_value(index)] = _values(measure, measure.argument, columns, len(at))
    size, every = micros(product.window.size), micros(product.window.every)
    times = at.cast(_TIMESTAMP).cast(pa.int64()).to_numpy(zero_copy_only=False)
    newest = times - np.mod(times, every)
    if size == every:
        return pa.table({START: newest} | found)
    before = np.arange(size // every)
    starts = (newest[:, None] - before[None, :] * every).ravel()
    places = pa.array(np.repeat(np.arange(len(newest)), len(before)))
    return pa.table({START: starts} | {name: column.take(places) for name, column in found.items()})


def aggregated(rows: pa.Table, product: Product, updated_at: datetime) -> pa.Table:
    """What :func:`in_windows` returned as rows of the product's table."""
    keys, size = key_names(product), micros(product.window.size)
    grouped = rows.group_by([START, *keys]).aggregate(
        [_aggregate(*numbered) for numbered in enumerate(product.measures)]
    )
    starts: Any = grouped[START]
    found: dict[str, Any] = {
        WINDOW_START: starts.cast(_TIMESTAMP),
        WINDOW_END: _compute.add(starts, size).cast(_TIMESTAMP),
    }
    found |= {key.name: grouped[name] for key, name in zip(product.keys, keys, strict=True)}
    results = grouped.columns[1 + len(keys) :]  # counts of all rows have the same name
    found |= {each.name: _result(each, values) for each, values in zip(product.measures, results, strict=True)}
    found[UPDATED_AT] = pa.repeat(pa.scalar(updated_at, _TIMESTAMP), grouped.num_rows)
    return pa.table(found)


def key_names(product: Product) -> list[str]:
    """Names of the columns of keys while a product is computed: none is that of another column."""
    return [f"_key{index}" for index in range(len(product.keys))]


def micros(length: timedelta) -> int:
    """A length of time in microseconds."""
    return length // _MICROSECOND


def _value(index: int) -> str:
    return f"_value{index}"


def _values(measure: Measure, argument: Expression, columns: dict[str, Any], rows: int) -> Any:
    """What a measure aggregates, of each row."""
    values = evaluate(argument, columns)
    if isinstance(values, pa.Scalar):
        values = pa.array([values.as_py()] * rows, values.type)
    if measure.aggregate in (Aggregate.MIN, Aggregate.MAX) and pa.types.is_floating(values.type):
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
        case Aggregate.MIN:
            return name, "min"
        case Aggregate.MAX:
            return name, "max"


def _result(measure: Measure, values: Any) -> Any:
    kind = arrow_type(measure.type)
    of_numbers = measure.argument and measure.aggregate in (Aggregate.MIN, Aggregate.MAX)
    if of_numbers and pa.types.is_floating(kind):
        values = pa.chunked_array([_of_ordered(chunk) for chunk in values.chunks], pa.float64())
    return values.cast(kind)


def _normal(values: Any) -> Any:
    """Values of which equal ones are the same: no -0.0, and one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    positive = _compute.add(values, pa.scalar(0.0, values.type))
    return _compute.if_else(_compute.is_nan(positive), pa.scalar(float("nan"), values.type), positive)


def _ordered(values: Any) -> Any:
    """Doubles as integers with the same order, in which NaN is above all: Arrow leaves NaN out."""
    bits = np.frombuffer(_normal(values).fill_null(0.0).to_numpy(zero_copy_only=False).tobytes(), np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bits)
    return pa.array(ordered, mask=values.is_null().to_numpy(zero_copy_only=False))


def _of_ordered(values: Any) -> Any:
    ordered = values.fill_null(0).to_numpy(zero_copy_only=False)
    bits = np.where(ordered < 0, ordered ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), ordered)
    return pa.array(bits.view(np.float64), mask=values.is_null().to_numpy(zero_copy_only=False))


def _small(values: Any) -> Any:
    """Values without Arrow's large types, which literals do not have."""
    kind = _small_type(values.type)
    return values if kind == values.type else values.cast(kind)


def _small_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_small_type(each.type)) for each in kind])
    return kind
