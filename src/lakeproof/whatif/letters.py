"""Judge the bytes of dead letters that are records: each by itself, however it looks."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakeproof.judge.batch import Judge
from lakeproof.judge.scan import StructureError, container_end

_FIRST_LINE = b"{}\n"


def judge_records(judge: Judge, records: Sequence[bytes]) -> Iterator[tuple[list[int], list[int], Any]]:
    """Judge records as they were split from batches.

    Yields
    ------
    tuple[list[int], list[int], pyarrow.Array]
        Indexes of good ones, indexes of bad ones, and the reasons against these.
    """
    batches, places = [], []
    for record in records:
        batch, place = _batch_of(record)
        batches.append(batch)
        places.append(place)
    if not batches:
        return
    for found in judge.judge_together(batches):
        good, bad = found.judged.good, found.judged.bad
        good_of = [of for of, at in zip(found.good_of, good.positions.to_pylist(), strict=True) if at == places[of]]
        bad_at = bad.positions.to_pylist()
        rows = [row for row, of in enumerate(found.bad_of) if bad_at[row] == places[of]]
        yield good_of, [found.bad_of[row] for row in rows], bad.reasons.take(pa.array(rows, pa.int64()))


def _batch_of(record: bytes) -> tuple[bytes, int]:
    """A batch that is split into the record, perhaps behind another one; and the position of the record in it."""
    if _is_object(record):
        return record, 0
    # With line feeds in it, it was an element of an array, else it may have been a line.
    return (b"[" + record + b"]", 0) if b"\n" in record else (_FIRST_LINE + record, 1)


def _is_object(record: bytes) -> bool:
    if not record.startswith(b"{"):
        return False
    try:
        return container_end(record, 0, len(record))[0] == len(record)
    except StructureError:
        return False
