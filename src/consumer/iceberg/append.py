"""Appends that happen exactly once, no matter how many writers try a micro-batch, and how often.

The data files, the snapshot's marker and the table's newest marker form one new state of the table. The catalog swaps
it, once, for the state whose marker was read. After a refusal the table is read again: its newest state shows whether
the commit landed and only the catalog's answer was lost, whether another writer committed the micro-batch, or whether
the commit must be prepared again.

``Transaction.commitTransaction`` is not used. It repeats a refused commit by itself: if the first try had landed and
its answer was lost, it mistakes our own snapshot for another writer's and deletes the manifests of that snapshot.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from consumer.iceberg.data_files import DataFile, Target
from consumer.iceberg.jvm import MISSING, elements, exception_class, is_invalid, java_class
from consumer.iceberg.marker import Committed, Marker, check_history, has_done, property_of
from consumer.iceberg.memory import MEMORY
from consumer.iceberg.newest import newest_marker, outdated, spark_state
from lakeproof.catalog import CATALOG
from lakeproof.clocks import check_time, now_ms
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.references import Metadata
from lakeproof.tables.evolution import renamed_columns
from lakeproof.tables.names import RENAMED

Change = Callable[[Any], Any]
"""Begins an update within an Iceberg transaction, with the files to add and remove."""

_PARQUET = "org.apache.iceberg.shaded.org.apache.parquet"
ATTEMPTS = 10
"""How often a commit is prepared if other writers were faster."""
_CONVERSATIONS = 4  # threads that describe data files to the JVM
# Longest wait in seconds before a refused commit is prepared again; it is random, so that writers get out of step.
_LONGEST_WAIT = 1.0
# The only exception that means that a commit did not land. The table is checked after any exception.
_REFUSED = "org.apache.iceberg.exceptions.CommitFailedException"


@dataclass(frozen=True)
class OpenTable:
    """A table as it was when `query` opened it; commits to it are made against its newest state."""

    name: str
    query: str
    loaded: Any
    spark: SparkSession

    def newest(self) -> Committed | None:
        """Return the newest marker of the query in the table."""
        return newest_marker(spark_state(self.loaded), self.query, self.name)

    def check_has(self, committed: Committed) -> None:
        """Check that the table still has the commit of a marker."""
        state = spark_state(self.loaded)
        check_history(committed, state.current, state.find, self.name)

    def table_id(self) -> str:
        """Return the unique id of the table; another table of the same name has another id."""
        return str(self.loaded.uuid().toString())

    def descends_from(self, snapshot_id: int) -> bool:
        """Return whether a snapshot is the current one or an ancestor of it. An expired snapshot is unknown."""
        ancestry = java_class(self.spark, "org.apache.iceberg.util.SnapshotUtil")
        return bool(ancestry.isAncestorOf(self.loaded, snapshot_id))

    def property(self, name: str) -> str | None:
        """Return a property of the table."""
        value: str | None = self.loaded.properties().get(name)
        return value

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the table."""
        with clock_errors(self):
            self.loaded.updateProperties().set(name, value).commit()

    def metadata(self) -> Metadata:
        """Return all metadata of the table at once: each part of a snapshot would be a call to the JVM."""
        parser = java_class(self.spark, "org.apache.iceberg.TableMetadataParser")
        found: Metadata = json.loads(parser.toJson(self.loaded.operations().current()))
        return found

    def renamed(self) -> dict[str, str]:
        """Return the renamed columns by their former names."""
        # Not all properties: each property would be several calls to the JVM.
        return renamed_columns({RENAMED: self.property(RENAMED) or ""})

    def schema(self) -> Schema:
        """Return the schema of the table."""
        parser = java_class(self.spark, "org.apache.iceberg.SchemaParser")
        return Schema.model_validate_json(parser.toJson(self.loaded.schema()))

    def rows(self, end: int) -> DataFrame:
        """Return the rows of the table as it was opened; raise an error if it lacks micro-batches before `end`.

        Spark loads the table again, and the catalog may answer with another state than before.
        """
        newest = self.newest()
        if end > (newest.next_number if newest else 0):
            raise outdated(self.name)
        reader = self.spark.read.option("versionAsOf", self.loaded.currentSnapshot().snapshotId())
        try:
            found = reader.table(f"{CATALOG}.{identifier_of(self.name)}")
        except IllegalArgumentException as error:  # no such snapshot
            raise outdated(self.name) from error
        # A snapshot has the columns of its time, which may have been renamed since then, or be fewer.
        kinds = java_class(self.spark, "org.apache.iceberg.spark.SparkSchemaUtil").convert(self.loaded.schema())
        return found.withColumnsRenamed(self.renamed()).to(StructType.fromJson(json.loads(kinds.json())))

    def widen(self, wanted: Schema) -> None:
        """Add missing columns, and widen narrower ones."""
        with clock_errors(self):
            self.loaded.updateSchema().unionByNameWith(_java_schema(self.spark, wanted)).commit()

    def target(self, marker: Marker) -> Target | None:
        """Return the target for data files of the table; None if the table already has the micro-batch."""
        if has_done(self.newest(), marker, self.name):
            return None
        schema, fields = self.schema(), elements(self.loaded.spec().fields())
        if not fields:
            raise LakeproofError(f"{self.name} is no longer partitioned: it was replaced.", self._undo(schema))
        if len(fields) > 1 or not _is_of_days(fields[0]):
            raise LakeproofError(
                f"{self.name} has other partitions than days: {', '.join(str(each.name()) for each in fields)}. "
                "Another program changed them.",
                self._undo(schema),
            )
        (day,) = fields
        wanted = MEMORY.wanted(self.name, schema.schema_id)
        return Target(
            folder=f"{self.loaded.location()}/data",
            schema=schema_to_pyarrow(schema),
            day_of=schema.find_column_name(day.sourceId()) or "",
            partition=day.name(),
            renamed=self.renamed(),
            derivations=wanted,
            derived_bytes=MEMORY.room() // self.spark.sparkContext.defaultParallelism if wanted else 0,
        )

    def _undo(self, schema: Schema) -> str:
        """Return a hint to restore the partitioning, which another program changed or dropped."""
        specs = sorted(self.loaded.specs().values(), key=lambda spec: int(spec.specId()))
        change, has = f"ALTER TABLE {CATALOG}.{self.name}", elements(self.loaded.spec().fields())
        for day in (spec.fields().get(0) for spec in reversed(specs) if not spec.fields().isEmpty()):
            if _is_of_days(day):
                others = [each for each in has if int(each.fieldId()) != int(day.fieldId())]
                steps = [f"{change} DROP PARTITION FIELD `{each.name()}`" for each in others]
                if len(others) == len(has):
                    column = schema.find_column_name(day.sourceId())
                    steps.append(f"{change} ADD PARTITION FIELD days({column}) AS {day.name()}")
                return f"To undo this, run: {'; '.join(steps)}."
        return "Restore the stream's tables from a backup."


def _is_of_days(field: Any) -> bool:
    return str(field.transform().toString()) == "day"


def open_table(spark: SparkSession, name: str, query: str) -> OpenTable:
    """Open a table of the catalog ``lake``, to which `query` appends."""
    tables = java_class(spark, "org.apache.iceberg.spark.Spark3Util")
    loaded = tables.loadIcebergTable(spark._jsparkSession, f"{CATALOG}.{identifier_of(name)}")
    return OpenTable(name, query, loaded, spark)


def identifier_of(table: str) -> str:
    """Return the name of a table in SQL."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in table.split("."))


def quoted(table: str) -> str:
    """Return the name of a table as a string literal for ``CALL``, which parses it again."""
    return "'" + identifier_of(table).replace("\\", r"\\").replace("'", r"\'") + "'"


def make_table(spark: SparkSession, name: str, schema: Schema, day_of: str, properties: Mapping[str, str]) -> bool:
    """Create a table that is partitioned by day, unless it exists; return whether it was created.

    Iceberg's own library can write version 3 of the format, but PyIceberg cannot.
    """
    named = partial(java_class, spark)
    catalog = named("org.apache.iceberg.spark.Spark3Util").loadIcebergCatalog(spark._jsparkSession, CATALOG)
    identifier = named("org.apache.iceberg.catalog.TableIdentifier").parse(name)
    if catalog.tableExists(identifier):
        return False
    columns = _java_schema(spark, schema)
    by_day = named("org.apache.iceberg.PartitionSpec").builderFor(columns).day(day_of, f"{day_of}_day").build()
    catalog.createTable(identifier, columns, by_day, dict(properties))
    return True


def _java_schema(spark: SparkSession, schema: Schema) -> Any:
    return java_class(spark, "org.apache.iceberg.SchemaParser").fromJson(schema.model_dump_json())


@contextmanager
def clock_errors(table: OpenTable) -> Iterator[None]:
    """Raise a ClockError where a commit fails because the table's last one was made by a clock that is ahead."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        if is_invalid(error):
            check_time(table.name, table.metadata(), now_ms())
        raise


def append_once(table: OpenTable, marker: Marker, files: Sequence[DataFile]) -> bool:
    """Append data files; an append without files is committed, too, for its marker. See :func:`commit_once`."""

    def append(transaction: Any) -> Any:
        update = transaction.newAppend()
        for file in described(table, files):
            update.appendFile(file)
        return update

    return commit_once(table, marker, append)


def commit_once(table: OpenTable, marker: Marker, change: Change) -> bool:
    """Commit a change with its marker, unless the table already has the marker; return whether it was committed now."""
    for _ in range(ATTEMPTS):
        transaction = table.loaded.newTransaction()  # reads the table again
        newest = newest_marker(spark_state(transaction.startMetadata()), table.query, table.name)
        if has_done(newest, marker, table.name):
            return False
        try:
            with clock_errors(table):
                snapshot = _prepare(transaction, table.query, marker, change)
        except Py4JJavaError as error:
            if exception_class(error) in MISSING:
                raise _gone(table, error.java_exception.getMessage()) from error
            raise
        if commit_prepared(table, transaction, snapshot):
            return True
    raise UnavailableError(
        f"Cannot commit to {table.name}: other writers keep changing it.", "Run the consumer again, to repeat this."
    )


def _gone(table: OpenTable, which: str) -> UnavailableError:
    return UnavailableError(
        f"Files for {table.name} were removed before their commit: {which}.",
        "Run the consumer again, to repeat the micro-batch. Do not remove orphan files of the last day.",
    )


def described(table: OpenTable, files: Sequence[DataFile]) -> list[Any]:
    """Return data files as Iceberg's own objects, with the statistics of their footers."""
    if not files:
        return []
    loaded, spark = table.loaded, table.spark
    named = partial(java_class, spark)
    bounds = named("org.apache.iceberg.MetricsConfig").forTable(loaded)
    options = named(f"{_PARQUET}.ParquetReadOptions").builder(named(f"{_PARQUET}.conf.PlainParquetConfiguration")())
    footers = named(f"{_PARQUET}.format.converter.ParquetMetadataConverter")(options.build())
    streams, nothing = named("java.io.ByteArrayInputStream"), named("java.util.stream.Stream")
    statistics, data_files = named("org.apache.iceberg.parquet.ParquetUtil"), named("org.apache.iceberg.DataFiles")
    io, spec = loaded.io(), loaded.spec()

    def describe(file: DataFile) -> Any:
        written = io.newInputFile(file.uri, file.size)
        if not written.exists():
            raise _gone(table, file.uri)
        footer = footers.readParquetMetadata(streams(file.footer))
        metrics = statistics.footerMetrics(footer, nothing.empty(), bounds)
        data_file = data_files.builder(spec).withInputFile(written).withMetrics(metrics)
        return data_file.withPartitionPath(file.partition).build()

    if len(files) < _CONVERSATIONS:  # no threads, which begin with a connection to the JVM
        found = [describe(file) for file in files]
    else:
        # A file takes a dozen calls to the JVM, and on S3 a request: each waits for the other side.
        with ThreadPoolExecutor(_CONVERSATIONS) as threads:
            found = list(threads.map(describe, files))
    for file, java_file in zip(files, found, strict=True):
        if file.derived:
            MEMORY.keep(str(java_file.location()), file.derived)  # readers know the file by this URI
    return found


def _prepare(transaction: Any, query: str, marker: Marker, change: Change) -> Any:
    """Put a change and its marker into a transaction; return its snapshot, which nobody can see before the commit."""
    key = property_of(query)
    update = change(transaction)
    update.set(key, Committed(marker, 0, 0).as_text())
    update.commit()
    snapshot = transaction.currentMetadata().currentSnapshot()
    after = Committed(marker, snapshot.snapshotId(), snapshot.sequenceNumber())
    transaction.updateProperties().set(key, after.as_text()).commit()
    return snapshot


def _commit(transaction: Any) -> None:
    """Swap the prepared state for the state from which it was prepared, in one try."""
    transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())


def commit_prepared(table: OpenTable, transaction: Any, snapshot: Any) -> bool:
    """Commit a transaction in one try; return whether it landed. If not, another writer was first: prepare it again.

    Raises the error of the commit if it is unknown whether it landed.
    """
    try:
        _commit(transaction)
    except Py4JJavaError as error:
        if not _has_landed(table, snapshot, error):
            if exception_class(error) != _REFUSED:
                raise
            time.sleep(random.uniform(0, _LONGEST_WAIT))  # noqa: S311 - no secret
            return False
    _remove_merged_manifests(table, snapshot)
    return True


def _has_landed(table: OpenTable, snapshot: Any, error: Py4JJavaError) -> bool:
    """Return whether a snapshot is in the table after an error of its commit; raise the error if that is unknown."""
    try:
        table.loaded.refresh()
    except Py4JJavaError:
        raise error from None
    return table.loaded.snapshot(snapshot.snapshotId()) is not None


def _remove_merged_manifests(table: OpenTable, snapshot: Any) -> None:
    """Remove manifests that a commit wrote and merged into others, as Iceberg's own commit does.

    Iceberg numbers the manifests of a commit in the order of writing (``SnapshotProducer.newManifestOutputFile``), and
    writes a merged manifest after its parts: numbers missing before the snapshot's last manifest are merged parts.
    """
    if (snapshot.summary().get("manifests-replaced") or "0") == "0":
        return
    io = table.loaded.io()
    manifests = elements(snapshot.allManifests(io))
    own = [manifest.path() for manifest in manifests if manifest.snapshotId() == snapshot.snapshotId()]
    numbers = {int(path.rpartition("-m")[2].removesuffix(".avro")) for path in own}
    for number in set(range(max(numbers, default=0))) - numbers:
        with suppress(Py4JJavaError):  # an orphan takes some KB; the commit has landed
            io.deleteFile(f"{own[0].rpartition('-m')[0]}-m{number}.avro")
