"""A micro-batch is judged once, then appended to bronze, the dead letters and the ledger, in this order."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Generic

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.iceberg.append import open_table
from consumer.iceberg.data_files import remove_files
from consumer.iceberg.marker import Committed, Marker, unfinished
from consumer.iceberg.tasks import write_batches
from consumer.layers.base import Append, Commits, Computing
from consumer.layers.bronze.breaker import Watch
from consumer.layers.bronze.ledger import DRIFT_COUNTS, Drift, MicroBatch, Outcome, ledger_rows
from consumer.layers.bronze.sums import sums_in_tables
from consumer.layers.bronze.tasks import Task, contents_of, write_judged
from consumer.layers.upstream import recorded_contract
from consumer.sources.source import Held, PartT, Source
from lakeproof.catalog import CATALOG
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract
from lakeproof.errors import PausedError
from lakeproof.reasons import Reason
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import Trip
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.names import MICRO_BATCH_ID, NEXT_MICRO_BATCH, SOURCE, StreamTables, stream_tables

log = structlog.get_logger()


@dataclass(frozen=True)
class Landed(Generic[PartT]):
    """The parts of a micro-batch, and its marker."""

    parts: Sequence[PartT]
    marker: Marker
    paused: Trip | None = None  # the earlier pause, if this micro-batch is judged again


class BronzeLayer(Computing[Landed[PartT]]):
    """Judges landed units, and appends them to bronze, the dead letters and the ledger."""

    event = "micro-batch"

    def __init__(
        self,
        settings: Settings,
        stream: str,
        source: Source[PartT],
        schema_id_of: Callable[[Contract], int | None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._stream = stream
        self.name = bronze_query(stream)
        self._tables = stream_tables(stream)
        self._source = source
        self._contracts = ContractLog(settings.state.database)
        self._schema_id_of = schema_id_of
        self._watch = Watch(settings, stream)

    def landed(self, held: Held[PartT], checkpoint_id: str, micro_batch_id: int) -> Landed[PartT]:
        """Return the work of a micro-batch of a checkpoint."""
        limits = self._settings.limits
        return Landed(held.parts, Marker(checkpoint_id, micro_batch_id, held.contract, held.start, held.end, limits))

    def unfinished(self, spark: SparkSession, marker: Marker) -> Landed[PartT]:
        """Return the rest of a micro-batch that bronze has: dead letters and ledger rows may be missing."""
        # With these names, a part without rows in any table is left out: it will be found again.
        names = partial(_unaccounted_units, spark, self._tables, marker)
        return Landed(self._source.held_between(marker.start, marker.end, names), marker)

    def compute(self, spark: SparkSession, work: Landed[PartT]) -> Commits:
        """Judge a micro-batch; yield the commits of bronze, dead letters and, last, the ledger, which completes it."""
        parts, marker, names = work.parts, work.marker, self._tables
        contract = self._contract(marker.contract)
        sizes = self._source.size_of(parts)
        size = ", ".join(f"{number:,} {what}" for what, number in sizes.items())
        spark.sparkContext.setJobGroup(self.name, f"bronze.{self._stream}: {size}")
        log.debug("judging", stream=self._stream, jobs=self.name, **sizes)
        logged = {"stream": self._stream, "contract": contract.version, **sizes}
        bronze, dead_letters, ledger = (
            open_table(spark, name, self.name) for name in (names.bronze, names.dead_letters, names.ledger)
        )
        begun, before = bronze.newest(), ledger.newest()
        marker = replace(marker, replays=before.marker.replays if before else 0)
        # Raises an error for tables that do not fit together.
        unfinished(self._stream, begun, dead_letters.newest(), before, self._source.is_origin)
        rows_of_ledger = ledger.target(marker)
        if rows_of_ledger is None:
            return logged | {"done": "before"}
        least = int(ledger.property(NEXT_MICRO_BATCH) or 0)
        marker = replace(marker, micro_batch_id=_number(marker, begun, before, least))
        schema_id, s3 = self._schema_id_of(contract), self._settings.s3
        batch = MicroBatch(marker.micro_batch_id, marker.checkpoint_id, contract, datetime.now(UTC), schema_id)
        limits = begun.marker.limits if begun and begun.marker.holds_the_same(marker) else marker.limits
        targets = bronze.target(marker), dead_letters.target(marker)
        task = Task(batch, *targets, self._source.reader, s3, limits, judge=self._settings.judge)
        written = write_judged(spark, parts, task)
        if begun and task.bronze is None and written.touched and contents_of(written) != begun.marker.contents:
            # Changed content of a file must not be added to what bronze has of it.
            written = write_judged(spark, parts, replace(task, only_listed=True))
        marker = replace(marker, contents=contents_of(written))
        if written.touched:
            # Before anything is appended: a replay must find these parts as they were judged.
            self._source.look_again(written.touched)
            parts = _with(parts, written.touched)
        outcomes = dict(written.outcomes)
        if written.changed:
            # Their content as judged is in the tables, and can only be counted there.
            log.warning("files changed after they were judged", stream=self._stream, files=sorted(written.changed))
            held = _unaccounted_units(spark, names, marker)
            outcomes |= {(source, None): held[source] for source in written.changed if held.get(source)}
            # The dead letters of a missing file are lost: the ledger records that, and verify reports it.
            gone = {part.name for part in parts if part.given_up}
            outcomes |= {(source, str(Reason.ABSENT)): 1 for source in written.changed if source in gone}
        if task.bronze is not None:  # a micro-batch that bronze has is finished, however bad it is
            try:
                self._watch.check(marker, batch, outcomes, written.examples, work.paused)
            except PausedError:
                remove_files([*written.bronze, *written.dead_letters], s3)
                raise
        commits = Append(bronze, marker, written.bronze), Append(dead_letters, marker, written.dead_letters)
        yield from commits
        part_of = partial(_part_of, sorted(part.name for part in parts))
        sums = sums_in_tables(spark, self._settings, batch, written.sums, *commits, part_of)
        rows = ledger_rows(parts, outcomes, written.drift, written.hashes, batch, sums)
        yield Append(ledger, marker, write_batches([rows], rows_of_ledger, s3).files)
        self._watch.committed(batch, outcomes, work.paused)
        return logged | {"id": batch.id} | _totals(outcomes, written.drift, batch)

    def _contract(self, digest: str) -> Contract:
        missing = f"A micro-batch was started with a contract ({digest[:12]}…) that the landing log does not have."
        return recorded_contract(self._contracts, digest, missing)


def _unaccounted_units(spark: SparkSession, names: StreamTables, marker: Marker) -> dict[str, int]:
    """Count the units in bronze for each source of a micro-batch that is in the tables but not in the ledger."""
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
    # The range limits the files to read: names sort by time, and so does the ledger.
    rows = spark.table(f"{CATALOG}.{ledger}").where(F.col("source").between(sources[0], sources[-1]))
    wanted = spark.createDataFrame(pa.table({"source": sources}))
    return {row.source for row in rows.join(F.broadcast(wanted), "source").select("source").distinct().collect()}


def _part_of(names: Sequence[str], source: str) -> str:
    """Return the part that has a source, a file or a range that begins at an offset; `names` are the sorted parts."""
    return names[max(bisect_right(names, source) - 1, 0)]


def _number(marker: Marker, begun: Committed | None, before: Committed | None, least: int) -> int:
    """Return a micro-batch's number in the tables: the one it began with, or the next one, across checkpoints."""
    if begun and begun.marker.holds_the_same(marker):
        return begun.marker.micro_batch_id
    return max(before.next_number if before else 0, least)


def _with(parts: Sequence[PartT], touched: Iterable[PartT]) -> list[PartT]:
    newer = {part.name: part for part in touched}
    return [newer.get(part.name, part) for part in parts]


def _totals(outcomes: Mapping[Outcome, int], drift: Mapping[Drift, int], batch: MicroBatch) -> dict[str, object]:
    dead, drifted = Counter[str](), Counter[str]()
    for (_, reasons), count in outcomes.items():
        if reasons is not None:
            dead[reasons] += count
    for (_, reasons), count in drift.items():
        drifted[reasons] += count
    return {
        "bronze": sum(count for (_, reasons), count in outcomes.items() if reasons is None),
        "dead_letters": sum(dead.values()),
        "reasons": dict(sorted(dead.items())),
        **({DRIFT_COUNTS[batch.contract.drift]: dict(sorted(drifted.items()))} if drifted else {}),
    }
