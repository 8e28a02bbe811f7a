"""A sink that writes the final windows of a data product to Parquet files, each window once.

A file has the windows that became final between two horizons: the first is in its name, the second in its metadata. So
the files themselves record the progress: the next file begins where the newest one ends, a file appears as a whole or
not at all, and no two files have the same name. The metadata also identifies the silver table, since another one may
have other rows in the same windows.
"""

import io
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from consumer.iceberg.append import open_table
from consumer.iceberg.marker import Marker
from consumer.layers.base import Commits, Layer
from consumer.layers.gold.touched import closed_between, rows_of
from consumer.scope import Scope
from lakeproof.addresses import encoded
from lakeproof.cluster import check_reachable
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.model import WINDOW_START, Product, SinkKind
from lakeproof.settings import Settings
from lakeproof.state.sink_positions import sink_lease
from lakeproof.storage import open_storage
from lakeproof.tables.names import gold_query, gold_table

_END = b"lakeproof.end"
_SILVER = b"lakeproof.silver"  # id of the silver table; missing in files of earlier versions
_DIGITS = 12
_LIST_AGAIN_SECONDS = 60
"""How long the files are not listed while the table has no new windows: after a year, there are thousands of them."""
_NAME = re.compile(r"([0-9a-f]{12})-(first|-?\d+)\.parquet")


@dataclass(frozen=True)
class _Work:
    """The windows between two horizons, and the file for them."""

    file: str
    windows: pa.Table
    horizon: int
    silver: str  # id of the silver table


class FileSink(Layer[_Work]):
    """Writes files for one product, whose windows are final."""

    event = "published"
    outlasts_outages = True

    def __init__(self, settings: Settings, product: Product) -> None:
        self._settings = settings
        self._product = product
        self._table = gold_table(product.name)
        self._root = f"{settings.sinks.files}/{product.name}"
        self._storage = open_storage(self._root, settings.s3)
        self._empty: tuple[int | None, int] | None = None
        self._complete: Marker | None = None  # marker of the table for which the files were last found complete
        self._listed_at = 0.0
        self.stream = product.stream
        self.name = f"{self._table}-to-files"
        self.lease_name = sink_lease(self.name)
        self.follows = gold_query(product.name)
        self.reads, self.writes = [self._table], [self._root]

    @classmethod
    def in_scope(cls, scope: Scope) -> "Iterable[FileSink]":
        """Return a sink for each product that declares one."""
        found = ((each, sink) for each in scope.products for sink in each.sinks)
        sinks = [cls(scope.settings, product) for product, sink in found if sink.kind is SinkKind.PARQUET]
        if sinks:
            check_reachable(scope.settings, {"LAKE_PUBLISHED": encoded(scope.settings.sinks.files)})
        return sinks

    def next(self, spark: SparkSession) -> _Work | None:
        """Find the windows that became final."""
        newest = open_table(spark, self._table, gold_query(self._product.name)).newest()
        if newest is None or not newest.marker.contents:
            return None
        # Files can be moved away at any time, and are then written again.
        if newest.marker == self._complete and monotonic() < self._listed_at + _LIST_AGAIN_SECONDS:
            return None
        self._complete, self._listed_at = None, monotonic()
        silver, horizon = newest.marker.checkpoint_id, int(newest.marker.contents)
        before = self._end(silver)
        if before is not None and horizon < before:
            raise LakeproofError(
                f"The files in {self._root} have windows that {self._table} has lost: it was restored from an older "
                "copy.",
                "Restore the newer copy of the catalog. Or move the files away: then all are written again.",
            )
        if horizon == before or self._empty == (before, horizon):
            self._complete = newest.marker
            return None
        windows = closed_between(self._product, before, horizon)
        end = int(newest.marker.end)
        found = rows_of(spark, self._settings, self._product, windows, end).sort_by(WINDOW_START)
        if not found.num_rows:
            self._empty = before, horizon
            return None
        file = f"{self._product.digest[:_DIGITS]}-{'first' if before is None else before}.parquet"
        return _Work(file, found, horizon, silver)

    def compute(self, spark: SparkSession, work: _Work) -> Commits:  # noqa: ARG002 - the work has the rows
        """Yield the write of the file, which appears as a whole or not at all."""

        def write() -> None:
            with suppress(FileExistsError):  # another consumer wrote it
                self._storage.write_new(f"{self._root}/{work.file}", _parquet(work))

        yield write
        return {"table": self._table, "file": work.file, "windows": work.windows.num_rows}

    def clear(self) -> int:
        """Remove all files, the newest first: a crash leaves those up to some horizon. Return their number."""
        named = {file.uri: _NAME.fullmatch(file.uri.rpartition("/")[2]) for file in self._storage.list()}
        starts = {uri: -1 if name[2] == "first" else int(name[2]) for uri, name in named.items() if name}
        for uri in sorted(starts, key=starts.__getitem__, reverse=True):
            self._storage.remove(uri)
        return len(starts)

    def _end(self, silver: str) -> int | None:
        """Return the horizon of the newest file; None without files. Check that it has windows of a silver table."""
        starts: dict[int | None, str] = {}
        for file in self._storage.list():
            if found := _NAME.fullmatch(file.uri.rpartition("/")[2]):
                if found[1] != self._product.digest[:_DIGITS]:
                    raise UsageError(
                        f"{file.uri} has windows of another definition of {self._product.name}.",
                        "Move the files of the folder away, or restore the file of the product.",
                    )
                starts[None if found[2] == "first" else int(found[2])] = file.uri
        if not starts:
            return None
        newest = starts[max(starts, key=lambda start: (start is not None, start or 0))]
        metadata = pq.read_schema(io.BytesIO(self._storage.read(newest))).metadata or {}
        if metadata.get(_SILVER, silver.encode()) != silver.encode():
            raise UsageError(
                f"{self._table} was filled again from a rebuilt silver.{self.stream}: its windows may differ from "
                f"those in the files in {self._root}.",
                "If an erasure is unfinished, run it again. Otherwise move the files away: then all are written again.",
            )
        return int(metadata[_END])


def _parquet(work: _Work) -> bytes:
    file = io.BytesIO()
    own = {_END: str(work.horizon).encode(), _SILVER: work.silver.encode()}
    marked = work.windows.replace_schema_metadata({**(work.windows.schema.metadata or {}), **own})
    pq.write_table(marked, file, compression="zstd")
    return file.getvalue()
