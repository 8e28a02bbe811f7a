"""The query from the landing zone to bronze, the dead letters and the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from consumer.app.declining import Declining
from consumer.app.failures import explained
from consumer.app.following import Following
from consumer.bulletin import Bulletin
from consumer.iceberg.marker import Marker
from consumer.layers.bronze.micro_batches import MicroBatches
from consumer.layers.bronze.recovery import Standing, standing
from consumer.layers.bronze.tasks import warm_up
from consumer.sources.kafka.schema_ids import SchemaIds
from consumer.sources.registry import SOURCES, OpenSource
from consumer.sources.source import Source
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query, checkpoint_folder
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import LakeproofError
from lakeproof.history.apply import adopt
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import Lease
from lakeproof.tables.names import StreamTables, stream_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

log = structlog.get_logger()

_SECONDS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


@dataclass(frozen=True)
class Trigger:
    """When a query looks for what is new.

    Parameters
    ----------
    available_now
        Take what has landed by now and end, instead of waiting for more.
    every
        Time between two looks, as Spark writes it: ``5 seconds``.
    """

    available_now: bool = False
    every: str = "1 second"

    @property
    def seconds(self) -> float:
        """The same time in seconds."""
        number, unit = self.every.split()
        return float(number) * _SECONDS[unit.removesuffix("s")]


class BronzeQuery:
    """The query of one stream; see :class:`consumer.app.application.Query`.

    Parameters
    ----------
    settings
        Where everything is.
    stream
        Name of the stream; its contract is ``<contracts>/<stream>.yaml``.
    trigger
        When it looks for what is new.
    source
        Kind of its source, see :data:`consumer.sources.registry.SOURCES`.
    """

    spark_settings: Mapping[str, str] = {
        # Only recovery shuffles, and little: more partitions would only cost their scheduling.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
    }

    def __init__(self, settings: Settings, stream: str, trigger: Trigger, source: str = "files") -> None:
        self._settings = settings
        self._trigger = trigger
        self._source = source
        self._plan: _Plan | None = None
        self._process: MicroBatches[Any] | None = None
        self.stream = stream
        self.name = bronze_query(stream)
        self.lease_name = stream
        self.follows: str | None = None

    @property
    def micro_batches(self) -> int:
        """How many micro-batches it has finished."""
        return self._process.count if self._process else 0

    def prepare(self) -> None:
        """Make what is missing, and see where the tables are."""
        self._plan = _prepare(self._settings, self.stream, self.name, SOURCES[self._source], self._trigger)

    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Finish the micro-batch that bronze has and the ledger lacks, and find where to go on."""
        plan = self._prepared
        limits = self._settings.limits
        self._process = MicroBatches(
            self.stream, self.name, plan.source, plan.contracts, held, limits, self._settings.s3, plan.schema_ids.of
        )
        if plan.unfinished:
            self._process.finish(spark, plan.unfinished)
            with catalog_errors():
                catalog, names = open_catalog(self._settings), stream_tables(self.stream)
                _resume(catalog, names, plan.source, standing(catalog, names, self.name, plan.source.is_origin))

    def start(self, spark: SparkSession, bulletin: Bulletin) -> StreamingQuery | Declining | Following:
        """Start the streaming query."""
        plan, process = self._prepared, self._processing
        waiting = plan.source.waiting()
        rows = plan.source.rows(spark, bulletin)
        Thread(target=warm_up, args=(spark,), name="warm-up", daemon=True).start()

        def take(parts: DataFrame, micro_batch_id: int) -> None:
            process(parts, micro_batch_id)
            bulletin.note_progress(self.name)

        every = self._trigger.every
        writer = (
            rows.writeStream.queryName(self.name)
            .option("checkpointLocation", checkpoint_folder(self._settings, self.name))
            .foreachBatch(take)
        )
        if self._trigger.available_now and plan.source.knows_its_end:
            running = writer.trigger(availableNow=True).start()
        else:
            running = writer.trigger(processingTime="0 seconds" if self._trigger.available_now else every).start()
        log.info(
            "started",
            stream=self.stream,
            landing=plan.source.root,
            contract=plan.contract.version,
            mode="available now" if self._trigger.available_now else f"every {every}",
            waiting=waiting,
        )
        return Declining(running, lambda: process.failure) if plan.source.knows_its_end else running

    def explain(self, error: Exception) -> LakeproofError:
        """Say why it failed: what a micro-batch raised, what it depends on and is away, or what Spark says."""
        failure = (self._process.failure if self._process else None) or error
        if self._plan and not isinstance(failure, LakeproofError):
            try:
                self._plan.source.check()
            except LakeproofError as found:
                return found
        return explained(failure, self._settings, self.stream)

    @property
    def _processing(self) -> MicroBatches[Any]:
        if self._process is None:
            raise RuntimeError("A query is resumed before it is started.")
        return self._process

    @property
    def _prepared(self) -> "_Plan":
        if self._plan is None:
            raise RuntimeError("A query is prepared before it is resumed.")
        return self._plan


@dataclass(frozen=True)
class _Plan:
    """What the query needs."""

    contract: Contract
    contracts: ContractLog
    source: Source[Any]
    unfinished: Marker | None
    schema_ids: SchemaIds


def _prepare(settings: Settings, stream: str, query: str, open_source: OpenSource, trigger: Trigger) -> _Plan:
    """Make what is missing, let the contract be the current one, and see where the tables are."""
    contracts = ContractLog(settings.state.database)
    catalog = open_catalog(settings)
    source = open_source(settings, stream, query, trigger.available_now)
    names = stream_tables(stream)
    if not catalog.table_exists(names.bronze):
        source.check_without_tables()
    schema_ids = SchemaIds(settings, stream)
    schema_ids.check(load_contract(settings.contracts, stream))
    contract = adopt(catalog, settings, stream, contracts)
    source.prepare(catalog)
    schema_ids.prepare(contract)
    found = standing(catalog, names, query, source.is_origin)
    if not found.unfinished:
        _resume(catalog, names, source, found)
    return _Plan(contract, contracts, source, found.unfinished, schema_ids)


def _resume(catalog: "Catalog", names: StreamTables, source: Source[Any], found: Standing) -> None:
    source.resume(catalog.load_table(names.ledger), found.accounted)
