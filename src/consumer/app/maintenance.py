"""The query that maintains the tables of streams while these run."""

from typing import Any

import structlog
from pyspark.sql import SparkSession

from consumer.app.application import Query
from consumer.app.failures import explained
from consumer.app.following import Following, follow
from consumer.app.maintain import LEASE, maintain_table, prepare, tables_of
from consumer.bulletin import Bulletin
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease, LeaseHeldError, lease, maintenance_lease

log = structlog.get_logger()

_TAG = "lakeproof-maintenance"  # of its jobs in Spark


class MaintenanceQuery(Query):
    """Maintains the tables of streams every so often. What fails is logged, and tried again the next time.

    A stop does not wait for it: a maintenance may be interrupted at any point.
    """

    name = "maintenance"

    def __init__(self, settings: Settings, streams: list[str]) -> None:
        self._settings = settings
        self._streams = streams
        self.lease_name = maintenance_lease(streams)

    def prepare(self) -> None:
        """Nothing to do: the other queries make the tables."""

    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Nothing to do: what a killed maintenance left is tidied up by the next one."""

    def start(self, spark: SparkSession, bulletin: Bulletin) -> "Interruptible":
        """Start it. The first maintenance comes after the time that is between two."""
        every = self._settings.maintenance.every_minutes * 60
        is_first = True

        def take(session: SparkSession) -> bool:
            nonlocal is_first
            if not is_first:
                self._maintain(session, bulletin)
            is_first = False
            return False

        return Interruptible(spark, follow(spark, self.name, take, every, bulletin, at_once=False))

    def _maintain(self, spark: SparkSession, bulletin: Bulletin) -> None:
        """Maintain each table. Orphan files are left to `consumer maintain`: to find them takes a listing of all."""
        prepare(spark)
        spark.sparkContext.addJobTag(_TAG)
        try:
            with lease(self._settings.state.database, LEASE):
                for name in tables_of(self._settings, self._streams):
                    if bulletin.stop_file.exists():
                        return
                    maintain_table(spark, name, self._settings.maintenance, None)
            self.micro_batches += 1
        except LeaseHeldError:
            log.info("another maintenance is running")
        except LakeproofError as error:
            log.warning("maintenance failed", problem=error.message)

    def explain(self, error: Exception) -> LakeproofError:
        """Say why it failed."""
        return explained(error, self._settings, self._streams[0])


class Interruptible:
    """A query in a loop of ours that a stop does not wait for; see :class:`consumer.app.running.Running`."""

    is_busy = False

    def __init__(self, spark: SparkSession, following: Following) -> None:
        self._spark = spark
        self._following = following

    @property
    def has_ended(self) -> bool:
        """Whether its thread has ended."""
        return self._following.has_ended

    def failure(self) -> Exception | None:
        """Why it failed."""
        return self._following.failure()

    def drain(self) -> None:
        """Do nothing: there is always more to maintain."""

    def stop(self) -> None:
        """End it, and cancel what it has begun."""
        context: Any = self._spark.sparkContext
        context.cancelJobsWithTag(_TAG)
        self._following.stop()
