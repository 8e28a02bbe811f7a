"""The keys that silver has kept within the horizon, in RocksDB on the driver's disk: the strategy `state`.

The time of a lookup does not depend on the size of silver, while `merge` reads the keys of silver within the horizon.
Silver itself is the change log of the index: an index that is lost, damaged or from another point in time is filled
again from silver.

Keys are in buckets by the event time of their row. A bucket is as wide as the horizon, so keys that the horizon has
passed are removed with their bucket, and a lookup reads two or three buckets.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from consumer.layers.buckets import Buckets
from consumer.layers.silver.verdicts import COMPARED, COUNTS_AS, EVENT_TIME, IN_SILVER, KEY, Micros
from lakeproof.tables.names import CONTENT_HASH, MICRO_BATCH_ID, POSITION, SOURCE

_VALUE = struct.Struct(">qq16s")
_NO_TIME = -(1 << 63)


class IndexPosition(NamedTuple):
    """The silver table that an index follows, and the commit that it has reached."""

    silver: str  # unique id of the table
    contract: str  # digest of the contract under which the keys were written
    end: int  # the micro-batch of bronze before which it has all keys
    snapshot_id: int  # the commit of silver that ended there

    def is_same_silver(self, other: "IndexPosition") -> bool:
        """Return whether the other position may follow this one."""
        return (self.silver, self.contract) == (other.silver, other.contract) and self.end <= other.end


class KeyIndex(Buckets):
    """An index of the keys of one stream."""

    def __init__(self, folder: Path, horizon: Micros | None) -> None:
        super().__init__(folder, "LAKE_SILVER_INDEX", horizon)

    @property
    def progress(self) -> IndexPosition | None:
        """Position of the index; None if it is empty."""
        recorded = self.recorded
        return IndexPosition(**recorded) if recorded else None

    def find(self, keys: Any, oldest: Micros | None) -> pa.Table:
        """Return the rows with some keys whose event time is not before `oldest`, as a table of :data:`COMPARED`."""
        left: list[Any] = keys.unique().to_pylist()
        found: list[tuple[bytes, bytes]] = []
        for bucket in self.names:
            pairs = list(zip(left, self.values(bucket, left), strict=True))
            found += [(key, value) for key, value in pairs if value and _is_live(value, oldest)]
            left = [key for key, value in pairs if not (value and _is_live(value, oldest))]
        rows = [_VALUE.unpack_from(value) for _, value in found]
        columns: dict[str, list[Any]] = {
            KEY: [key for key, _ in found],
            MICRO_BATCH_ID: [IN_SILVER] * len(found),
            SOURCE: [value[_VALUE.size :].decode() for _, value in found],
            POSITION: [position for _, position, _ in rows],
            EVENT_TIME: [None if time == _NO_TIME else time for time, _, _ in rows],
            COUNTS_AS: [None] * len(found),
            CONTENT_HASH: [content for _, _, content in rows],
        }
        return pa.Table.from_pydict(columns, schema=COMPARED)

    def add(self, rows: pa.Table, progress: IndexPosition, watermark: Micros | None) -> None:
        """Add rows that silver has kept, and remove keys that the horizon has passed."""
        oldest = None if watermark is None or self.width is None else watermark - self.width
        self.put(_values(rows), progress._asdict(), oldest)


def _values(rows: pa.Table) -> Iterator[tuple[bytes, Micros | None, bytes]]:
    columns: list[Any] = [rows[name].to_pylist() for name in (KEY, EVENT_TIME, SOURCE, POSITION, CONTENT_HASH)]
    for key, time, source, position, content in zip(*columns, strict=True):
        yield key, time, _VALUE.pack(_NO_TIME if time is None else time, position, content) + source.encode()


def _is_live(value: bytes, oldest: Micros | None) -> bool:
    time: int = _VALUE.unpack_from(value)[0]
    return oldest is None or time >= oldest or time == _NO_TIME
