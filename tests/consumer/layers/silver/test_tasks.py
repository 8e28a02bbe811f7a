"""The input of silver's tasks."""

import pickle
from typing import Any

import pyarrow as pa

from consumer.layers.silver.tasks import parts_decided
from consumer.layers.silver.verdicts import COMPARED, Lost, Verdict


def test_a_task_gets_its_own_lost_rows_and_no_others() -> None:
    """pyarrow pickles the whole buffers of a slice, so each of 20 tasks used to get all lost rows."""
    parts, rows = 20, 1_000
    lost: dict[int, Lost] = {
        number: (Verdict.CONFLICT, (f"source-{number:08}", number)) for number in range(0, parts * rows, 2)
    }
    compared = pa.Table.from_batches([pa.RecordBatch.from_pylist([{}] * rows, COMPARED)])
    scans: Any = [None] * parts
    decided = parts_decided(scans, [compared] * parts, lost)
    sizes = [len(pickle.dumps(part.lost)) for part in decided]
    (whole,) = parts_decided(scans[:1], [pa.concat_tables([compared] * parts)], lost)
    assert sum(sizes) < 1.5 * len(pickle.dumps(whole.lost))
    mine = decided[7].lost.to_pylist()
    assert [row["_row"] for row in mine] == list(range(0, rows, 2))
    assert mine[1]["_winner_position"] == 7_002
