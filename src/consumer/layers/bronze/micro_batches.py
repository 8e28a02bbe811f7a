"""A micro-batch is judged once, then appended to bronze, the dead letters and the ledger, in this order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Generic

import structlog
from pyspark.sql import DataFrame, SparkSession

from consumer.iceberg.append import OpenTable, append_once, open_table
from consumer.iceberg.data_files import DataFile, DataFileWriter
from consumer.iceberg.marker import Committed, Marker, MarkerLostError, unfinished
from consumer.layers.bronze.ledger import DRIFT_COUNTS, Drift, MicroBatch, Outcome, ledger_rows
from consumer.layers.bronze.recovery import unaccounted_units
from consumer.layers.bronze.tasks import Task, contents_of, write_judged
from consumer.layers.contracts import recorded_contract
from consumer.sources.source import Held, PartT, Source
from lakeproof.contracts import Contract
from lakeproof.reasons import Reason
from lakeproof.settings import Limits, S3Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease
from lakeproof.storage import open_storage
from lakeproof.tables.names import NEXT_MICRO_BATCH, stream_tables

log = structlog.get_logger()

_JOB_GROUP = "spark.jobGroup.id"


class MicroBatches(Generic[PartT]):
    """Takes the micro-batches of a stream; what ``foreachBatch`` calls.

    Parameters
    ----------
    stream, query
        Names of the stream, and of the query that takes it.
    source
        Where its batches come from.
    contracts
        Texts of the contracts.
    lease
        The stream's lease, which is checked before each append.
    limits
        How large batches and records may be.
    s3
        How to reach S3, to write data files.
    schema_id_of
        Gives the id of a contract in the schema registry.
    """

    def __init__(
        self,
        stream: str,
        query: str,
        source: Source[PartT],
        contracts: ContractLog,
        lease: Lease,
        limits: Limits,
        s3: S3Settings,
        schema_id_of: Callable[[Contract], int | None] = lambda _: None,
    ) -> None:
        self._stream = stream
        self._query = query
        self._tables = stream_tables(stream)
        self._source = source
        self._contracts = contracts
        self._lease = lease
        self._limits = limits
        self._s3 = s3
        self._schema_id_of = schema_id_of
        self.count = 0
        self.failure: Exception | None = None

    def __call__(self, rows: DataFrame, micro_batch_id: int) -> None:
        """Judge and append what `rows` name, unless that has been done."""
        try:
            self._process(rows, micro_batch_id)
        except Exception as error:
            self.failure = error  # Spark makes a long text of it
            raise

    def finish(self, spark: SparkSession, marker: Marker) -> None:
        """Append what a micro-batch that was begun still lacks: dead letters and ledger rows."""
        # By name, a part that no table has rows of is left out: it will be found again.
        names = partial(unaccounted_units, spark, self._tables, marker)
        parts = self._source.held_between(marker.start, marker.end, names)
        totals = self._complete(spark, parts, marker, self._contract(marker.contract))
        log.warning(
            "finished an interrupted micro-batch",
            stream=self._stream,
            checkpoint=marker.checkpoint_id,
            **self._source.size_of(parts),
            **totals,
        )

    def _process(self, rows: DataFrame, micro_batch_id: int) -> None:
        spark = rows.sparkSession  # a clone of the session, with this query's settings
        checkpoint_id = str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        held = self._source.held(rows, micro_batch_id)
        if held is None:
            return
        self.take(spark, held, checkpoint_id, micro_batch_id)

    def take(self, spark: SparkSession, held: Held[PartT], checkpoint_id: str, micro_batch_id: int) -> None:
        """Judge and append what a micro-batch holds, unless that has been done.

        Parameters
        ----------
        spark
            The session.
        held
            What it holds.
        checkpoint_id, micro_batch_id
            The checkpoint that says so, and its number there.
        """
        began = monotonic()
        marker = Marker(checkpoint_id, micro_batch_id, held.contract, held.start, held.end, self._limits)
        contract = self._contract(held.contract)
        sizes = self._source.size_of(held.parts)
        log.debug("judging", stream=self._stream, jobs=spark.sparkContext.getLocalProperty(_JOB_GROUP), **sizes)
        size = ", ".join(f"{number:,} {what}" for what, number in sizes.items())
        spark.sparkContext.setJobDescription(f"bronze.{self._stream}: {size}")
        totals = self._complete(spark, held.parts, marker, contract)
        self.count += 1
        log.info(
            "micro-batch",
            stream=self._stream,
            contract=contract.version,
            **self._source.size_of(held.parts),
            **totals,
            seconds=round(monotonic() - began, 3),
        )

    def _complete(
        self, spark: SparkSession, parts: Sequence[PartT], marker: Marker, contract: Contract
    ) -> dict[str, object]:
        """Append what the tables do not have yet of a micro-batch; return what became of its units, for the log."""
        names = self._tables
        bronze, dead_letters, ledger = (
            open_table(spark, name, self._query) for name in (names.bronze, names.dead_letters, names.ledger)
        )
        begun, before = bronze.newest(), ledger.newest()
        # Refuses tables that do not fit together.
        unfinished(self._stream, begun, dead_letters.newest(), before, self._source.is_origin)
        rows_of_ledger = ledger.target(marker)
        if rows_of_ledger is None:
            return {"done": "before"}
        least = int(ledger.property(NEXT_MICRO_BATCH) or 0)
        marker = replace(marker, micro_batch_id=_number(marker, begun, before, least))
        schema_id = self._schema_id_of(contract)
        batch = MicroBatch(marker.micro_batch_id, marker.checkpoint_id, contract, datetime.now(UTC), schema_id)
        limits = begun.marker.limits if begun and begun.marker.holds_the_same(marker) else marker.limits
        task = Task(batch, bronze.target(marker), dead_letters.target(marker), self._source.reader, self._s3, limits)
        written = write_judged(spark, parts, task)
        if begun and task.bronze is None and written.touched and contents_of(written) != begun.marker.contents:
            # No other content may come beside what bronze has of a file.
            written = write_judged(spark, parts, replace(task, only_listed=True))
        marker = replace(marker, contents=contents_of(written))
        if written.touched:
            # Before anything is appended: a replay must find these parts as they were judged.
            self._source.look_again(written.touched)
            parts = _with(parts, written.touched)
        outcomes = dict(written.outcomes)
        if written.changed:
            # What they held when they were judged is in the tables, and can only be counted there.
            log.warning("files changed after they were judged", stream=self._stream, files=sorted(written.changed))
            held = unaccounted_units(spark, names, marker)
            outcomes |= {(source, None): held[source] for source in written.changed if held.get(source)}
            # The dead letters of a file that is gone are lost: the ledger records it, and verify reports it.
            gone = {part.name for part in parts if part.given_up}
            outcomes |= {(source, str(Reason.ABSENT)): 1 for source in written.changed if source in gone}
        # The ledger comes last: a ledger row means that all before it is committed.
        self._append(bronze, marker, written.bronze)
        self._append(dead_letters, marker, written.dead_letters)
        writer = DataFileWriter(rows_of_ledger, open_storage(rows_of_ledger.folder, self._s3))
        writer.write(ledger_rows(parts, outcomes, written.drift, written.hashes, batch))
        self._append(ledger, marker, writer.close())
        return {"id": batch.id} | _totals(outcomes, written.drift, batch)

    def _append(self, table: OpenTable, marker: Marker, files: list[DataFile]) -> None:
        self._lease.check()
        try:
            append_once(table, marker, files)
        except MarkerLostError:
            self._lease.check()  # another consumer that took over is the clearer reason
            raise

    def _contract(self, digest: str) -> Contract:
        missing = f"A micro-batch was started with a contract ({digest[:12]}…) that the landing log does not have."
        return recorded_contract(self._contracts, digest, missing)


def _number(marker: Marker, begun: Committed | None, before: Committed | None, least: int) -> int:
    """The number of a micro-batch in the tables: one more than that of the one before, whatever checkpoint that had."""
    if begun and begun.marker.holds_the_same(marker):
        return begun.marker.micro_batch_id
    return max(before.marker.micro_batch_id + 1 if before else 0, least)


def _with(parts: Sequence[PartT], touched: Iterable[PartT]) -> list[PartT]:
    newer = {part.name: part for part in touched}
    return [newer.get(part.name, part) for part in parts]


def _totals(outcomes: Mapping[Outcome, int], drift: Mapping[Drift, int], batch: MicroBatch) -> dict[str, object]:
    dead: dict[str, int] = {}
    drifted: dict[str, int] = {}
    for (_, reasons), count in outcomes.items():
        if reasons is not None:
            dead[reasons] = dead.get(reasons, 0) + count
    for (_, reasons), count in drift.items():
        drifted[reasons] = drifted.get(reasons, 0) + count
    return {
        "bronze": sum(count for (_, reasons), count in outcomes.items() if reasons is None),
        "dead_letters": sum(dead.values()),
        "reasons": dict(sorted(dead.items())),
        **({DRIFT_COUNTS[batch.contract.drift]: dict(sorted(drifted.items()))} if drifted else {}),
    }
