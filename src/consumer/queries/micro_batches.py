"""A micro-batch is judged once, then appended to bronze, the dead letters and the ledger, in this order."""

from collections.abc import Iterable
from datetime import UTC, datetime
from threading import Lock
from time import monotonic

import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from consumer.bronze import frames
from consumer.bronze.append import Marker, append_once
from consumer.bronze.judged import judge_files
from consumer.bronze.recover import accounted_sources, has_other_checkpoints, unfinished, units_of
from consumer.sources.landing_log import LandedFile, LandingLog
from consumer.sources.lease import Lease
from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.reasons import Reason
from lakeproof.settings import Settings
from lakeproof.storage import StoredFile, open_storage
from lakeproof.tables import LEDGER, REASONS, stream_tables

log = structlog.get_logger()


class MicroBatches:
    """Takes the micro-batches of a stream; what ``foreachBatch`` calls.

    Parameters
    ----------
    settings
        How to reach the landing zone.
    stream
        Name of the stream.
    landing_log
        Has the texts of the contracts that micro-batches were begun under.
    lease
        The stream's lease, which is checked before each append.
    """

    def __init__(self, settings: Settings, stream: str, landing_log: LandingLog, lease: Lease) -> None:
        self._settings = settings
        self._tables = stream_tables(stream)
        self._stream = stream
        self._landing_log = landing_log
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
        contract = self._contract(landed[0]["contract"])
        files = [LandedFile(**{key: row[key] for key in row if key != "contract"}) for row in landed]
        if self._others_in_ledger:
            known = accounted_sources(spark, self._stream, (file.uri for file in files), checkpoint_id)
            files = [file for file in files if file.uri not in known]
        batch = frames.MicroBatch(micro_batch_id, checkpoint_id, contract, datetime.now(UTC))
        marker = Marker(checkpoint_id, micro_batch_id, contract.digest)

        judged = judge_files(spark, files, contract, self._settings.s3)
        judged.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            # The ledger comes last: a ledger row means that all before it is committed.
            self._append(frames.bronze_rows(judged, batch), self._tables.bronze, marker)
            self._append(frames.dead_letter_rows(judged, batch), self._tables.dead_letters, marker)
            outcomes = frames.count_outcomes(judged)
            self._append(frames.ledger_rows(spark, files, outcomes, batch), LEDGER, marker)
        finally:
            judged.unpersist()
        self.count += 1
        log.info(
            "micro-batch",
            stream=self._stream,
            id=micro_batch_id,
            files=len(files),
            known=len(landed) - len(files),
            bytes=sum(file.size for file in files),
            **_totals(outcomes),
            seconds=round(monotonic() - began, 3),
        )

    def _append(self, frame: DataFrame, table: str, marker: Marker) -> None:
        self._lease.check()
        append_once(frame, table, marker)

    def _finish(self, spark: SparkSession, marker: Marker) -> None:
        """Append the dead letters and the ledger rows that a micro-batch of a lost checkpoint still lacks."""
        contract = self._contract(marker.contract)
        held = units_of(spark, self._tables, marker)
        files = self._as_listed(held)
        batch = frames.MicroBatch(marker.micro_batch_id, marker.checkpoint_id, contract, datetime.now(UTC))
        judged = judge_files(spark, files, contract, self._settings.s3)
        judged.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            gone = judged[REASONS][0]["code"].eqNullSafe(Reason.CHANGED.value)
            self._append(frames.dead_letter_rows(judged.where(~gone), batch), self._tables.dead_letters, marker)
            outcomes = frames.count_outcomes(judged.where(~gone))
            changed = held.keys() - {source for source, _ in outcomes}
            outcomes |= {(source, None): held[source] for source in changed if held[source]}
            self._append(frames.ledger_rows(spark, files, outcomes, batch), LEDGER, marker)
        finally:
            judged.unpersist()
        log.warning(
            "finished the micro-batch of a lost checkpoint",
            stream=self._stream,
            checkpoint=marker.checkpoint_id,
            id=marker.micro_batch_id,
            files=len(files),
            changed_since=sorted(changed),
            **_totals(outcomes),
        )

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
        text = self._landing_log.contract_text(digest)
        if text is None:
            raise LakeproofError(
                f"A micro-batch was begun under a contract ({digest[:12]}…) whose text the landing log does not have.",
                "Restore the landing log's database, or give LAKE_LANDING_LOG_URI its address.",
            )
        return parse_contract(text, f"contract {digest[:12]}")


def _totals(outcomes: dict[frames.Outcome, int]) -> dict[str, object]:
    dead: dict[str, int] = {}
    for (_, reasons), count in outcomes.items():
        if reasons is not None:
            dead[reasons] = dead.get(reasons, 0) + count
    return {
        "bronze": sum(count for (_, reasons), count in outcomes.items() if reasons is None),
        "dead_letters": sum(dead.values()),
        "reasons": dict(sorted(dead.items())),
    }
