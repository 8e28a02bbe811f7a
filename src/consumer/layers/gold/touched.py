"""The windows that new rows touch, and the rows of these windows in a product's table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import SparkSession

from consumer.iceberg.memory import ROWS
from consumer.iceberg.newest import check_shows
from consumer.iceberg.scan import Scan, derived, of_micro_batches, plan, positions, read, spread, whole_files
from consumer.iceberg.scan import rows_of as rows_in_files
from consumer.iceberg.upsert import OldRows, Span
from consumer.layers.gold.columns import START, columns_of, in_windows, key_names, micros, pieces_in_windows, small_type
from consumer.texts import texts_of
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.gold.model import WINDOW_START, Product
from lakeproof.settings import Settings
from lakeproof.tables.evolution import renamed_columns
from lakeproof.tables.names import gold_query, gold_table, silver_query, silver_tables

_DAY = 86_400_000_000
_EARLIEST = -(1 << 62)
_MAX_SPANS = 100
_NUMBER = "_number"
_MAX_WINDOWS = 1_000_000
"""Maximum number of windows that are sent to every task; beyond it, all windows between them count as touched."""


class Touched(Protocol):
    """Windows or sessions that new rows touch."""

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the rows, given with start and keys of a window, that are in one of the windows."""
        ...

    def start_spans(self, product: Product) -> list[Span]:
        """Return the spans of their starts, ascending and without overlaps."""
        ...


@dataclass(frozen=True)
class Windows:
    """Windows of a product, by start and keys."""

    starts: Sequence[Span]  # spans of their starts, ascending and without overlaps
    texts: Any = None  # text of the start and keys of each window; None for all windows that start in these spans

    @property
    def empty(self) -> bool:
        """Whether no window is touched."""
        return not self.starts

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the rows, given with start and keys of a window, that are in one of the windows."""
        begins: Any = rows[START]
        inside = [pc.and_(pc.greater_equal(begins, first), pc.less(begins, last)) for first, last in self.starts]
        rows = rows.filter(reduce(pc.or_, inside))
        if self.texts is None:
            return rows
        # Many rows have the same window: the text of each window is made once.
        places = rows.select([START, *_keys(rows)]).append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
        windows = places.group_by(places.column_names[:-1]).aggregate([(_NUMBER, "list")])
        found = windows.filter(pc.is_in(window_texts(windows), value_set=self.texts))
        if found.num_rows == windows.num_rows:
            return rows
        is_found = np.zeros(rows.num_rows, np.bool_)
        is_found[pc.list_flatten(found[f"{_NUMBER}_list"]).to_numpy()] = True
        return rows.filter(pa.array(is_found))

    def spans(self, product: Product) -> list[Span]:
        """Return the spans of time that they cover, ascending and without overlaps."""
        size = micros(product.window.size)
        return merged([(first, last - 1 + size) for first, last in self.starts])

    def start_spans(self, product: Product) -> list[Span]:  # noqa: ARG002 - sessions need the product
        """Return the spans of their starts, ascending and without overlaps."""
        return list(self.starts)


ALL_WINDOWS = Windows([(_EARLIEST, 1 << 62)])


def closed_between(product: Product, before: int | None, horizon: int) -> Windows:
    """Return the windows whose end the horizon has passed since it was at `before`; if it is None, all passed ones."""
    size = micros(product.window.size)
    return Windows([(_EARLIEST if before is None else before - size + 1, horizon - size + 1)])


def window_texts(rows: pa.Table) -> Any:
    """Return the text of the start and the keys of each row of :func:`~gold.columns.in_windows`."""
    columns = [rows[name].combine_chunks() for name in (START, *_keys(rows))]
    return texts_of(columns).cast(pa.binary())


def _keys(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name.startswith("_key")]


def rows_in_windows(silver: Scan, product: Product) -> int:
    """Return the number of rows of :func:`~gold.columns.in_windows`, for all rows in the data files of a scan."""
    return rows_in_files(silver) * product.window.overlap


def remembered(spark: SparkSession, silver: Scan, product: Product, event_time: str) -> list[pa.Table] | None:
    """Return :func:`~gold.columns.in_windows` of the rows of each data file; None if there are too many rows."""
    if rows_in_windows(silver, product) > ROWS:
        return None
    fits, rest = whole_files(silver)
    if not fits.files or rest.files:
        return None
    kind = (product, event_time)
    return derived(
        spark, fits, lambda batch: in_windows(batch, product, event_time), kind, repeats=product.window.overlap
    )


def places_of(
    spark: SparkSession, new: Scan, product: Product, event_time: str, shorten: Callable[[pa.Table], pa.Table]
) -> list[pa.Table]:
    """Return the starts and keys of new rows, in a few tables."""
    known = remembered(spark, new, product, event_time)
    if known is not None:
        return [shorten(rows.select([START, *key_names(product)])) for rows in known]
    names = columns_of(product, event_time, measures=False)

    def find(part: Scan) -> pa.Table | None:
        found = [*map(_distinct, pieces_in_windows(read(part), product, event_time, measures=False))]
        return shorten(pa.concat_tables(found)) if found else None

    narrow = replace(new, columns={name: new.columns[name] for name in names})
    return [part for part in spread(spark, narrow, find) if part is not None]


def touched_windows(spark: SparkSession, new: Scan, product: Product, event_time: str) -> Windows:
    """Find the windows of new rows."""
    parts = places_of(spark, new, product, event_time, _distinct)
    if not parts:
        return Windows([])
    windows = _distinct(pa.concat_tables(parts))
    starts: Any = windows[START].to_numpy()
    days = np.unique(starts // _DAY)
    spans = [(int(mine.min()), int(mine.max()) + 1) for mine in (starts[starts // _DAY == day] for day in days)]
    return Windows(merged(spans), window_texts(windows) if windows.num_rows <= _MAX_WINDOWS else None)


def _distinct(rows: pa.Table) -> pa.Table:
    return rows.group_by(rows.column_names).aggregate([])


def as_micros(rows: pa.Table, *names: str) -> pa.Table:
    """Convert the first columns of rows, which are times, to microseconds like :func:`~gold.columns.in_windows`."""
    for index, name in enumerate(names):
        rows = rows.set_column(index, name, rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    return rows


def merged(spans: Sequence[Span]) -> list[Span]:
    """Return a few spans that cover the given spans, ascending and without overlaps."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found if len(found) <= _MAX_SPANS else [(found[0][0], found[-1][1])]


def within(column: str, spans: Sequence[Span]) -> BooleanExpression:
    """Return a filter for times in one of the spans."""
    compare: Any = expressions  # its type hints do not match the arguments that it takes
    each = [
        expressions.And(compare.GreaterThanOrEqual(column, start), compare.LessThan(column, end))
        for start, end in spans
    ]
    return reduce(compare.Or, each, expressions.AlwaysFalse())


def silver_rows(
    catalog: Catalog, product: Product, event_time: str, start: int, end: int, spans: Sequence[Span] | None = None
) -> Scan:
    """Plan a scan of a product's columns in micro-batches of silver; `spans` exclude data files of other times."""
    name = silver_tables(product.stream).kept
    table = catalog.load_table(name)
    check_shows(table, silver_query(product.stream), name, end)
    renamed = renamed_columns(table.properties)
    columns = {each: renamed.get(each, each) for each in columns_of(product, event_time)}
    times = within(event_time, spans) if spans else None
    return plan(table, name, columns, of_micro_batches(start, end), within=times)


def rows_of(spark: SparkSession, settings: Settings, product: Product, windows: Windows, end: int) -> pa.Table:
    """Return the rows of windows in a product's table, with the types that Spark uses; `end` is that of its marker."""
    name = gold_table(product.name)
    with catalog_errors():
        table = open_catalog(settings).load_table(name)
        check_shows(table, gold_query(product.name), name, end)
        columns = {field.name: field.name for field in table.schema().fields}
        scan = plan(table, name, _identity(product) | columns, within=within(WINDOW_START, windows.starts))
    stored = schema_to_pyarrow(table.schema(), include_field_ids=False)
    schema = pa.schema([field.with_type(small_type(field.type)) for field in stored])

    def find(part: Scan) -> pa.Table:
        found = [windows.of(as_micros(pa.Table.from_batches([rows]), START)) for rows in read(part)]
        return pa.concat_tables([schema.empty_table(), *(each.select(schema.names).cast(schema) for each in found)])

    return pa.concat_tables([schema.empty_table(), *spread(spark, scan, find)]).combine_chunks()


def _identity(product: Product) -> dict[str, str]:
    """Return the columns of a product's table that identify a window, by their names during computation."""
    return {START: WINDOW_START, **{name: key.name for key, name in zip(product.keys, key_names(product), strict=True)}}


def old_rows(
    spark: SparkSession,
    catalog: Catalog,
    name: str,
    snapshot_id: int,
    product: Product,
    windows: Touched,
) -> OldRows:
    """Return the rows of windows in a snapshot of a product's table."""
    spans = windows.start_spans(product)
    table = catalog.load_table(name)
    scan = plan(table, name, _identity(product), within=within(WINDOW_START, spans), snapshot_id=snapshot_id)
    found = positions(spark, scan, lambda rows: windows.of(as_micros(rows, START)))
    return OldRows(found, WINDOW_START, spans)
