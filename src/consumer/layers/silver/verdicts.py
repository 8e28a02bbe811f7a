"""The verdict on each row of bronze: kept, duplicate, conflict or late.

The rows of a stream have an order: by micro-batch, then source, then position. The horizon of a micro-batch is the
greatest event time of all micro-batches before it, less the time that the contract declares; an event time later than
its own micro-batch counts as the time of the micro-batch, so that one wrong clock does not make everything late. The
rows before a row decide its verdict:

- a row with the same key was kept, with an event time not before the horizon: **duplicate**, if the content is the
  same, else **conflict**;
- else the row's own event time is before the horizon: **late**, since rows kept at that time are no longer read;
- else it is **kept**.

So a verdict depends on the rows of bronze and their order alone, not on how many micro-batches are decided at once.

Most rows share their key with no other row. Arrow finds the few that do, and only those are decided one by one.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.tables.names import CONTENT_HASH, MICRO_BATCH_ID, POSITION, SOURCE

KEY, EVENT_TIME, COUNTS_AS = "_key", "_event_time", "_counts_as"
_COLUMNS: dict[str, pa.DataType] = {
    KEY: pa.binary(),
    MICRO_BATCH_ID: pa.int64(),
    SOURCE: pa.string(),
    POSITION: pa.int64(),
    EVENT_TIME: pa.int64(),
    COUNTS_AS: pa.int64(),
    CONTENT_HASH: pa.binary(),
}
COMPARED = pa.schema(_COLUMNS)
"""Inputs of verdicts: a row's key, place, event time, the time that it counts as for the watermark, and hash."""
IN_SILVER = -1
"""Micro-batch number of rows that are in silver: they precede all others."""

_ROW = "_row"

Micros = int
"""A time in microseconds since 1970: Python has fewer years, and gets times from Spark in its own zone."""
RowId = tuple[str, int]
"""Place of a row: source and position."""


class Verdict(StrEnum):
    """A verdict on a row of bronze; the values are columns of the silver ledger."""

    KEPT = "kept"
    DUPLICATE = "duplicates"
    CONFLICT = "conflicts"
    LATE = "late"


class Lost(NamedTuple):
    """The verdict on a row that is not kept; for a duplicate or conflict, also the place of the row that was kept."""

    verdict: Verdict
    winner: RowId | None


class _Row(NamedTuple):
    key: bytes
    number: int
    source: str
    position: int
    event_time: Micros | None
    content: bytes
    row: int

    def is_before(self, horizon: Micros | None) -> bool:
        return horizon is not None and self.event_time is not None and self.event_time < horizon


def watermarks(rows: pa.Table) -> dict[int, Micros]:
    """Return the greatest event time of each micro-batch, none later than the micro-batch itself."""
    found = rows.group_by(MICRO_BATCH_ID).aggregate([(COUNTS_AS, "max")]).to_pydict()
    pairs = zip(found[MICRO_BATCH_ID], found[f"{COUNTS_AS}_max"], strict=True)
    return {number: newest for number, newest in pairs if newest is not None and number != IN_SILVER}


def decide(rows: pa.Table, horizons: Mapping[int, Micros | None]) -> dict[int, Lost]:
    """Decide rows; return the verdicts on those that are not kept, by row number."""
    rows = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    counts = rows.group_by(KEY).aggregate([([], "count_all")])
    shared = counts.filter(pc.greater(counts["count_all"], 1))[KEY].combine_chunks()
    is_shared = pc.is_in(rows[KEY], value_set=shared)
    return _late(rows.filter(pc.invert(is_shared)), horizons) | _lost(rows.filter(is_shared), horizons)


def _late(rows: pa.Table, horizons: Mapping[int, Micros | None]) -> dict[int, Lost]:
    """Find late rows among rows that share their key with no other: those before their horizon."""
    found: dict[int, Lost] = {}
    for number, horizon in horizons.items():
        if horizon is not None:
            mine = pc.equal(rows[MICRO_BATCH_ID], number)
            late = rows.filter(pc.and_(mine, pc.less(rows[EVENT_TIME], horizon)))
            numbers: Any = late[_ROW].to_pylist()
            found |= dict.fromkeys(numbers, Lost(Verdict.LATE, None))
    return found


def _lost(rows: pa.Table, horizons: Mapping[int, Micros | None]) -> dict[int, Lost]:
    """Find lost rows among rows that share their keys, from the row kept for the key before each of them."""
    found: dict[int, Lost] = {}
    winner: _Row | None = None
    order: Any = [(name, "ascending") for name in (KEY, MICRO_BATCH_ID, SOURCE, POSITION)]
    columns = (KEY, MICRO_BATCH_ID, SOURCE, POSITION, EVENT_TIME, CONTENT_HASH, _ROW)
    ordered = rows.select(columns).sort_by(order)
    for row in map(_Row._make, zip(*(column.to_pylist() for column in ordered.columns), strict=True)):
        if winner and winner.key != row.key:
            winner = None
        if row.number == IN_SILVER:
            winner = winner or row
            continue
        horizon = horizons[row.number]
        if winner and not winner.is_before(horizon):
            verdict = Verdict.DUPLICATE if winner.content == row.content else Verdict.CONFLICT
            found[row.row] = Lost(verdict, (winner.source, winner.position))
        elif row.is_before(horizon):
            found[row.row] = Lost(Verdict.LATE, None)
        else:
            winner = row
    return found
