"""A table for tests of upsert commits."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable, append_once, open_table
from consumer.iceberg.data_files import DataFile, DataFileWriter
from consumer.iceberg.marker import Marker
from consumer.iceberg.upsert import OldRows, upsert_once
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage

QUERY = "gold-t"
HOUR = 3_600_000_000
Find = Callable[[int], OldRows]


def marker(number: int) -> Marker:
    return Marker("", number, "digest", str(number), str(number + 1))


class Upserts:
    """Table of ids with a value and an hour each; an upsert replaces the rows of its ids."""

    def __init__(self, spark: SparkSession, **properties: str) -> None:
        self.spark = spark
        self.name = f"gold.t{uuid.uuid4().hex}"
        spark.sql("create namespace if not exists lake.gold")
        options = ", ".join(f"'{name}' = '{value}'" for name, value in ({"format-version": "3"} | properties).items())
        spark.sql(
            f"create table lake.{self.name} (id long, value string, at timestamp) using iceberg "
            f"partitioned by (days(at)) tblproperties ({options})"
        )

    def open(self) -> OpenTable:
        return open_table(self.spark, self.name, QUERY)

    def files(self, value: str, *ids: int) -> list[DataFile]:
        newest = self.open().newest()
        target = self.open().target(Marker("", 0, "", newest.marker.end if newest else "0", "x"))
        assert target
        writer = DataFileWriter(target, open_storage(target.folder, S3Settings()))
        at = pa.array([number * HOUR for number in ids], pa.timestamp("us", "UTC"))
        writer.write(pa.RecordBatch.from_pydict({"id": pa.array(ids), "value": [value] * len(ids), "at": at}))
        return writer.close()

    def old(self, *ids: int) -> Find:
        def find(snapshot_id: int) -> OldRows:
            table = self.spark.read.option("versionAsOf", snapshot_id).table(f"lake.{self.name}")
            found: dict[str, list[int]] = {}
            for row in table.where(table.id.isin(*ids)).select("_file", "_pos").collect():
                found.setdefault(row["_file"], []).append(row["_pos"])
            return OldRows(found, "at", [(number * HOUR, number * HOUR + 1) for number in ids])

        return find

    def append(self, number: int, value: str, *ids: int) -> bool:
        return append_once(self.open(), marker(number), self.files(value, *ids))

    def upsert(self, number: int, value: str, *ids: int) -> bool:
        return upsert_once(self.open(), marker(number), self.files(value, *ids), self.old(*ids))

    def rows(self) -> dict[int, str]:
        found = [(row.id, row.value) for row in self.spark.table(f"lake.{self.name}").collect()]
        assert len(dict(found)) == len(found)
        return dict(found)

    def kinds(self) -> dict[str, int]:
        """Return the number of files of the table by format."""
        found = self.spark.table(f"lake.{self.name}.files").groupBy("file_format").count().collect()
        return {row["file_format"]: row["count"] for row in found}

    def metadata_files(self) -> set[str]:
        """Return the manifests and manifest lists in the table's folder."""
        folder = Path(self.open().loaded.location().removeprefix("file:")) / "metadata"
        return {path.name for path in folder.glob("*.avro")}

    def known_metadata_files(self) -> set[str]:
        """Return the manifests and manifest lists that the table's snapshots refer to."""
        found = self.spark.table(f"lake.{self.name}.all_manifests").select("path").distinct().collect()
        lists = self.spark.table(f"lake.{self.name}.snapshots").select("manifest_list").collect()
        return {Path(row[0]).name for row in [*found, *lists]}
