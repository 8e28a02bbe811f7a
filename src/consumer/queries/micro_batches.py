"""A micro-batch is judged once, then appended to bronze, the dead letters and the ledger, in this order."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from threading import Lock
from time import monotonic

import structlog
from pyspark.sql import DataFrame, SparkSession

from consumer.bronze.append import Marker, append_once, target
from consumer.bronze.data_files import DataFile, DataFileWriter
from consumer.bronze.recover import accounted_sources, has_other_checkpoints, unfinished, units_of
from consumer.bronze.rows import DRIFT_COUNTS, Drift, MicroBatch, Outcome, ledger_rows
from consumer.bronze.write import Task, write_judged
from consumer.sources.landing_log import LandedFile, LandingLog
from consumer.sources.lease import Lease
from lakeproof.contract_log import ContractLog
from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.storage import StoredFile, open_storage
from lakeproof.tables import LEDGER, stream_tables

log = structlog.get_logger()


class MicroBatches:
    """Takes the micro-batches of a stream; what ``foreachBatch`` calls.

    Parameters
    ----------
    settings
        How to reach the landing zone.
    contract
        The stream's contract when the consumer starts; each micro-batch names the one that judges it.
    landing_log
        Which files were discovered.
    lease
        The stream's lease, which is checked before each append.
    """

    def __init__(self, settings: Settings, contract: Contract, landing_log: LandingLog, lease: Lease) -> None:
        self._settings = settings
        self._tables = stream_tables(contract.stream)
        self._stream = contract.stream
        self._first_contract = contract.digest
        self._landing_log = landing_log
        self._contracts = ContractLog(settings.landing_log_database)
        self._lease = lease
        self._recovering = Lock()
        self._recovered = False
        self._others_in_ledger = False
        self.count = 0
        self.failure: Exception | None = None

    def __call__(self, rows: DataFrame, micro_batch_id: int) -> None:
        """Judge and append the files that `rows` name, unless that has been done."""
        try:
            self._process(rows, micro_batch_id)
        except Exception as error:
            self.failure = error  # Spark makes a long text of it
            raise

    def recover(self, spark: SparkSession, checkpoint_id: str) -> None:
        """Finish what a checkpoint that is lost by now had begun. Does nothing from the second call on.

        A micro-batch of `checkpoint_id` itself needs no help: Spark will try it again.
        """
        with self._recovering:
            if self._recovered:
                return
            snapshot = unfinished(spark, self._tables)
            if snapshot is not None and snapshot.marker.checkpoint_id != checkpoint_id:
                self._finish(spark, snapshot.marker)
            self._others_in_ledger = has_other_checkpoints(spark, self._stream, checkpoint_id)
            self._recovered = True

    def _process(self, rows: DataFrame, micro_batch_id: int) -> None:
        began = monotonic()
        spark = rows.sparkSession  # a clone of the session, with this query's settings
        checkpoint_id = str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        self.recover(spark, checkpoint_id)
        landed = rows.toArrow().to_pylist()
        # The first one is empty where nothing has landed yet; it is appended all the same, for the sequence of markers.
        contract = self._contract(landed[0]["contract"] if landed else self._first_contract)
        files = [LandedFile(**{key: row[key] for key in row if key != "contract"}) for row in landed]
        if self._others_in_ledger and files:
            known = accounted_sources(spark, self._stream, (file.uri for file in files), checkpoint_id)
            files = [file for file in files if file.uri not in known]
        batch = MicroBatch(micro_batch_id, checkpoint_id, contract, datetime.now(UTC))
        totals = self._complete(spark, files, batch)
        self.count += 1
        log.info(
            "micro-batch",
            stream=self._stream,
            id=micro_batch_id,
            contract=contract.version,
            files=len(files),
            known=len(landed) - len(files),
            bytes=sum(file.size for file in files),
            **totals,
            seconds=round(monotonic() - began, 3),
        )

    def _finish(self, spark: SparkSession, marker: Marker) -> None:
        """Append the dead letters and the ledger rows that a micro-batch of a lost checkpoint still lacks."""
        contract = self._contract(marker.contract)
        files = self._as_listed(units_of(spark, self._tables, marker))
        batch = MicroBatch(marker.micro_batch_id, marker.checkpoint_id, contract, datetime.now(UTC))
        totals = self._complete(spark, files, batch)
        log.warning(
            "finished the micro-batch of a lost checkpoint",
            stream=self._stream,
            checkpoint=marker.checkpoint_id,
            id=marker.micro_batch_id,
            files=len(files),
            **totals,
        )

    def _complete(self, spark: SparkSession, files: list[LandedFile], batch: MicroBatch) -> dict[str, object]:
        """Append what the tables do not have yet of a micro-batch; return what became of its units, for the log."""
        marker = Marker(batch.checkpoint_id, batch.id, batch.contract.digest)
        names = self._tables
        bronze, dead_letters = target(spark, names.bronze, marker), target(spark, names.dead_letters, marker)
        written = write_judged(spark, files, Task(batch, bronze, dead_letters, self._settings.s3))
        outcomes = dict(written.outcomes)
        if written.changed:
            # What they held when they were judged is in the tables, and can only be counted there.
            log.warning("changed since they were judged", stream=self._stream, files=sorted(written.changed))
            held = units_of(spark, names, marker)
            outcomes |= {(source, None): held[source] for source in written.changed if held.get(source)}
        # The ledger comes last: a ledger row means that all before it is committed.
        self._append(spark, names.bronze, marker, written.bronze)
        self._append(spark, names.dead_letters, marker, written.dead_letters)
        ledger = target(spark, LEDGER, marker)
        if ledger is not None:
            writer = DataFileWriter(ledger, open_storage(ledger.folder, self._settings.s3))
            writer.write(ledger_rows(files, outcomes, written.drift, batch))
            self._append(spark, LEDGER, marker, writer.close())
        return _totals(outcomes, written.drift, batch)

    def _append(self, spark: SparkSession, table: str, marker: Marker, files: list[DataFile]) -> None:
        self._lease.check()
        append_once(spark, table, marker, files)

    def _as_listed(self, uris: Iterable[str]) -> list[LandedFile]:
        """Look up files in the landing log; one that it does not have (it may be new) is looked at where it lies."""
        listed = {file.uri: file for file in self._landing_log.files(0, self._landing_log.head())}
        found = []
        for uri in sorted(uris):
            if uri not in listed:
                seen = open_storage(uri, self._settings.s3).stat(uri) or StoredFile(uri, 0, "gone", datetime.now(UTC))
                listed[uri] = LandedFile(0, seen.uri, seen.size, seen.etag, seen.modified_at)
            found.append(listed[uri])
        return found

    def _contract(self, digest: str) -> Contract:
        text = self._contracts.text(digest)
        if text is None:
            raise LakeproofError(
                f"A micro-batch was begun under a contract ({digest[:12]}…) whose text the landing log does not have.",
                "Restore the landing log's database, or give LAKE_LANDING_LOG_URI its address.",
            )
        return parse_contract(text, f"contract {digest[:12]}")


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
