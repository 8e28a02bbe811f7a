"""Readings for both sides of the samples benchmark, and the figures on its page."""

from itertools import pairwise

import pyarrow as pa
from benchmarks.harness import PeakMemory, Sample
from benchmarks.samples import growth
from benchmarks.sides.readings import SECOND, WARM_UP, Kept, Load, Silver, follow

_LONG = pa.schema({"event_time": pa.int64()})
LOAD = Load(devices=20, every=10, step=60, minutes=6)


def test_readings_are_always_the_same_out_of_order_and_never_too_late() -> None:
    watermark, found, moved_back = 0, [], 0
    for batch in LOAD.commits():
        times = [row["event_time"] for row in batch.select(["event_time"]).cast(_LONG).to_pylist()]
        assert min(times) >= watermark - 30 * SECOND
        moved_back += sum(after < before for before, after in pairwise(times))
        watermark = max(watermark, *times)
        found += list(zip(batch.column("device_id").to_pylist(), times, strict=True))
    assert len(set(found)) == len(found) == 20 * 6 * 6
    assert moved_back > 50
    assert [batch.to_pylist() for batch in LOAD.commits()] == [batch.to_pylist() for batch in LOAD.commits()]


def test_what_is_kept_is_noted_after_each_commit_and_the_first_ones_take_no_time() -> None:
    commits: list[int] = []

    class Counting(Silver):
        def __init__(self) -> None: ...

        def keep(self, readings: pa.RecordBatch) -> None:
            commits.append(readings.num_rows)

    figures = follow(Counting(), LOAD, lambda: None, lambda: Kept(0, len(commits)))
    assert [each["disk"] for each in figures["state"]] == [1, 2, 3, 4, 5, 6]
    assert figures["readings"] == sum(commits[WARM_UP:])


def test_growth_is_over_the_minute_when_all_windows_are_full() -> None:
    state = [{"memory": 0, "disk": disk} for disk in (1, 2, 3, 4, 10, 12, 11)]
    assert growth(Sample("ours", 1, 1, PeakMemory(), {"state": state})) == 1.2
