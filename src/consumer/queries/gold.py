"""The query from silver to a data product."""

from collections.abc import Callable, Mapping
from time import monotonic

from pyspark.sql import SparkSession

from consumer.app.failures import explained
from consumer.app.following import Following, follow
from consumer.bulletin import Bulletin
from consumer.layers.gold.micro_batches import GoldMicroBatches
from consumer.layers.gold.table import ensure_gold_table
from consumer.queries.bronze import Trigger
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import Product
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease, gold_lease
from lakeproof.tables.names import gold_query, gold_table, silver_query
from lakeproof.tables.schemas import ensure_namespace

PATIENCE_SECONDS = 30.0
"""How long gold lets silver catch up, at most."""


class GoldQuery:
    """The query of one product; see :class:`consumer.app.application.Query`.

    Parameters
    ----------
    settings
        Where everything is.
    product
        The product.
    trigger
        When it looks for what is new in silver.
    """

    spark_settings: Mapping[str, str] = {
        # A micro-batch is small: more partitions would only cost their scheduling.
        "spark.sql.shuffle.partitions": "4",
    }

    def __init__(self, settings: Settings, product: Product, trigger: Trigger) -> None:
        self._settings = settings
        self._product = product
        self._trigger = trigger
        self._process: GoldMicroBatches | None = None
        self._table = gold_table(product.name)
        self.name = gold_query(product.name)
        self.lease_name = gold_lease(product.name)
        self.follows = silver_query(product.stream)

    @property
    def micro_batches(self) -> int:
        """How many micro-batches it has finished."""
        return self._process.count if self._process else 0

    def prepare(self) -> None:
        """Make the namespace of the table."""
        ensure_namespace(open_catalog(self._settings), self._table.split(".")[0])

    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Make the table if it is missing. Where to resume from, the table itself says."""
        ensure_gold_table(spark, self._product, self._table)
        contracts = ContractLog(self._settings.state.database)
        self._process = GoldMicroBatches(self._settings, self._product, self._table, contracts, held)

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Following:
        """Start the query."""
        if self._process is None:
            raise RuntimeError("A query is resumed before it is started.")
        take = patiently(self._process.take, lambda: bulletin.has_backlog(self.follows))
        return follow(spark, self.name, take, self._trigger.seconds, bulletin, follows=self.follows)

    def explain(self, error: Exception) -> LakeproofError:
        """Say why it failed."""
        return explained(error, self._settings, self._product.stream)


def patiently(take: Callable[[SparkSession], bool], has_backlog: Callable[[], bool]) -> Callable[[SparkSession], bool]:
    """Take less often while silver catches up: each of its micro-batches would touch the same windows again.

    Parameters
    ----------
    take
        Takes what silver has decided.
    has_backlog
        Whether silver has more to decide at once.
    """
    taken_at = monotonic()

    def take_or_wait(spark: SparkSession) -> bool:
        nonlocal taken_at
        if has_backlog() and monotonic() - taken_at < PATIENCE_SECONDS:
            return False
        took = take(spark)
        taken_at = monotonic()
        return took

    return take_or_wait
