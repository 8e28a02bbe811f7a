"""Appends that happen once, however often a micro-batch is tried, and whoever tries it.

The data files, the snapshot's marker and the table's newest marker are one transaction. A validator runs within its
commit, again at each of Iceberg's own retries, and refuses where the newest marker is not the one that was looked at
before. So a micro-batch that is tried again, after a crash or by a writer that was suspended and wakes up too late,
changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from consumer.commit.data_files import DataFile, Target
from consumer.commit.jvm import java_class
from consumer.commit.marker import (
    Committed,
    Marker,
    Snapshot,
    check_history,
    check_marked,
    committed,
    has_done,
    property_of,
)
from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.tables.columns import renamed_columns
from lakeproof.tables.names import RENAMED

Change = Callable[[Any], Any]
"""Begins an update within a transaction of Iceberg's: it says what is added, and what is removed."""

_PARQUET = "org.apache.iceberg.shaded.org.apache.parquet"
_ATTEMPTS = 10
_REFUSED = "ValidationException"
_GONE = ("NotFoundException", "NoSuchFileException", "FileNotFoundException")


@dataclass(frozen=True)
class OpenTable:
    """A table as it was when it was opened; commits to it are made against its newest state.

    Parameters
    ----------
    name
        Its name in the catalog.
    query
        The query that appends to it.
    loaded
        Iceberg's own object.
    spark
        The session.
    """

    name: str
    query: str
    loaded: Any
    spark: SparkSession

    def newest(self) -> Committed | None:
        """Its newest marker of the query.

        Raises
        ------
        MarkerLostError
            The table was rolled back to before that, or replaced, or has rows and no marker.
        """
        newest = _newest(self.loaded, self.query)
        current = self.loaded.currentSnapshot()
        if newest:
            check_history(newest, _snapshot(current), self._find, self.name)
        elif current is not None:
            check_marked(dict(self.loaded.properties()), int(current.summary().get("total-records") or 0), self.name)
        return newest

    def check_has(self, committed: Committed) -> None:
        """Make sure that it has what a marker says that it had once.

        Raises
        ------
        MarkerLostError
            It was rolled back to before that, or replaced.
        """
        check_history(committed, _snapshot(self.loaded.currentSnapshot()), self._find, self.name)

    def table_id(self) -> str:
        """Its own unique id, which another table of its name does not have."""
        return str(self.loaded.uuid().toString())

    def descends_from(self, snapshot_id: int) -> bool:
        """Whether a snapshot is its current one or came before that. What expired is not known."""
        ancestry = java_class(self.spark, "org.apache.iceberg.util.SnapshotUtil")
        return bool(ancestry.isAncestorOf(self.loaded, snapshot_id))

    def property(self, name: str) -> str | None:
        """One of its properties."""
        value: str | None = self.loaded.properties().get(name)
        return value

    def renamed(self) -> dict[str, str]:
        """Its columns that were renamed, by their former names."""
        # Not all properties: each of them would be several calls to the JVM.
        return renamed_columns({RENAMED: self.property(RENAMED) or ""})

    def target(self, marker: Marker) -> Target | None:
        """How to write data files for it; None where it has the micro-batch already.

        Raises
        ------
        MarkerLostError
            Its newest marker is neither this micro-batch's, nor does this one begin where that one ends.
        LakeproofError
            Its partitions are gone: it was replaced.
        """
        if has_done(self.newest(), marker, self.name):
            return None
        parser = java_class(self.spark, "org.apache.iceberg.SchemaParser")
        schema = Schema.model_validate_json(parser.toJson(self.loaded.schema()))
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

    def _find(self, snapshot_id: int) -> Snapshot | None:
        return _snapshot(self.loaded.snapshot(snapshot_id))


def open_table(spark: SparkSession, name: str, query: str) -> OpenTable:
    """Open a table of the catalog ``lake``, to which `query` appends."""
    tables = java_class(spark, "org.apache.iceberg.spark.Spark3Util")
    loaded = tables.loadIcebergTable(spark._jsparkSession, f"{CATALOG}.{name}")
    return OpenTable(name, query, loaded, spark)


def append_once(table: OpenTable, marker: Marker, files: Sequence[DataFile]) -> bool:
    """Append data files to a table, unless it already holds the marker.

    No files are an append, too: its marker keeps the sequence whole.

    Returns
    -------
    bool
        Whether they were appended now.

    Raises
    ------
    MarkerLostError
        The newest marker is neither this micro-batch's, nor does this one begin where that one ends.
    """

    def append(transaction: Any) -> Any:
        update = transaction.newAppend()
        for file in described(table, files):
            update.appendFile(file)
        return update

    return commit_once(table, marker, append)


def commit_once(table: OpenTable, marker: Marker, change: Change) -> bool:
    """Commit a change with its marker, unless the table already holds that; return whether it was committed now.

    Raises
    ------
    MarkerLostError
        The newest marker is neither this micro-batch's, nor does this one begin where that one ends.
    UnavailableError
        Others commit to the table all the time, or removed what was to be committed.
    """
    for _ in range(_ATTEMPTS):
        if has_done(table.newest(), marker, table.name):
            return False
        try:
            transaction = _prepare(table, marker, change)
            _commit(transaction)
        except Py4JJavaError as error:
            kind = error.java_exception.getClass().getSimpleName()
            if kind in _GONE:
                raise _gone(table, error.java_exception.getMessage()) from error
            if kind != _REFUSED:
                raise
            table.loaded.refresh()  # another writer came between: look at what it did
        else:
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
    """Data files as Iceberg's own objects, with the statistics of their footers.

    Raises
    ------
    UnavailableError
        One of them is no longer there: the table must not get it.
    """
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


class _NewestMarkerIs:
    """Lets a commit through while the table's newest marker is the one that was looked at."""

    def __init__(self, transaction: Any, key: str, expected: str | None) -> None:
        self._transaction = transaction
        self._key = key
        self._expected = expected

    def validate(self, _ancestors: object) -> bool:
        found = self._transaction.table().properties().get(self._key)
        return bool(found == self._expected)

    def errorMessage(self) -> str:  # noqa: N802 - Iceberg's name
        return "another writer appended a micro-batch of this query"

    def hashCode(self) -> int:  # noqa: N802 - Java asks for it
        return 0

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)


def _prepare(table: OpenTable, marker: Marker, change: Change) -> Any:
    """A transaction of the change and its marker; nothing of it can be seen before its commit."""
    ensure_callback_server_started(table.spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    key = property_of(table.query)
    looked_at = table.loaded.properties().get(key)  # before the transaction: that looks at the table again
    transaction = table.loaded.newTransaction()
    update = change(transaction)
    update.set(key, Committed(marker, 0, 0).as_text())
    update.validateWith(_NewestMarkerIs(transaction, key, looked_at))
    update.commit()
    snapshot = transaction.table().currentSnapshot()
    after = Committed(marker, snapshot.snapshotId(), snapshot.sequenceNumber())
    transaction.updateProperties().set(key, after.as_text()).commit()
    return transaction


def _commit(transaction: Any) -> None:
    transaction.commitTransaction()


def _newest(loaded: Any, query: str) -> Committed | None:
    """From the property; where somebody removed that, from the newest snapshot that has a marker."""
    key = property_of(query)
    if found := committed({key: loaded.properties().get(key) or ""}, query):
        return found
    snapshot = loaded.currentSnapshot()
    while snapshot is not None:
        if text := snapshot.summary().get(key):
            return Committed(Committed.parse(text).marker, snapshot.snapshotId(), snapshot.sequenceNumber())
        parent = snapshot.parentId()
        snapshot = None if parent is None else loaded.snapshot(parent)
    return None


def _snapshot(found: Any) -> Snapshot | None:
    return None if found is None else Snapshot(found.snapshotId(), found.parentId(), found.sequenceNumber())
