"""The query of a mode on Kafka alone: it runs its layer without a catalog."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from consumer.modes.layer import ModeLayer
from consumer.queries.bulletin import Bulletin
from consumer.queries.failures import explained
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from lakeproof.errors import LakeproofError
from lakeproof.kafka.modes import Mode
from lakeproof.settings import Settings


class ModeQuery(LayerQuery):
    """The query of a mode."""

    spark_settings: Mapping[str, str] = {}

    def __init__(self, settings: Settings, mode: Mode, trigger: Trigger) -> None:
        self._mode = ModeLayer(settings, mode, to_the_end=trigger.available_now)
        super().__init__(settings, self._mode, trigger)

    @property
    def key_index(self) -> Path | None:
        """Folder of the index of ids; None before the checkpoint is read."""
        return self._mode.key_index

    def prepare(self) -> None:
        """Check that topics, folders and checkpoint fit together."""
        self._mode.resume()

    def look(self, spark: SparkSession, bulletin: Bulletin) -> bool:
        """Take a micro-batch; check the lease here, too, since messages are set aside before the first commit."""
        if self._lease:
            self._lease.check()
        return super().look(spark, bulletin)

    def explain(self, error: Exception) -> LakeproofError:
        """Return the reason for a failure."""
        return explained(error, self._settings)
