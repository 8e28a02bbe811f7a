"""Changes of Iceberg tables by other tools that know nothing of lakeproof: maintenance and repairs.

The catalog ``lake`` of a Spark session is the lake's; table names are relative to it: ``bronze.events``.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakeproof.catalog import CATALOG, open_catalog
from lakeproof.settings import Settings

TableOperation = Callable[[SparkSession, str], object]
# Iceberg's own properties, which SHOW TBLPROPERTIES lists with those that were set.
_NOT_SET = {"current-snapshot-id", "format", "format-version", "location", "owner", "provider", "sort-order"}


def expire_all_but_last(spark: SparkSession, table: str) -> None:
    """Expire all snapshots but the current one, and delete files that only they need, with Spark's procedure."""
    _call(spark, "expire_snapshots", table, f"older_than => TIMESTAMP '{_tomorrow():%F %T}', retain_last => 1")


def expire_all_but_last_by_action(spark: SparkSession, table: str) -> None:
    """Expire all snapshots but the current one with the API for programs."""
    in_a_day = int(_tomorrow().timestamp() * 1000)
    _actions(spark).expireSnapshots(_load(spark, table)).expireOlderThan(in_a_day).retainLast(1).execute()


def expire_all_but_last_by_pyiceberg(settings: Settings, table: str) -> None:
    """Expire all snapshots but the current one with PyIceberg, which deletes no files."""
    open_catalog(settings).load_table(table).maintenance.expire_snapshots().older_than(_tomorrow()).commit()


def rewrite_data_files(spark: SparkSession, table: str) -> None:
    """Compact: rewrite all rows into as few files as possible."""
    _call(spark, "rewrite_data_files", table, "options => map('rewrite-all', 'true')")


def rewrite_manifests(spark: SparkSession, table: str) -> None:
    """Rewrite the manifests."""
    _call(spark, "rewrite_manifests", table, "use_caching => false")


def remove_orphan_files(spark: SparkSession, table: str) -> list[str]:
    """Delete all files in the table's folder that no snapshot needs, regardless of age; return them.

    The procedure refuses to delete files of the last 24 hours; the API does not.
    """
    in_a_day = int(_tomorrow().timestamp() * 1000)
    action = _actions(spark).deleteOrphanFiles(_load(spark, table)).usePrefixListing(True).olderThan(in_a_day)
    return list(action.execute().orphanFileLocations())


def maintain(spark: SparkSession, table: str) -> None:
    """Maintain a table like a nightly job: compact, rewrite manifests, expire, remove orphans."""
    rewrite_data_files(spark, table)
    rewrite_manifests(spark, table)
    expire_all_but_last(spark, table)
    remove_orphan_files(spark, table)


def delete_by_equality(settings: Settings, spark: SparkSession, table: str, column: str, value: str, day: str) -> None:
    """Delete a day's rows with a value by an equality delete, as Flink does: a file with only the value."""
    loaded, jvm = _load(spark, table), spark._jvm
    assert jvm
    field_id = loaded.schema().findField(column).fieldId()
    path = settings.home / f"equality-delete-{field_id}.parquet"
    field = pa.field(column, pa.string(), metadata={"PARQUET:field_id": str(field_id)})
    pq.write_table(pa.table([pa.array([value])], schema=pa.schema([field])), path)
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)  # type: ignore[union-attr]
    ids[0] = field_id
    spec = loaded.spec()
    builder = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids)  # type: ignore[misc]
    builder = builder.withPath(path.as_uri()).withFormat("parquet").withFileSizeInBytes(path.stat().st_size)
    file = builder.withRecordCount(1).withPartitionPath(f"{spec.fields().get(0).name()}={day}").build()
    loaded.newRowDelta().addDeletes(file).commit()


def roll_back(spark: SparkSession, table: str, snapshots: int = 1) -> None:
    """Roll back the table to the state before the last `snapshots` commits."""
    history = spark.sql(f"SELECT snapshot_id FROM {_name(table)}.history ORDER BY made_current_at").collect()
    _call(spark, "rollback_to_snapshot", table, f"snapshot_id => {history[-1 - snapshots].snapshot_id}")


def replace_by_itself(spark: SparkSession, table: str) -> None:
    """Run ``CREATE OR REPLACE TABLE … AS SELECT``: same columns and rows, new history, no partitions."""
    spark.sql(f"CREATE OR REPLACE TABLE {_name(table)} USING iceberg AS SELECT * FROM {_name(table)}")


def replace_by_nothing(spark: SparkSession, table: str) -> None:
    """Run ``CREATE OR REPLACE TABLE``: same columns, no rows."""
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in spark.table(_name(table)).schema)
    spark.sql(f"CREATE OR REPLACE TABLE {_name(table)} ({columns}) USING iceberg")


def drop_properties(spark: SparkSession, table: str) -> set[str]:
    """Drop all properties that were set; return their names."""
    found = {row.key for row in spark.sql(f"SHOW TBLPROPERTIES {_name(table)}").collect()} - _NOT_SET
    if found:
        listed = ", ".join(f"'{name}'" for name in sorted(found))
        spark.sql(f"ALTER TABLE {_name(table)} UNSET TBLPROPERTIES ({listed})")
    return found


def _call(spark: SparkSession, procedure: str, table: str, arguments: str) -> None:
    spark.sql(f"CALL {CATALOG}.system.{procedure}(table => '{table}', {arguments})").collect()


def _actions(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)


def _load(spark: SparkSession, table: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, _name(table))


def _name(table: str) -> str:
    return f"{CATALOG}.{table}"


def _tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)
