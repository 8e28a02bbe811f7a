"""The query from bronze to silver, its conflicts, its late rows and its ledger."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from consumer.app.failures import explained
from consumer.app.following import Following, follow
from consumer.bulletin import Bulletin
from consumer.layers.silver.micro_batches import SilverMicroBatches
from consumer.queries.bronze import Trigger
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease, silver_lease
from lakeproof.tables.names import silver_query, silver_tables
from lakeproof.tables.schemas import ensure_silver_tables


class SilverQuery:
    """The query of one stream; see :class:`consumer.app.application.Query`.

    Parameters
    ----------
    settings
        Where everything is.
    stream
        Name of the stream.
    trigger
        When it looks for what is new in bronze.
    """

    spark_settings: Mapping[str, str] = {
        # A micro-batch is small: more partitions would only cost their scheduling.
        "spark.sql.shuffle.partitions": "4",
    }

    def __init__(self, settings: Settings, stream: str, trigger: Trigger) -> None:
        self._settings = settings
        self._trigger = trigger
        self._process: SilverMicroBatches | None = None
        self.stream = stream
        self.name = silver_query(stream)
        self.lease_name = silver_lease(stream)
        self.follows = bronze_query(stream)

    @property
    def micro_batches(self) -> int:
        """How many micro-batches it has finished."""
        return self._process.count if self._process else 0

    def prepare(self) -> None:
        """Make the tables that are missing."""
        contract = load_contract(self._settings.contracts, self.stream)
        ensure_silver_tables(open_catalog(self._settings), contract, silver_tables(self.stream))

    def resume(self, spark: SparkSession, held: Lease) -> None:  # noqa: ARG002 - what was begun is the first to be taken
        """Find where to go on: the tables say so."""
        contracts = ContractLog(self._settings.state.database)
        tables = silver_tables(self.stream)
        self._process = SilverMicroBatches(self._settings, self.stream, tables, contracts, held)

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Following:
        """Start the query."""
        if self._process is None:
            raise RuntimeError("A query is resumed before it is started.")
        process = self._process

        def take(spark: SparkSession) -> bool:
            took = process.take(spark)
            bulletin.note_backlog(self.name, there_is=process.has_backlog)
            return took

        return follow(spark, self.name, take, self._trigger.seconds, bulletin, follows=self.follows)

    def explain(self, error: Exception) -> LakeproofError:
        """Say why it failed."""
        return explained(error, self._settings, self.stream)
