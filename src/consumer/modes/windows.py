"""Tumbling windows of each user as Arrow tables: plain functions without Spark and Kafka."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumer.modes.events import AMOUNT_PRECISION, AMOUNT_SCALE
from consumer.modes.plan import Micros

AMOUNT = pa.decimal128(AMOUNT_PRECISION, AMOUNT_SCALE)
_SUM = pa.decimal128(38, AMOUNT_SCALE)
_COLUMNS: dict[str, pa.DataType] = {
    "user_id": pa.string(),
    "window_start": pa.int64(),
    "event_count": pa.int64(),
    "amount_sum": _SUM,
    "amount_min": AMOUNT,
    "amount_max": AMOUNT,
}
OPEN = pa.schema(_COLUMNS)
"""Open windows: a row for each user and window; the start is in microseconds since 1970."""
_TIMES: dict[str, pa.DataType] = {"window_start": pa.timestamp("us", "UTC"), "window_end": pa.timestamp("us", "UTC")}
FINAL = pa.schema({"user_id": pa.string(), **_TIMES, **dict(list(_COLUMNS.items())[2:])})
"""Windows in the form of the Parquet sink."""


def windows_of(users: Any, times: Any, amounts: Any, size: Micros) -> pa.Table:
    """Return the windows of events, as a table of :data:`OPEN`."""
    starts = np.asarray(times) // size * size
    rows = pa.table({"user_id": users, "window_start": pa.array(starts, pa.int64()), "amount": amounts})
    keys = ["user_id", "window_start"]
    found = rows.group_by(keys).aggregate([([], "count_all"), ("amount", "sum"), ("amount", "min"), ("amount", "max")])
    names = {"count_all": "event_count"}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    return found.select(OPEN.names).cast(OPEN)


def merged(before: pa.Table, new: pa.Table) -> pa.Table:
    """Merge the windows of two tables of :data:`OPEN`, sorted by user and start."""
    sums: Any = [("event_count", "sum"), ("amount_sum", "sum"), ("amount_min", "min"), ("amount_max", "max")]
    both = pa.concat_tables([before, new]).group_by(["user_id", "window_start"]).aggregate(sums)
    keys = both.column_names[:2]
    named = both.rename_columns([*keys, "event_count", "amount_sum", "amount_min", "amount_max"])
    return named.select(OPEN.names).cast(OPEN).sort_by([(key, "ascending") for key in keys])


def touched(windows: pa.Table, new: pa.Table) -> pa.Table:
    """Return the rows of `windows` that are also in `new`, sorted by user and start."""
    keys = ["user_id", "window_start"]
    return windows.join(new.select(keys), keys, join_type="left semi").sort_by([(key, "ascending") for key in keys])


def split_final(windows: pa.Table, size: Micros, watermark: Micros | None) -> tuple[pa.Table, pa.Table]:
    """Return the windows that no event can change anymore, and those that stay open."""
    if watermark is None:
        return windows.slice(0, 0), windows
    is_final = pc.less_equal(pc.add(windows["window_start"], size), watermark)
    return windows.filter(is_final), windows.filter(pc.invert(is_final))


def as_final(windows: pa.Table, size: Micros) -> pa.Table:
    """Return windows as a table of :data:`FINAL`."""
    ends = pc.add(windows["window_start"], size)
    return windows.append_column("window_end", ends).select(FINAL.names).cast(FINAL)
