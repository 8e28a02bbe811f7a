"""The query that maintains the tables of running streams."""

from time import monotonic
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from consumer.iceberg.append import open_table
from consumer.iceberg.growth import Growth, growth
from consumer.iceberg.jvm import first_cause, is_cancelled
from consumer.maintenance.landing_logs import shorten_logs
from consumer.maintenance.maintain import LEASE, maintain_table, prepare, tables_of
from consumer.queries.application import Query
from consumer.queries.bulletin import Bulletin
from consumer.queries.failures import explained
from consumer.queries.following import Following, follow
from consumer.removal.retain import lines, retain_all, streams_with_retention
from lakeproof.errors import LakeproofError
from lakeproof.settings import MaintenanceSettings, Settings
from lakeproof.state.lease import Lease, LeaseHeldError, lease, maintenance_lease

log = structlog.get_logger()

_LOOK_SECONDS = 30.0
_RETENTION_SECONDS = 3_600.0  # it lists the whole landing zone
_TAG = "lakeproof-maintenance"  # of its jobs in Spark


class MaintenanceQuery(Query):
    """Maintains tables at an interval, and a table that has grown much at once; removes expired files and rows.

    A failure is logged, and the work is tried again the next time.

    A stop does not wait for maintenance, which may be interrupted at any point.
    """

    name = "maintenance"
    weight = 1

    def __init__(self, settings: Settings, streams: list[str]) -> None:
        self._settings = settings
        self._streams = streams
        self._seen: dict[str, int] = {}  # sequence number of the newest commit after its last maintenance, by table
        self._retained_at: float | None = None
        self.lease_name = maintenance_lease(streams)

    def prepare(self) -> None:
        """Do nothing: the other queries create the tables."""

    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Do nothing: the next maintenance cleans up after a killed one."""

    def start(self, spark: SparkSession, bulletin: Bulletin) -> "Interruptible":
        """Start the query. The first look is delayed: a consumer that starts has other work."""
        every = self._settings.maintenance.every_minutes * 60
        next_time: float | None = None

        def take(session: SparkSession) -> bool:
            nonlocal next_time
            now = monotonic()
            if next_time is None:
                next_time = now + every
                return False
            is_time = now >= next_time
            if is_time:
                next_time = now + every
            if not self._maintain(session, bulletin, is_time=is_time) and is_time:
                # Tried again at the next look, not after the interval: the maintenance of another consumer may always
                # begin just before this one.
                next_time = now
            # Not only after the interval: a consumer that is often restarted may never live for so long.
            if self._retained_at is None or now >= self._retained_at + _RETENTION_SECONDS:
                self._retained_at = now
                self.retain(session, bulletin)
            return False

        look = min(every, _LOOK_SECONDS)
        return Interruptible(spark, follow(spark, self.name, take, look, bulletin, at_once=False))

    def _maintain(self, spark: SparkSession, bulletin: Bulletin, *, is_time: bool) -> bool:
        """Maintain each table that has grown enough, or all if it is time; return False if another one is running.

        Orphan files are left to `consumer maintain`: finding them requires a listing of all files.
        """

        def skipped(name: str, error: LakeproofError) -> None:
            if is_time:  # not at each look
                kind = "table" if "." in name else "stream"
                log.warning("maintenance failed", **{kind: name}, problem=error.message)

        prepare(spark)
        spark.sparkContext.addJobTag(_TAG)
        try:
            tables = tables_of(self._settings, self._streams, skipped)
            due = {name: own for name, own in tables.items() if is_time or self._has_grown(spark, name, own)}
            if not due:
                return True
            with lease(self._settings.state.database, LEASE):
                for name, own in due.items():
                    if bulletin.is_stopping:
                        return True
                    maintain_table(spark, name, own, None)
                    self._seen[name] = self._growth(spark, name, own).newest
                if is_time:
                    shorten_logs(self._settings, self._streams, lambda: bulletin.is_stopping)
            self.micro_batches += 1
        except LeaseHeldError:
            log.info("another maintenance is running")
            return False
        except LakeproofError as error:
            log.warning("maintenance failed", problem=error.message)
        return True

    def retain(self, spark: SparkSession, bulletin: Bulletin) -> None:
        """Remove landed files and rows of tables whose retention in the contract has expired."""
        spark.sparkContext.addJobTag(_TAG)
        for stream in self._streams:
            self._retain(stream, spark, bulletin)

    def _retain(self, stream: str, spark: SparkSession, bulletin: Bulletin) -> None:
        try:
            for done in retain_all(
                self._settings,
                streams_with_retention(self._settings, [stream]),
                None,
                None,
                lambda: spark,
                is_ending=lambda: bulletin.is_stopping,
            ):
                if done.is_unavailable:
                    log.warning("retention failed", stream=stream, problem=done.problem)
                elif done.removed or done.problem or any(each.removed for each in done.rows):
                    log.info("retention", stream=stream, said=" ".join(map(str.strip, lines([done], dry_run=False))))
        except LeaseHeldError:
            self._retained_at = None  # tried again at the next look
            log.info("another retention is running")
        except LakeproofError as error:
            log.warning("retention failed", stream=stream, problem=error.message)
        except (Py4JError, PySparkException) as error:
            if is_cancelled(error):
                log.info("retention interrupted")
            else:
                log.warning("retention failed", stream=stream, problem=first_cause(error))

    def _has_grown(self, spark: SparkSession, name: str, own: MaintenanceSettings) -> bool:
        """Return whether enough was committed since the last compaction, or our last one, to justify another."""
        found = self._growth(spark, name, own)
        return (
            found.commits >= own.after_commits or found.files >= own.after_files or found.bytes >= own.after_mib << 20
        )

    def _growth(self, spark: SparkSession, name: str, own: MaintenanceSettings) -> Growth:
        try:
            # The same limit as in `options_of`: Iceberg rewrites files of less than half the target size.
            return growth(open_table(spark, name, self.name), own.file_mib << 19, self._seen.get(name, 0))
        except (Py4JError, PySparkException):
            return Growth()  # a table that cannot be read is reported when it is time for it

    def explain(self, error: Exception) -> LakeproofError:
        """Return the reason for a failure."""
        return explained(error, self._settings, self._streams[0])


class Interruptible:
    """A query in our own loop that a stop does not wait for; see :class:`consumer.queries.running.Running`."""

    is_busy = False

    def __init__(self, spark: SparkSession, following: Following) -> None:
        self._spark = spark
        self._following = following

    @property
    def has_ended(self) -> bool:
        """Whether its thread has ended."""
        return self._following.has_ended

    def failure(self) -> Exception | None:
        """Return the error that ended the query; None without an error."""
        return self._following.failure()

    def drain(self) -> None:
        """Do nothing: there is always more to maintain."""

    def stop(self) -> None:
        """End the query, and cancel its running jobs."""
        context: Any = self._spark.sparkContext
        context.cancelJobsWithTag(_TAG)
        self._following.stop()
