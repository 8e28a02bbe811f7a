"""The events to keep: the first one with each id. The ids are in files of the checkpoint, and in an index."""

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumer.layers.buckets import Buckets
from consumer.modes.checkpoint import Checkpoint, Commit
from consumer.modes.plan import Micros

# A commit lists all valid files. Of `_MANY` small ones, with fewer than `_SMALL_ROWS` ids each, some are merged: the
# smallest. The driver holds their ids, so these are at most `_MERGED_ROWS`.
_MANY = 64
_SMALL_ROWS = 1_000_000
_MERGED_ROWS = 5_000_000
_ROWS_AT_ONCE = 100_000  # of a file, as objects of Python
_COLUMNS: dict[str, pa.DataType] = {"id": pa.binary(), "time": pa.int64()}
_SCHEMA = pa.schema(_COLUMNS)
_TIME = struct.Struct(">q")


class Progress(NamedTuple):
    """The commit of a checkpoint that the ids belong to."""

    number: int
    id: str


class Keys(Buckets):
    """Rebuildable index of the ids that can still meet a duplicate, with the times of their events."""

    def __init__(self, folder: Path, watermark: Micros) -> None:
        super().__init__(folder, "LAKE_HOME", 2 * watermark)

    @property
    def progress(self) -> Progress | None:
        """The commit that the keys belong to; None before the first one."""
        recorded = self.recorded
        return Progress(*recorded) if recorded else None

    def known(self, keys: Sequence[bytes], oldest: Micros | None) -> list[bool]:
        """Return, for each id, whether an event with it and a time not before `oldest` was kept."""
        found = [False] * len(keys)
        for bucket in self.names:
            for index, value in enumerate(self.values(bucket, keys)):
                if value is not None and (oldest is None or _TIME.unpack(value)[0] >= oldest):
                    found[index] = True
        return found

    def add(self, rows: Iterable[tuple[bytes, Micros]], progress: Progress, oldest: Micros | None) -> None:
        """Add ids, and remove ids of events from before `oldest`."""
        live = ((key, time, _TIME.pack(time)) for key, time in rows if oldest is None or time >= oldest)
        self.put(live, progress, oldest)


def first_ones(ids: Any) -> Any:
    """Return the index of the first occurrence of each id, ascending."""
    table = pa.table({"id": ids, "index": np.arange(len(ids))})
    return np.sort(np.asarray(table.group_by("id").aggregate([("index", "min")])["index_min"]))


def decide(ids: Any, keys: Keys, oldest: Micros | None) -> Any:
    """Return booleans for the events to keep: those whose id has no earlier event of a time not before `oldest`."""
    kept = np.zeros(len(ids), bool)
    firsts = first_ones(ids)
    texts: list[bytes] = ids.take(pa.array(firsts)).cast(pa.binary()).to_pylist()
    known = np.array(keys.known(texts, oldest), bool)
    kept[firsts[~known]] = True
    return kept


class KeyFile(NamedTuple):
    """A file of ids, with its properties in its name."""

    name: str
    rows: int
    newest: Micros  # the greatest time of its events

    @classmethod
    def of(cls, name: str) -> "KeyFile":
        """Parse a name."""
        _, _, rows, newest = name.removesuffix(".parquet").split("_")
        return cls(name, int(rows), int(newest))


def write_keys(
    checkpoint: Checkpoint, number: int, before: Sequence[str], rows: pa.Table, oldest: Micros | None
) -> tuple[str, ...]:
    """Write the ids of a micro-batch; return the files that are valid after it.

    Files whose events cannot have duplicates anymore are dropped. The smallest of many small files are merged.
    """
    files = [file for file in map(KeyFile.of, before) if oldest is None or file.newest >= oldest]
    if rows.num_rows:
        files.append(_write(checkpoint, number, "one", rows))
    small = sorted((file for file in files if file.rows < _SMALL_ROWS), key=lambda file: file.rows)
    if len(small) >= _MANY:
        rows_up_to = accumulate(file.rows for file in small)
        small = [file for file, total in zip(small, rows_up_to, strict=True) if total <= _MERGED_ROWS]
        merged = pa.concat_tables([read_keys(checkpoint, file.name) for file in small])
        if oldest is not None:
            merged = merged.filter(pc.greater_equal(merged["time"], oldest))
        files = [file for file in files if file not in small]
        if merged.num_rows:
            files.append(_write(checkpoint, number, "many", merged))
    return tuple(file.name for file in files)


def read_keys(checkpoint: Checkpoint, name: str) -> pa.Table:
    """Read a file of ids."""
    return checkpoint.read_table(name, _SCHEMA)


def follow(
    keys: Keys, checkpoint: Checkpoint, commit: Commit | None, known: Sequence[Commit], oldest: Micros | None
) -> None:
    """Bring `keys` to the ids of a commit; if they belong to one of the `known` commits, add only missing ids."""
    has = keys.progress
    if commit and has and has.id == commit.id:
        return
    base = next((each for each in known if has and each.id == has.id), None)
    if base is None:
        keys.clear()
    if commit is None:
        return
    for name in commit.keys:
        if base is None or name not in base.keys:
            for rows in read_keys(checkpoint, name).to_batches(_ROWS_AT_ONCE):
                pairs: Any = zip(rows["id"].to_pylist(), rows["time"].to_pylist(), strict=True)
                keys.add(pairs, Progress(-1, ""), oldest)
    keys.add((), Progress(commit.number, commit.id), oldest)


def _write(checkpoint: Checkpoint, number: int, kind: str, rows: pa.Table) -> KeyFile:
    newest = pc.max(rows["time"]).as_py()
    name = f"keys-{kind}_{number}_{rows.num_rows}_{newest}.parquet"
    checkpoint.write_table(name, rows.cast(_SCHEMA))
    return KeyFile(name, rows.num_rows, newest)
