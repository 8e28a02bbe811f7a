"""The usual way to sample windows: a function that runs in Spark's Python workers.

PySpark 4.1.3 with PyArrow 26 fails in every applyInPandasWithState: it reads offsets and lengths from a column that is
padded with nulls, which turns them into floats, and PyArrow no longer slices by floats. So nulls are dropped here.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.serializers import ApplyInPandasWithStateSerializer
from pyspark.sql.streaming.state import GroupState

warnings.filterwarnings("ignore", "The behavior of DataFrame concatenation", FutureWarning)

STATE = "readings array<struct<at: bigint, device_id: string, sensor_freq: double>>"
OUTPUT = "window_start bigint, device_id string, event_time bigint, sensor_freq double, roles array<string>"


def sample(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Collect the readings of a window; yield its samples when the watermark has passed its end."""
    start, end = key
    if not state.hasTimedOut:
        readings = list(state.get[0]) if state.exists else []
        for frame in frames:
            readings.extend(zip(frame["at"].tolist(), frame["device_id"], frame["sensor_freq"].tolist(), strict=True))
        state.update((readings,))
        state.setTimeoutTimestamp(int(end) // 1000)
        return
    (readings,) = state.get
    state.remove()
    ordered = sorted(tuple(each) for each in readings)
    normal = [each for each in ordered if each[2] >= 0]
    roles: dict[tuple[Any, ...], list[str]] = {each: ["anomaly"] for each in ordered if each[2] < 0}
    for role, index in (("first", 0), ("middle", len(normal) // 2), ("last", -1)) if normal else ():
        roles.setdefault(normal[index], []).append(role)
    yield pd.DataFrame(
        [(int(start), device, at, value, of_it) for (at, device, value), of_it in roles.items()],
        columns=["window_start", "device_id", "event_time", "sensor_freq", "roles"],
    )


_arrow_to_pandas = ApplyInPandasWithStateSerializer.arrow_to_pandas


def _without_nulls(serializer: Any, column: Any, index: int) -> Any:
    return _arrow_to_pandas(serializer, column.drop_null() if pa.types.is_struct(column.type) else column, index)


ApplyInPandasWithStateSerializer.arrow_to_pandas = _without_nulls
