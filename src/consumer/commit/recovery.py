"""Where a stream's tables are, and what a crash or a lost checkpoint left to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.commit.marker import (
    Committed,
    Marker,
    Snapshot,
    check_history,
    check_marked,
    committed,
    property_of,
    unfinished,
)
from lakeproof.catalog import CATALOG
from lakeproof.checkpoint import read_checkpoint
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandedFile, LandingLog, Position
from lakeproof.tables.names import MICRO_BATCH_ID, SOURCE, StreamTables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot as TableSnapshot


@dataclass(frozen=True)
class Standing:
    """Where a stream's tables are.

    Parameters
    ----------
    accounted
        The position up to which the ledger has everything; None where nothing was ever taken.
    unfinished
        The micro-batch that bronze has and the ledger does not.
    """

    accounted: Position | None
    unfinished: Marker | None


def standing(catalog: "Catalog", names: StreamTables, query: str) -> Standing:
    """Look where a stream's tables are.

    Raises
    ------
    MarkerLostError
        One was rolled back or replaced, or they are not of the same moment.
    """
    bronze, dead_letters, ledger = (
        _newest(catalog.load_table(name), name, query) for name in (names.bronze, names.dead_letters, names.ledger)
    )
    return Standing(
        Position.parse(ledger.marker.end) if ledger else None,
        unfinished(names.bronze.partition(".")[2], bronze, dead_letters, ledger),
    )


def place_to_go_on(
    settings: Settings, query: str, log: LandingLog, ledger: "Table", accounted: Position | None
) -> Position:
    """Find the position behind which a query's next micro-batch begins, and bring the landing log there.

    A landing log that was lost, or is older than the tables, is rebuilt from the ledger, but only if no checkpoint
    speaks of what was in it.

    Raises
    ------
    LakeproofError
        Checkpoint, landing log and tables are not of the same moment.
    """
    checkpoint = read_checkpoint(settings, query)
    place = accounted or Position(0, log.base.chain)
    if checkpoint and not checkpoint.fits(place):
        raise LakeproofError(
            f"The checkpoint of {query} is at position {(checkpoint.passed or checkpoint.end).seq:,} of the landing "
            f"log, but its tables are at position {place.seq:,}.",
            _reset(query),
        )
    if checkpoint and not all(map(log.has, (place, checkpoint.end))):
        raise LakeproofError(
            f"The checkpoint of {query} is at position {checkpoint.end.seq:,}, which the landing log does not have. It "
            "is another landing log, or an older copy.",
            f"Restore it, or set LAKE_LANDING_LOG_URI to its address. Or: {_reset(query)}",
        )
    if not log.has(place):
        log.rebuild(place, _accounted_files(ledger) if accounted else ())
    return place


def files_of(log: LandingLog, marker: Marker) -> list[LandedFile] | None:
    """The files of a micro-batch; None where the landing log does not have its positions."""
    start, end = Position.parse(marker.start), Position.parse(marker.end)
    return log.files(start.seq, end.seq) if log.has(start) and log.has(end) else None


def unaccounted_units(spark: SparkSession, names: StreamTables, marker: Marker) -> dict[str, int]:
    """Which sources of a micro-batch the tables have and the ledger lacks, and how many units of each are in bronze."""
    found: dict[str, int] = {}
    for table, to_bronze in ((names.bronze, 1), (names.dead_letters, 0)):
        # Micro-batches of earlier checkpoints may have the same number: their sources are in the ledger.
        units = spark.table(f"{CATALOG}.{table}").where(F.col(MICRO_BATCH_ID) == marker.micro_batch_id)
        for row in units.groupBy(SOURCE).agg(F.count("*").alias("n")).collect():
            found[row[SOURCE]] = found.get(row[SOURCE], 0) + to_bronze * row.n
    known = _known_to(spark, names.ledger, sorted(found))
    return {source: count for source, count in found.items() if source not in known}


def _known_to(spark: SparkSession, ledger: str, sources: list[str]) -> set[str]:
    if not sources:
        return set()
    # The range narrows the files that are read: names sort by time, and so does the ledger.
    rows = spark.table(f"{CATALOG}.{ledger}").where(F.col("source").between(sources[0], sources[-1]))
    wanted = spark.createDataFrame(pa.table({"source": sources}))
    return {row.source for row in rows.join(F.broadcast(wanted), "source").select("source").distinct().collect()}


def _accounted_files(ledger: "Table") -> Iterator[LandedFile]:
    fields = ("source", "size", "etag", "landed_at")
    for batch in ledger.scan(selected_fields=fields).to_arrow_batch_reader():
        for row in batch.to_pylist():
            yield LandedFile(0, row["source"], row["size"], row["etag"], row["landed_at"])


def _newest(table: "Table", name: str, query: str) -> Committed | None:
    newest = committed(table.properties, query)
    snapshots = {each.snapshot_id: each for each in table.snapshots()}
    current = table.current_snapshot()
    if newest is None:  # somebody may have removed the property
        newest = next(_marked(current, snapshots, query), None)
    if newest:
        check_history(newest, _as_snapshot(current), lambda number: _as_snapshot(snapshots.get(number)), name)
    elif current is not None and current.summary:
        check_marked(table.properties, int(current.summary.get("total-records") or 0), name)
    return newest


def _marked(snapshot: "TableSnapshot | None", snapshots: "dict[int, TableSnapshot]", query: str) -> Iterator[Committed]:
    while snapshot is not None:
        text = snapshot.summary and snapshot.summary.get(property_of(query))
        if text:
            marker = Committed.parse(text).marker
            yield Committed(marker, snapshot.snapshot_id, snapshot.sequence_number or 0)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else snapshots.get(parent)


def _as_snapshot(found: "TableSnapshot | None") -> Snapshot | None:
    if found is None:
        return None
    return Snapshot(found.snapshot_id, found.parent_snapshot_id, found.sequence_number or 0)


def _reset(query: str) -> str:
    stream = query.partition("-")[2]
    return f"Run `consumer reset {stream}`, to resume from the position in the tables. Nothing is read twice."
