"""Appends that happen once, whoever tries a micro-batch, and however often.

The data files, the snapshot's marker and the table's newest marker are one new state of the table. The catalog swaps
it, once, for the state whose marker was read. After a refusal the table is read again: its newest state says whether
the commit landed and only the catalog's answer was lost, whether another writer did the micro-batch, or whether to
prepare it again.

``Transaction.commitTransaction`` is not used. It repeats a refused commit by itself, and where the first try had landed
and its answer was lost, it takes our own snapshot for another writer's and deletes the manifests of that snapshot.
"""

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from consumer.iceberg.data_files import DataFile, Target
from consumer.iceberg.jvm import MISSING, elements, exception_class, java_class
from consumer.iceberg.marker import Committed, Marker, check_history, has_done, property_of
from consumer.iceberg.newest import newest_marker, spark_state
from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.references import Metadata
from lakeproof.tables.columns import renamed_columns
from lakeproof.tables.names import RENAMED

Change = Callable[[Any], Any]
"""Begins an update within a transaction of Iceberg's: it says what is added, and what is removed."""

_PARQUET = "org.apache.iceberg.shaded.org.apache.parquet"
ATTEMPTS = 10
"""How often a commit is prepared that other writers were ahead of."""
# Seconds before a refused commit is prepared again, at most; a random part of it, so that writers get out of step.
_LONGEST_WAIT = 1.0
# The only exception that says that a commit did not land. After any other, the table is looked at, too.
_REFUSED = "org.apache.iceberg.exceptions.CommitFailedException"


@dataclass(frozen=True)
class OpenTable:
    """A table as it was when `query` opened it; commits to it are made against its newest state."""

    name: str
    query: str
    loaded: Any
    spark: SparkSession

    def newest(self) -> Committed | None:
        """Its newest marker of the query."""
        return newest_marker(spark_state(self.loaded), self.query, self.name)

    def check_has(self, committed: Committed) -> None:
        """Make sure that it has what a marker says that it had once."""
        state = spark_state(self.loaded)
        check_history(committed, state.current, state.find, self.name)

    def table_id(self) -> str:
        """Its own unique id, which another table of its name does not have."""
        return str(self.loaded.uuid().toString())

    def descends_from(self, snapshot_id: int) -> bool:
        """Whether a snapshot is its current one or came before that. An expired one is unknown."""
        ancestry = java_class(self.spark, "org.apache.iceberg.util.SnapshotUtil")
        return bool(ancestry.isAncestorOf(self.loaded, snapshot_id))

    def property(self, name: str) -> str | None:
        """One of its properties."""
        value: str | None = self.loaded.properties().get(name)
        return value

    def set_property(self, name: str, value: str) -> None:
        """Set one of its properties."""
        self.loaded.updateProperties().set(name, value).commit()

    def metadata(self) -> Metadata:
        """All of its metadata at once: each part of a snapshot would be a call to the JVM."""
        parser = java_class(self.spark, "org.apache.iceberg.TableMetadataParser")
        found: Metadata = json.loads(parser.toJson(self.loaded.operations().current()))
        return found

    def renamed(self) -> dict[str, str]:
        """Its columns that were renamed, by their former names."""
        # Not all properties: each of them would be several calls to the JVM.
        return renamed_columns({RENAMED: self.property(RENAMED) or ""})

    def schema(self) -> Schema:
        """Its columns."""
        parser = java_class(self.spark, "org.apache.iceberg.SchemaParser")
        return Schema.model_validate_json(parser.toJson(self.loaded.schema()))

    def widen(self, wanted: Schema) -> None:
        """Add the columns that it lacks, and widen those that are narrower."""
        self.loaded.updateSchema().unionByNameWith(_java_schema(self.spark, wanted)).commit()

    def target(self, marker: Marker) -> Target | None:
        """How to write data files for it; None if it has the micro-batch already."""
        if has_done(self.newest(), marker, self.name):
            return None
        schema = self.schema()
        if self.loaded.spec().fields().isEmpty():
            raise LakeproofError(f"{self.name} is no longer partitioned: it was replaced.", self._undo(schema))
        day = self.loaded.spec().fields().get(0)
        return Target(
            folder=f"{self.loaded.location()}/data",
            schema=schema_to_pyarrow(schema),
            day_of=schema.find_column_name(day.sourceId()) or "",
            partition=day.name(),
            renamed=self.renamed(),
        )

    def _undo(self, schema: Schema) -> str:
        """How to give it back its partitions, which ``CREATE OR REPLACE`` dropped and no older snapshot brings back."""
        specs = sorted(self.loaded.specs().values(), key=lambda spec: int(spec.specId()))
        for day in (spec.fields().get(0) for spec in reversed(specs) if not spec.fields().isEmpty()):
            column = schema.find_column_name(day.sourceId())
            field = f"days({column}) AS {day.name()}"
            return f"To undo this, run: ALTER TABLE {CATALOG}.{self.name} ADD PARTITION FIELD {field}."
        return "Restore the stream's tables from a backup."


def open_table(spark: SparkSession, name: str, query: str) -> OpenTable:
    """Open a table of the catalog ``lake``, to which `query` appends."""
    tables = java_class(spark, "org.apache.iceberg.spark.Spark3Util")
    loaded = tables.loadIcebergTable(spark._jsparkSession, f"{CATALOG}.{identifier_of(name)}")
    return OpenTable(name, query, loaded, spark)


def identifier_of(table: str) -> str:
    """The name of a table in SQL."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in table.split("."))


def quoted(table: str) -> str:
    """The name of a table as a text for ``CALL``, which parses it once more."""
    return "'" + identifier_of(table).replace("\\", r"\\").replace("'", r"\'") + "'"


def make_table(spark: SparkSession, name: str, schema: Schema, day_of: str, properties: Mapping[str, str]) -> bool:
    """Create a table that is partitioned by a day, unless it exists; return whether it was created.

    Iceberg's own library can write version 3 of the format, and PyIceberg cannot.
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


def append_once(table: OpenTable, marker: Marker, files: Sequence[DataFile]) -> bool:
    """Append data files. An append without files is committed, too, for its marker. See :func:`commit_once`."""

    def append(transaction: Any) -> Any:
        update = transaction.newAppend()
        for file in described(table, files):
            update.appendFile(file)
        return update

    return commit_once(table, marker, append)


def commit_once(table: OpenTable, marker: Marker, change: Change) -> bool:
    """Commit a change with its marker, unless the table has that already; return whether it was committed now."""
    for _ in range(ATTEMPTS):
        transaction = table.loaded.newTransaction()  # reads the table again
        newest = newest_marker(spark_state(transaction.startMetadata()), table.query, table.name)
        if has_done(newest, marker, table.name):
            return False
        try:
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
    """Data files as Iceberg's own objects, with the statistics of their footers."""
    if not files:
        return []
    loaded, spark = table.loaded, table.spark
    named = partial(java_class, spark)
    bounds = named("org.apache.iceberg.MetricsConfig").forTable(loaded)
    options = named(f"{_PARQUET}.ParquetReadOptions").builder(named(f"{_PARQUET}.conf.PlainParquetConfiguration")())
    footers = named(f"{_PARQUET}.format.converter.ParquetMetadataConverter")(options.build())
    streams, nothing = named("java.io.ByteArrayInputStream"), named("java.util.stream.Stream")
    statistics, data_files = named("org.apache.iceberg.parquet.ParquetUtil"), named("org.apache.iceberg.DataFiles")
    found = []
    for file in files:
        written = loaded.io().newInputFile(file.uri, file.size)
        if not written.exists():
            raise _gone(table, file.uri)
        footer = footers.readParquetMetadata(streams(file.footer))
        metrics = statistics.footerMetrics(footer, nothing.empty(), bounds)
        data_file = data_files.builder(loaded.spec()).withInputFile(written).withMetrics(metrics)
        found.append(data_file.withPartitionPath(file.partition).build())
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
    """Swap what was prepared for the state that it was prepared from, in one try."""
    transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())


def commit_prepared(table: OpenTable, transaction: Any, snapshot: Any) -> bool:
    """Commit a transaction in one try; return whether it landed. If not, another writer was first: prepare it again.

    Raises the error of the commit if nobody can say whether it landed.
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
    """Whether the table has a snapshot, after an error of its commit; raise that error where nobody can say."""
    try:
        table.loaded.refresh()
    except Py4JJavaError:
        raise error from None
    return table.loaded.snapshot(snapshot.snapshotId()) is not None


def _remove_merged_manifests(table: OpenTable, snapshot: Any) -> None:
    """Remove manifests that a commit wrote and merged into others, as Iceberg's own commit does.

    Iceberg numbers the manifests of a commit in the order of writing (``SnapshotProducer.newManifestOutputFile``), and
    writes a merged one after its parts: those that are missing before the last one of the snapshot are such parts.
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
