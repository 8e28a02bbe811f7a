"""Sessions: each record opens a window, and overlapping windows of the same keys are merged.

The table of a product has all sessions of the rows so far, so it shows which sessions new rows meet: no row of silver
outside these sessions is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from consumer.iceberg.scan import Scan, plan, read, spread
from consumer.iceberg.upsert import Span
from consumer.layers.gold.columns import END, START, key_names, micros
from consumer.layers.gold.touched import ALL_WINDOWS, Windows, as_micros, merged, places_of
from consumer.texts import texts_of
from lakeproof.catalog import catalog_errors
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Product

MAX_SESSIONS = 1_000_000
"""Maximum number of sessions that are sent to every task; if more are touched, all sessions are computed again."""


@dataclass(frozen=True)
class Sessions:
    """Sessions, ordered by keys and start; see :class:`consumer.layers.gold.touched.Windows`."""

    texts: Any  # distinct texts of their keys
    keys: Any  # of each session: the index of its keys in `texts`, its start, and its exclusive end
    starts: Any
    ends: Any

    @property
    def empty(self) -> bool:
        """Whether no window is touched."""
        return not len(self.starts)

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the rows, given with time and keys, that are in one of the sessions; or sessions, by their start."""
        keys = pc.index_in(key_texts(rows), value_set=self.texts).fill_null(-1).to_numpy()
        times = rows[START].to_numpy()
        # Encodes a key and a time as one number, with only the times that occur.
        known = np.unique(np.concatenate([self.starts, times]))
        begins = self.keys * len(known) + np.searchsorted(known, self.starts)
        at = np.searchsorted(begins, keys * len(known) + np.searchsorted(known, times), side="right") - 1
        inside = (at >= 0) & (self.keys[at] == keys) & (times < self.ends[at])
        return rows.filter(pa.array(inside))

    def spans(self, product: Product) -> list[Span]:
        """Return the spans of time of their rows, ascending and without overlaps."""
        gap = micros(product.window.size)
        return merged(list(zip(self.starts.tolist(), (self.ends - gap + 1).tolist(), strict=True)))

    def start_spans(self, product: Product) -> list[Span]:
        """Return the spans of the starts of sessions that they contain, ascending and without overlaps."""
        return self.spans(product)


def key_texts(rows: pa.Table) -> Any:
    """Return the text of the keys of each row; the same text for all rows of a product without keys."""
    keys = [rows[name].combine_chunks() for name in rows.column_names if name.startswith("_key")]
    return texts_of(keys).cast(pa.binary()) if keys else pa.repeat(pa.scalar(b"", pa.binary()), rows.num_rows)


def sessions_of(rows: pa.Table, size: int) -> pa.Table:
    """Replace the time of rows by the start and end of their session; `rows` has all rows of a session."""
    times = rows[START].to_numpy()
    keys = key_texts(rows).dictionary_encode().indices.to_numpy()
    _, starts, ends, mine = _joined(keys, times, times + size)
    return rows.set_column(rows.column_names.index(START), START, pa.array(starts[mine])).append_column(
        END, pa.array(ends[mine])
    )


def joined(sessions: pa.Table) -> pa.Table:
    """Merge overlapping sessions of the same keys."""
    keys = key_texts(sessions).dictionary_encode().indices.to_numpy()
    first, starts, ends, _ = _joined(keys, sessions[START].to_numpy(), sessions[END].to_numpy())
    return (
        sessions.take(pa.array(first))
        .set_column(sessions.column_names.index(START), START, pa.array(starts))
        .set_column(sessions.column_names.index(END), END, pa.array(ends))
    )


def _joined(keys: Any, starts: Any, ends: Any) -> tuple[Any, Any, Any, Any]:
    """Merge intervals of the same key that overlap, directly or through others."""
    if not len(starts):
        nothing = np.array([], np.int64)
        return nothing, nothing, nothing, nothing
    order = np.lexsort((starts, keys))
    keys, starts = keys[order].astype(np.int64), starts[order]
    # The greatest end so far of each key, as numbers that increase from key to key.
    values, ranks = np.unique(ends[order], return_inverse=True)
    reach = values[np.maximum.accumulate(keys * len(values) + ranks) % len(values)]
    begins = np.ones(len(order), bool)
    begins[1:] = (keys[1:] != keys[:-1]) | (starts[1:] >= reach[:-1])
    mine = np.empty(len(order), np.int64)
    mine[order] = np.cumsum(begins) - 1
    (first,) = np.nonzero(begins)
    return order[first], starts[first], reach[np.append(first[1:], len(order)) - 1], mine


def touched_sessions(
    spark: SparkSession, new: Scan, table: Table, name: str, product: Product, event_time: str
) -> Sessions | Windows:
    """Find the sessions of new rows, merged with those that they meet in the table; all windows if too many."""
    gap = micros(product.window.size)

    def shorten(rows: pa.Table) -> pa.Table:
        return joined(rows.append_column(END, pc.add(rows[START], gap)))

    parts = places_of(spark, new, product, event_time, shorten)
    opened = joined(pa.concat_tables(parts)) if parts else None
    if opened is None or not opened.num_rows:
        return Sessions(pa.array([], pa.binary()), *[np.array([], np.int64)] * 3)
    if opened.num_rows > MAX_SESSIONS:
        return ALL_WINDOWS
    met = _met(spark, table, name, product, sessions_from(opened))
    return sessions_from(
        joined(pa.concat_tables([opened, *(each.select(opened.column_names).cast(opened.schema) for each in met)]))
    )


def sessions_from(rows: pa.Table) -> Sessions:
    """Return sessions from a table of sessions that do not overlap."""
    texts = key_texts(rows).dictionary_encode()
    keys, starts, ends = texts.indices.to_numpy().astype(np.int64), rows[START].to_numpy(), rows[END].to_numpy()
    order = np.lexsort((starts, keys))
    return Sessions(texts.dictionary, keys[order], starts[order], ends[order])


def overlapping(rows: pa.Table, wanted: Sessions) -> pa.Table:
    """Return the sessions in `rows` that overlap with wanted sessions of the same keys."""
    known = rows.filter(pc.is_in(key_texts(rows), value_set=wanted.texts))
    keys = pc.index_in(key_texts(known), value_set=wanted.texts).to_numpy().astype(np.int64)
    starts, ends = known[START].to_numpy(), known[END].to_numpy()
    values = np.unique(np.concatenate([wanted.starts, ends]))
    # The last wanted session that starts before the end: if it ends before the start, so do all earlier ones.
    begins = wanted.keys * len(values) + np.searchsorted(values, wanted.starts)
    at = np.searchsorted(begins, keys * len(values) + np.searchsorted(values, ends), side="left") - 1
    return known.filter(pa.array((at >= 0) & (wanted.keys[at] == keys) & (wanted.ends[at] > starts)))


def _met(spark: SparkSession, table: Table, name: str, product: Product, wanted: Sessions) -> list[pa.Table]:
    """Return the sessions of a product's table that overlap with wanted sessions."""
    keys = {renamed: key.name for key, renamed in zip(product.keys, key_names(product), strict=True)}
    columns = {START: WINDOW_START, END: WINDOW_END} | keys
    spans = merged(list(zip(wanted.starts.tolist(), wanted.ends.tolist(), strict=True)))
    with catalog_errors():
        scan = plan(table, name, columns, within=_overlap(spans))

    def find(part: Scan) -> list[pa.Table]:
        return [overlapping(as_micros(pa.Table.from_batches([rows]), START, END), wanted) for rows in read(part)]

    return [rows for part in spread(spark, scan, find) for rows in part]


def _overlap(spans: Sequence[Span]) -> BooleanExpression:
    """Return a filter for rows of a product's table that overlap with one of the spans."""
    compare: Any = expressions  # its type hints do not match the arguments that it takes
    each = [
        expressions.And(compare.LessThan(WINDOW_START, end), compare.GreaterThan(WINDOW_END, start))
        for start, end in spans
    ]
    return reduce(compare.Or, each, expressions.AlwaysFalse())
