"""The query from the landing zone to bronze, the dead letters and the ledger."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from consumer.bronze.micro_batches import MicroBatches
from consumer.bronze.tasks import warm_up
from consumer.bulletin import Bulletin
from consumer.commit.marker import Marker
from consumer.commit.recovery import place_to_go_on, standing
from consumer.session import first_cause
from consumer.sources.files.discovery import Discovery
from consumer.sources.files.stream import LandingOptions, landing_source
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query, checkpoint_folder, read_checkpoint
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.history.apply import adopt
from lakeproof.landing.root import check_landing_root
from lakeproof.landing.zone import LandingZone, landing_zone
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog, Position
from lakeproof.state.lease import Lease
from lakeproof.storage.local import local_path
from lakeproof.tables.names import stream_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

log = structlog.get_logger()


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


class BronzeQuery:
    """The query of one stream; see :class:`consumer.app.Query`.

    Parameters
    ----------
    settings
        Where everything is.
    stream
        Name of the stream; its contract is ``<contracts>/<stream>.yaml``.
    trigger
        When it looks for new files.
    """

    spark_settings: Mapping[str, str] = {
        # Only recovery shuffles, and little: more partitions would only cost their scheduling.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
    }

    def __init__(self, settings: Settings, stream: str, trigger: Trigger) -> None:
        self._settings = settings
        self._trigger = trigger
        self._plan: _Plan | None = None
        self._start: _Start | None = None
        self._process: MicroBatches | None = None
        self.stream = stream
        self.name = bronze_query(stream)
        self.lease_name = stream

    @property
    def takes_what_is_there(self) -> bool:
        """Whether it ends when it has taken what has landed."""
        return self._trigger.available_now

    @property
    def micro_batches(self) -> int:
        """How many micro-batches it has finished."""
        return self._process.count if self._process else 0

    def prepare(self) -> None:
        """Make what is missing, and see where the tables are."""
        self._plan = _prepare(self._settings, self)

    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Finish the micro-batch that bronze has and the ledger lacks, and find where to go on."""
        plan = self._prepared
        limits = self._settings.limits
        self._process = MicroBatches(self.stream, self.name, plan.zone, plan.landing_log, plan.contracts, held, limits)
        if plan.unfinished:
            self._process.finish(spark, plan.unfinished)
        with catalog_errors():
            self._start = plan.start or _settle(self._settings, self, plan.landing_log, plan.zone)

    def start(self, spark: SparkSession, bulletin: Bulletin) -> StreamingQuery:
        """Start the streaming query."""
        plan, start, process = self._prepared, self._start, self._process
        if start is None or process is None:
            raise RuntimeError("A query is resumed before it is started.")
        options = LandingOptions(
            self.name, self.stream, start.position, bulletin, start.until, pickle.dumps(self._settings)
        )
        source = landing_source(options)
        spark.dataSource.register(source)
        Thread(target=warm_up, args=(spark,), name="warm-up", daemon=True).start()
        every = self._trigger.every
        running = (
            spark.readStream.format(source.name())
            .load()
            .writeStream.queryName(self.name)
            .option("checkpointLocation", checkpoint_folder(self._settings, self.name))
            .trigger(processingTime="0 seconds" if self._trigger.available_now else every)
            .foreachBatch(process)
            .start()
        )
        log.info(
            "started",
            stream=self.stream,
            landing=plan.zone.root,
            contract=plan.contract.version,
            mode="available now" if self._trigger.available_now else f"every {every}",
        )
        return running

    def explain(self, error: Exception) -> LakeproofError:
        """Say why it failed: what a micro-batch raised, what it depends on and is away, or what Spark says."""
        failure = (self._process.failure if self._process else None) or error
        if isinstance(failure, LakeproofError):
            return failure
        try:  # what the query depends on may be away: that is clearer than what two languages say of it
            open_catalog(self._settings).list_namespaces()
            LandingLog(self._settings.state.database, self.stream)
        except UnavailableError as away:
            return away
        return LakeproofError(
            f"The query failed: {first_cause(failure)}",
            f"What was committed stays; run it again to go on. Details: {self._settings.logs / 'spark.log'}",
        )

    @property
    def _prepared(self) -> "_Plan":
        if self._plan is None:
            raise RuntimeError("A query is prepared before it is resumed.")
        return self._plan


@dataclass(frozen=True)
class _Start:
    """Where the query goes on, and for one that takes what is there, where it ends."""

    position: Position
    until: int | None


@dataclass(frozen=True)
class _Plan:
    """What the query needs; `start` is not known before an unfinished micro-batch is finished."""

    contract: Contract
    contracts: ContractLog
    zone: LandingZone
    landing_log: LandingLog
    unfinished: Marker | None
    start: _Start | None


def _prepare(settings: Settings, query: BronzeQuery) -> _Plan:
    """Make what is missing, let the contract be the current one, and see where the tables are."""
    contracts = ContractLog(settings.state.database)
    catalog = open_catalog(settings)
    zone = landing_zone(settings, query.stream)
    _check_tables(catalog, settings, query)
    contract = adopt(catalog, settings, query.stream, contracts)
    check_landing_root(catalog, query.stream, zone)
    landing_log = LandingLog(settings.state.database, query.stream)
    unfinished = standing(catalog, stream_tables(query.stream), query.name).unfinished
    start = None if unfinished else _settle(settings, query, landing_log, zone)
    return _Plan(contract, contracts, zone, landing_log, unfinished, start)


def _check_tables(catalog: "Catalog", settings: Settings, query: BronzeQuery) -> None:
    """Refuse to make a stream's tables where a checkpoint says that there were some."""
    if catalog.table_exists(stream_tables(query.stream).bronze):
        return
    checkpoint = read_checkpoint(settings, query.name)
    if checkpoint and checkpoint.end.seq:
        raise LakeproofError(
            f"The catalog has no table {stream_tables(query.stream).bronze}, but the checkpoint of {query.name} has "
            f"passed {checkpoint.end.seq:,} files.",
            f"Restore the catalog, or check LAKE_CATALOG_URI. Or run `consumer reset {query.stream}`: then everything "
            "that is in the landing zone is read again.",
        )


def _settle(settings: Settings, query: BronzeQuery, landing_log: LandingLog, zone: LandingZone) -> _Start:
    """Find where to go on; and, to take what is there, find that."""
    names = stream_tables(query.stream)
    catalog = open_catalog(settings)
    accounted = standing(catalog, names, query.name).accounted
    position = place_to_go_on(settings, query.name, landing_log, catalog.load_table(names.ledger), accounted)
    if accounted and not zone.is_there():
        raise UnavailableError(
            f"The landing folder {local_path(zone.root)} is not there, but {position.seq:,} files came from it.",
            "Mount its disk, or make the folder.",
        )
    return _Start(position, _discover_all(settings, landing_log, zone) if query.takes_what_is_there else None)


def _discover_all(settings: Settings, landing_log: LandingLog, zone: LandingZone) -> int:
    discovery = Discovery(zone, landing_log, timedelta(seconds=settings.landing.settle_seconds))
    growing = discovery.sweep_until_settled()
    if growing:
        log.warning("left for later: still being written", files=growing)
    return landing_log.head().seq
