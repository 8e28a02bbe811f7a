"""The query from silver to a product of samples."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from consumer.app.failures import explained
from consumer.app.following import Following, follow
from consumer.bulletin import Bulletin
from consumer.layers.samples.micro_batches import SamplesMicroBatches
from consumer.queries.bronze import Trigger
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError
from lakeproof.gold.samples import Samples
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease, gold_lease
from lakeproof.tables.names import gold_query, samples_tables, silver_query
from lakeproof.tables.schemas import ensure_samples_tables


class SamplesQuery:
    """The query of one product of samples; see :class:`consumer.app.application.Query`.

    Parameters
    ----------
    settings
        Where everything is.
    samples
        The product. It says how often the query looks for what is new.
    trigger
        Whether it ends when it has taken what is there.
    """

    spark_settings: Mapping[str, str] = {
        # A micro-batch is small: more partitions would only cost their scheduling.
        "spark.sql.shuffle.partitions": "4",
    }

    def __init__(self, settings: Settings, samples: Samples, trigger: Trigger) -> None:
        self._settings = settings
        self._samples = samples
        self._trigger = trigger
        self._seconds = trigger.seconds if trigger.available_now else samples.every.total_seconds()
        self._process: SamplesMicroBatches | None = None
        self._tables = samples_tables(samples.name, samples.anomalies)
        self.name = gold_query(samples.name)
        self.lease_name = gold_lease(samples.name)
        self.follows = silver_query(samples.stream)

    @property
    def micro_batches(self) -> int:
        """How many micro-batches it has finished."""
        return self._process.count if self._process else 0

    def prepare(self) -> None:
        """Make the tables that are missing."""
        ensure_samples_tables(open_catalog(self._settings), self._samples, self._tables)

    def resume(self, spark: SparkSession, held: Lease) -> None:  # noqa: ARG002 - what was begun is the first to be taken
        """Find where to go on: the tables say so."""
        contracts = ContractLog(self._settings.state.database)
        self._process = SamplesMicroBatches(self._settings, self._samples, self._tables, contracts, held)

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Following:
        """Start the query."""
        if self._process is None:
            raise RuntimeError("A query is resumed before it is started.")
        # Silver goes on all the time. A micro-batch takes all that is there, so a second one could wait for more.
        return follow(
            spark,
            self.name,
            self._process.take,
            self._seconds,
            bulletin,
            at_once=self._trigger.available_now,
        )

    def explain(self, error: Exception) -> LakeproofError:
        """Say why it failed."""
        return explained(error, self._settings, self._samples.stream)
