"""A sink that writes the final windows of a data product to Parquet files, each window once.

A file has the windows that became final between two horizons. Its name says from which one on, and its metadata up to
which. So the files themselves are the progress: the next one begins where the newest one ends, a file appears whole or
not at all, and only one can have a name.
"""

import io
import re
from time import monotonic

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from pyspark.sql import SparkSession

from consumer.iceberg.append import open_table
from consumer.layers.sinks.changes import closed_since
from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.model import WINDOW_START, Product
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease
from lakeproof.storage import open_storage
from lakeproof.tables.names import gold_query, gold_table

log = structlog.get_logger()

_END = b"lakeproof.end"
_DIGITS = 12
_NAME = re.compile(r"([0-9a-f]{12})-(first|-?\d+)\.parquet")


class FileSink:
    """Writes files for one product.

    Parameters
    ----------
    settings
        Where everything is.
    product
        The product; its windows are final.
    lease
        The lease of the sink.
    """

    def __init__(self, settings: Settings, product: Product, lease: Lease) -> None:
        self._product = product
        self._lease = lease
        self._table = gold_table(product.name)
        self._root = f"{settings.sinks.files}/{product.name}"
        self._storage = open_storage(self._root, settings.s3)
        self._empty: tuple[int | None, int] | None = None
        self.count = 0

    def take(self, spark: SparkSession) -> bool:
        """Write the windows that became final; return whether there were any.

        Raises
        ------
        LakeproofError
            The files have windows that the table does not have, or those of another product.
        """
        began = monotonic()
        newest = open_table(spark, self._table, gold_query(self._product.name)).newest()
        if newest is None or not newest.marker.contents:
            return False
        before, horizon = self._end(), int(newest.marker.contents)
        if before is not None and horizon < before:
            raise LakeproofError(
                f"The files in {self._root} have windows that {self._table} has no longer: it was restored from an "
                "older copy.",
                "Restore the newer copy of the catalog. Or move the files away: then all are written again.",
            )
        if horizon == before or self._empty == (before, horizon):
            return False
        rows = closed_since(spark.table(f"{CATALOG}.{self._table}"), before, horizon)
        found: pa.Table = rows.orderBy(WINDOW_START).toArrow()
        if not found.num_rows:
            self._empty = before, horizon
            return False
        self._lease.check()
        name = f"{self._product.digest[:_DIGITS]}-{'first' if before is None else before}.parquet"
        try:
            self._storage.write_new(f"{self._root}/{name}", _parquet(found, horizon))
        except FileExistsError:
            return True  # another consumer wrote it: look again
        self.count += 1
        seconds = round(monotonic() - began, 3)
        log.info("published", table=self._table, file=name, windows=found.num_rows, seconds=seconds)
        return True

    def _end(self) -> int | None:
        """The horizon up to which there are files; None if there are none."""
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
        return int(metadata[_END])


def _parquet(rows: pa.Table, end: int) -> bytes:
    file = io.BytesIO()
    marked = rows.replace_schema_metadata({**(rows.schema.metadata or {}), _END: str(end).encode()})
    pq.write_table(marked, file, compression="zstd")
    return file.getvalue()
