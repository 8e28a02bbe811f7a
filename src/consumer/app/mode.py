"""The query of a mode on Kafka alone."""

from collections.abc import Mapping
from threading import Thread

from pyspark.sql import SparkSession

from consumer.app.failures import explained
from consumer.app.following import Following, follow
from consumer.app.trigger import Trigger
from consumer.bulletin import Bulletin
from consumer.layers.bronze.tasks import warm_up
from consumer.modes.micro_batches import MicroBatches
from lakeproof.errors import LakeproofError
from lakeproof.kafka.modes import Mode
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease, mode_lease


class ModeQuery:
    """See :class:`consumer.app.application.Query`.

    Parameters
    ----------
    settings
        Where everything is.
    mode
        What to do.
    trigger
        When it looks for new messages.
    """

    spark_settings: Mapping[str, str] = {}

    def __init__(self, settings: Settings, mode: Mode, trigger: Trigger) -> None:
        self._settings = settings
        self._trigger = trigger
        self._process = MicroBatches(settings, mode, to_the_end=trigger.available_now)
        self._lease: Lease | None = None
        self.name = str(mode.name)
        # Two modes of the same kind may run beside each other, with a checkpoint each.
        self.lease_name = mode_lease(mode.name, mode.checkpoint)
        self.follows: str | None = None

    @property
    def micro_batches(self) -> int:
        """How many micro-batches it has finished."""
        return self._process.count

    def prepare(self) -> None:
        """See that topics, folders and checkpoint fit together."""
        self._process.prepare()

    def resume(self, spark: SparkSession, held: Lease) -> None:  # noqa: ARG002 - the first micro-batch does it
        """Remember the lease."""
        self._lease = held

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Following:
        """Start it."""
        Thread(target=warm_up, args=(spark,), name="warm-up", daemon=True).start()

        def take(session: SparkSession) -> bool:
            if self._lease:
                self._lease.check()
            return self._process.take(session)

        return follow(spark, self.name, take, self._trigger.seconds, bulletin)

    def explain(self, error: Exception) -> LakeproofError:
        """Say why it failed."""
        return explained(error, self._settings)
