"""The query from the landing zone to bronze, the dead letters and the ledger."""

import pickle
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from consumer.bronze.micro_batches import MicroBatches
from consumer.bronze.tasks import warm_up
from consumer.commit.marker import Marker
from consumer.commit.recovery import place_to_go_on, standing
from consumer.sources.files.discovery import Discovery
from consumer.sources.files.stream import LandingOptions, landing_source
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query, checkpoint_folder, read_checkpoint
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.history.apply import adopt
from lakeproof.landing.root import check_landing_root
from lakeproof.landing.zone import LandingZone, landing_zone
from lakeproof.limits import Limits
from lakeproof.settings import Settings
from lakeproof.signals import end_at_once, ending_signals
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog, Position
from lakeproof.state.lease import lease
from lakeproof.storage.local import local_path
from lakeproof.tables.names import stream_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

log = structlog.get_logger()

_IDLE_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class BronzeQuery:
    """What to run.

    Parameters
    ----------
    stream
        Name of the stream; its contract is ``<contracts>/<stream>.yaml``.
    available_now
        Take what has landed by now and end, instead of waiting for more.
    trigger
        Time between two looks for new files, as Spark writes it: ``5 seconds``.
    """

    stream: str
    available_now: bool = False
    trigger: str = "1 second"

    @property
    def name(self) -> str:
        """Name of the query, of its checkpoint and of its markers."""
        return bronze_query(self.stream)


def run_bronze(settings: Settings, query: BronzeQuery, session: Callable[[], SparkSession]) -> None:
    """Run the query until it is done, or until SIGINT or SIGTERM: then finish the micro-batch, and return.

    Parameters
    ----------
    settings
        Where everything is.
    query
        What to run.
    session
        Starts or returns the Spark session. It is called while catalog and landing zone are looked at, since both
        take seconds.

    Raises
    ------
    LakeproofError
        The contract, the storage, the catalog or the query failed, or another consumer runs the stream; what was
        committed stays.
    """
    with lease(settings.landing_log_database, query.stream) as held:
        with ThreadPoolExecutor(1) as pool:
            preparing = pool.submit(_prepare, settings, query)
            spark = session()
        with catalog_errors():
            plan = preparing.result()
        limits = Limits.of(settings)
        process = MicroBatches(query.stream, query.name, plan.zone, plan.landing_log, plan.contracts, held, limits)
        if plan.unfinished:
            try:
                process.finish(spark, plan.unfinished)
            except (Py4JError, PySparkException) as error:
                raise _query_error(error, settings, query.stream) from error
        with catalog_errors():
            start = plan.start or _settle(settings, query, plan.landing_log, plan.zone)
        with _stop_file_on_signals() as stop_file:
            _run(spark, settings, query, plan, start, process, stop_file)


def _run(
    spark: SparkSession,
    settings: Settings,
    query: BronzeQuery,
    plan: "_Plan",
    start: "_Start",
    process: MicroBatches,
    stop_file: Path,
) -> None:
    options = LandingOptions(
        query.stream, start.position, stop_file, start.until, pickled_settings=pickle.dumps(settings)
    )
    source = landing_source(options)
    spark.dataSource.register(source)
    Thread(target=warm_up, args=(spark,), name="warm-up", daemon=True).start()
    running = (
        spark.readStream.format(source.name())
        .load()
        .writeStream.queryName(query.name)
        .option("checkpointLocation", checkpoint_folder(settings, query.name))
        .trigger(processingTime="0 seconds" if query.available_now else query.trigger)
        .foreachBatch(process)
        .start()
    )
    log.info(
        "started",
        stream=query.stream,
        landing=plan.zone.root,
        contract=plan.contract.version,
        mode="available now" if query.available_now else f"every {query.trigger}",
    )
    try:
        _wait(running, stop_file, query.available_now)
    except StreamingQueryException as error:
        raise _query_error(process.failure or error, settings, query.stream) from error
    finally:
        running.stop()
    log.info("stopped", stream=query.stream, micro_batches=process.count, on_signal=stop_file.exists())


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
    contracts = ContractLog(settings.landing_log_database)
    catalog = open_catalog(settings)
    zone = landing_zone(settings, query.stream)
    _check_tables(catalog, settings, query)
    contract = adopt(catalog, settings, query.stream, contracts)
    check_landing_root(catalog, query.stream, zone)
    landing_log = LandingLog(settings.landing_log_database, query.stream)
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
    return _Start(position, _discover_all(settings, landing_log, zone) if query.available_now else None)


def _discover_all(settings: Settings, landing_log: LandingLog, zone: LandingZone) -> int:
    discovery = Discovery(zone, landing_log, timedelta(seconds=settings.settle_seconds))
    growing = discovery.sweep_until_settled()
    if growing:
        log.warning("left for later: still being written", files=growing)
    return landing_log.head().seq


def _wait(query: StreamingQuery, stop_file: Path, available_now: bool) -> None:
    if available_now:
        # With a source that has nothing more to give, this returns once all is committed.
        query.processAllAvailable()
        return
    while not stop_file.exists():
        if query.awaitTermination(1):
            return
    # The source begins no micro-batch any more: only one that has begun is worth waiting for, not the next trigger.
    while query.isActive and not _is_idle(query):
        time.sleep(_IDLE_POLL_SECONDS)
    if not query.isActive:
        query.awaitTermination()


def _is_idle(query: StreamingQuery) -> bool:
    """Whether no trigger is active, and the first one, which may repeat a micro-batch without asking, is over."""
    status = query.status
    return not status["isTriggerActive"] and not status["message"].startswith("Initializing")


@contextmanager
def _stop_file_on_signals() -> Iterator[Path]:
    """Make a signal create a file, which the source looks for before each micro-batch; yield its path.

    A second signal ends the program at once.
    """
    with tempfile.TemporaryDirectory(prefix="lakeproof-") as folder:
        stop_file = Path(folder) / "stop"

        def stop(number: int, _frame: Any) -> None:
            if stop_file.exists():
                shutil.rmtree(folder, ignore_errors=True)
                end_at_once(number)
            stop_file.touch()
            log.info("stopping: finishing the micro-batch")

        with ending_signals(stop):
            yield stop_file


def what_failed(error: Exception) -> str:
    """One line of an error that comes with the stack traces of two languages."""
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
    else:
        text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        # A worker's: its last line that is not indented says what was raised.
        raised = [line for line in text.splitlines() if re.match(r"[A-Za-z_][\w.]*: ", line)]
        if raised:
            return raised[-1].removeprefix("lakeproof.errors.")
    return (text or type(error).__name__).splitlines()[0]


def _query_error(error: Exception, settings: Settings, stream: str) -> LakeproofError:
    if isinstance(error, LakeproofError):
        return error
    try:  # what the query depends on may be away: that is clearer than what two languages say of it
        open_catalog(settings).list_namespaces()
        LandingLog(settings.landing_log_database, stream)
    except UnavailableError as away:
        return away
    return LakeproofError(
        f"The query failed: {what_failed(error)}",
        f"What was committed stays; run it again to go on. Details: {settings.logs_dir / 'spark.log'}",
    )
