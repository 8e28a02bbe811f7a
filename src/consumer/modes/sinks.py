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
"""A kept event, with the unchanged value of its message."""
ASIDE = pa.schema(_OF_REASON | _OF_MESSAGE)
"""A bad or late message. Its value can be any bytes, or null."""

REASON_HEADER, DETAIL_HEADER = "lakeproof-reason", "lakeproof-detail"
ID_HEADER = "lakeproof-id"
"""Header with the id of a message: a message that is sent again has the same id, so that a reader can drop it."""

_MARKER = "_lakeproof.json"
# Padding, so that names sort like their micro-batches.
_DIGITS = 10


class Folder:
    """A folder of Parquet files. Each file belongs to a micro-batch, which replaces it when it is repeated.

    A file appears as a whole: storage first writes it under another name, or with a single put.
    """

    def __init__(self, root: str, s3: S3Settings) -> None:
        self.root = root
        self._storage: Storage = open_storage(root, s3)

    def check_unclaimed(self) -> None:
        """Check that the files do not belong to any checkpoint."""
        if self._storage.stat(f"{self.root}/{_MARKER}"):
            raise self._claimed()

    def claim(self, checkpoint: str, next_number: int) -> None:
        """Claim a new folder; check that files belong to the checkpoint and to micro-batches before `next_number`."""
        marker = json.dumps({"checkpoint": checkpoint}).encode()
        try:
            self._storage.write_new(f"{self.root}/{_MARKER}", marker)
        except FileExistsError:
            if self._storage.read(f"{self.root}/{_MARKER}") != marker:
                raise self._claimed() from None
        # Not of folders below, which may be of other pipelines.
        later = [number for name in self._storage.names(self.root) if (number := _number(name)) >= next_number]
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
    """Return rows as a Parquet file."""
    output = pa.BufferOutputStream()
    pq.write_table(rows, output, compression="zstd")
    return output.getvalue().to_pybytes()


def _number(name: str) -> int:
    parts = name.split("-")
    if len(parts) == 3 and parts[2].endswith(".parquet") and parts[1].isdecimal():
        return int(parts[1])
    return -1  # not one of ours


def kept_messages(rows: pa.Table) -> Iterator[Outgoing]:
    """Convert rows of :data:`KEPT` to messages: key and value, and the headers of the message."""
    columns: list[Any] = [rows[name].cast(pa.binary()).to_pylist() for name in ("event_id", "value", "_source")]
    for key, value, source, headers in zip(*columns, _headers_of(rows), strict=True):
        yield Outgoing(value, key, [*headers, (ID_HEADER, source)])


def aside_messages(rows: pa.Table) -> Iterator[Outgoing]:
    """Convert rows of :data:`ASIDE` to messages: unchanged, with headers for the reason."""
    names = ("_key", "value", "reason", "detail", "_source")
    columns: list[Any] = [rows[name].cast(pa.binary()).to_pylist() for name in names]
    for key, value, reason, detail, source, headers in zip(*columns, _headers_of(rows), strict=True):
        own: Headers = [(REASON_HEADER, reason), (DETAIL_HEADER, detail), (ID_HEADER, source)]
        yield Outgoing(value, key, [*headers, *own])


def window_messages(windows: pa.Table, size: Micros, prefix: str) -> Iterator[Outgoing]:
    """Convert windows, a table of :data:`consumer.modes.windows.OPEN`, to messages, keyed by user and start."""
    # Their ids are the prefix and the row number: a repeated micro-batch has the same order.
    starts, ends = _texts(windows["window_start"]), _texts(pc.add(windows["window_start"], size))
    names = ("user_id", "event_count", "amount_sum", "amount_min", "amount_max")
    columns: list[Any] = [windows[name].to_pylist() for name in names]
    for index, (start, end, user, count, *amounts) in enumerate(zip(starts, ends, *columns, strict=True)):
        key = {"userId": user, "windowStart": start}
        # Amounts are written with all digits: a float has fewer.
        total, least, most = (f"{amount.normalize():f}" for amount in amounts)
        value = json.dumps({**key, "windowEnd": end, "eventCount": count}, ensure_ascii=False)
        value = f'{value[:-1]}, "amountSum": {total}, "amountMin": {least}, "amountMax": {most}}}'
        own: Headers = [(ID_HEADER, f"{prefix}/{index}".encode())]
        yield Outgoing(value.encode(), json.dumps(key, ensure_ascii=False).encode(), own)


def _headers_of(rows: pa.Table) -> list[Headers]:
    """Return the headers of rows in the form of Kafka's client."""
    return [[(each["key"], each["value"]) for each in found or ()] for found in rows["_headers"].to_pylist()]


def _texts(times: Any) -> list[str]:
    """Return times in microseconds since 1970 as ISO 8601 texts."""
    found = np.datetime_as_string(np.asarray(times).astype("datetime64[us]"), unit="us")
    return [str(text).removesuffix(".000000") + "Z" for text in found]
