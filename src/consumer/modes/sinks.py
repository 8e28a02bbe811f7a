"""The sinks of the modes: folders of Parquet files, and topics."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from consumer.modes.plan import Micros
from consumer.sources.envelope import HEADERS
from lakeproof.errors import LakeproofError
from lakeproof.kafka.sending import Headers, Outgoing
from lakeproof.settings import S3Settings
from lakeproof.storage import Storage, open_storage

_TIME = pa.timestamp("us", "UTC")
_OF_MESSAGE: dict[str, pa.DataType] = {
    "_key": pa.binary(),
    "_headers": HEADERS,
    "_source": pa.string(),
    "_landed_at": _TIME,
}
_OF_EVENT: dict[str, pa.DataType] = {"event_id": pa.string(), "event_time": _TIME, "value": pa.string()}
_OF_REASON: dict[str, pa.DataType] = {"reason": pa.string(), "detail": pa.string(), "value": pa.binary()}
KEPT = pa.schema(_OF_EVENT | _OF_MESSAGE)
"""An event that was kept, with the value of its message as it was."""
ASIDE = pa.schema(_OF_REASON | _OF_MESSAGE)
"""A bad or late message. Its value is any bytes, or null."""

REASON_HEADER, DETAIL_HEADER = "lakeproof-reason", "lakeproof-detail"
ID_HEADER = "lakeproof-id"
"""Header with the id of a message: one that is sent again has the same, so that a reader can drop it."""

_MARKER = "_lakeproof.json"
# Names sort as their micro-batches do.
_DIGITS = 10


class Folder:
    """A folder of Parquet files. Each belongs to a micro-batch, which replaces it when it is repeated.

    A file appears whole: storage writes it under another name first, or by one put.
    """

    def __init__(self, root: str, s3: S3Settings) -> None:
        self.root = root
        self._storage: Storage = open_storage(root, s3)

    def check_unclaimed(self) -> None:
        """Make sure that its files do not come from any checkpoint."""
        if self._storage.stat(f"{self.root}/{_MARKER}"):
            raise self._claimed()

    def claim(self, checkpoint: str, next_number: int) -> None:
        """Make sure that its files come from a checkpoint, and from no micro-batch from `next_number` on."""
        marker = json.dumps({"checkpoint": checkpoint}).encode()
        try:
            self._storage.write_new(f"{self.root}/{_MARKER}", marker)
        except FileExistsError:
            if self._storage.read(f"{self.root}/{_MARKER}") != marker:
                raise self._claimed() from None
        names = (file.uri.rpartition("/")[2] for file in self._storage.list())
        later = [number for name in names if (number := _number(name)) >= next_number]
        if later:
            raise LakeproofError(
                f"The folder {self.root} has files of micro-batch {max(later)}, but the checkpoint is at micro-batch "
                f"{next_number - 1}: it was restored from an older copy.",
                f"Restore the newer checkpoint. Or remove the files of micro-batches from {min(later)} on, whose "
                "messages are read again.",
            )

    def write(self, kind: str, number: int, piece: str, rows: pa.Table) -> None:
        """Write the file of a piece of a micro-batch, unless the piece has no rows."""
        if rows.num_rows:
            name = f"{kind}-{number:0{_DIGITS}}-{piece}.parquet"
            self._storage.replace(f"{self.root}/{name}", as_parquet(rows))

    def _claimed(self) -> LakeproofError:
        return LakeproofError(
            f"The folder {self.root} has the files of another checkpoint.",
            "Use a new folder, or restore that checkpoint.",
        )


def as_parquet(rows: pa.Table) -> bytes:
    """A Parquet file of rows."""
    output = pa.BufferOutputStream()
    pq.write_table(rows, output, compression="zstd")
    return output.getvalue().to_pybytes()


def _number(name: str) -> int:
    parts = name.split("-")
    if len(parts) == 3 and parts[2].endswith(".parquet") and parts[1].isdecimal():
        return int(parts[1])
    return -1  # not one of ours


def kept_messages(rows: pa.Table) -> Iterator[Outgoing]:
    """Make messages of rows of :data:`KEPT`: key and value, and the headers of the message."""
    columns: list[Any] = [rows[name].cast(pa.binary()).to_pylist() for name in ("event_id", "value", "_source")]
    for key, value, source, headers in zip(*columns, _headers_of(rows), strict=True):
        yield Outgoing(value, key, [*headers, (ID_HEADER, source)])


def aside_messages(rows: pa.Table) -> Iterator[Outgoing]:
    """Make messages of rows of :data:`ASIDE`: as they were, with headers that say why."""
    names = ("_key", "value", "reason", "detail", "_source")
    columns: list[Any] = [rows[name].cast(pa.binary()).to_pylist() for name in names]
    for key, value, reason, detail, source, headers in zip(*columns, _headers_of(rows), strict=True):
        own: Headers = [(REASON_HEADER, reason), (DETAIL_HEADER, detail), (ID_HEADER, source)]
        yield Outgoing(value, key, [*headers, *own])


def window_messages(windows: pa.Table, size: Micros, prefix: str) -> Iterator[Outgoing]:
    """Make messages of windows, a table of :data:`consumer.modes.windows.OPEN`, keyed by user and start."""
    # Their ids are the prefix and the number of the row: a micro-batch that is repeated has the same order.
    starts, ends = _texts(windows["window_start"]), _texts(pc.add(windows["window_start"], size))
    names = ("user_id", "event_count", "amount_sum", "amount_min", "amount_max")
    columns: list[Any] = [windows[name].to_pylist() for name in names]
    for index, (start, end, user, count, *amounts) in enumerate(zip(starts, ends, *columns, strict=True)):
        key = {"userId": user, "windowStart": start}
        # Amounts are written digit by digit: a float has fewer.
        total, least, most = (f"{amount.normalize():f}" for amount in amounts)
        value = json.dumps({**key, "windowEnd": end, "eventCount": count}, ensure_ascii=False)
        value = f'{value[:-1]}, "amountSum": {total}, "amountMin": {least}, "amountMax": {most}}}'
        own: Headers = [(ID_HEADER, f"{prefix}/{index}".encode())]
        yield Outgoing(value.encode(), json.dumps(key, ensure_ascii=False).encode(), own)


def _headers_of(rows: pa.Table) -> list[Headers]:
    """The headers of rows, as Kafka's client takes them."""
    return [[(each["key"], each["value"]) for each in found or ()] for found in rows["_headers"].to_pylist()]


def _texts(times: Any) -> list[str]:
    """Times in microseconds since 1970 as ISO 8601 texts."""
    found = np.datetime_as_string(np.asarray(times).astype("datetime64[us]"), unit="us")
    return [str(text).removesuffix(".000000") + "Z" for text in found]
