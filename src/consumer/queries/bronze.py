"""The query from the landing zone to bronze, the dead letters and the ledger."""

import pickle
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from consumer.bronze.write import warm_up
from consumer.queries.micro_batches import MicroBatches
from consumer.sources.discovery import Discovery
from consumer.sources.landing import LandingOptions, landing_source
from consumer.sources.landing_log import LandingLog
from consumer.sources.lease import lease
from lakeproof.catalog import open_catalog
from lakeproof.contract_log import ContractLog
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError
from lakeproof.evolution import adopt
from lakeproof.settings import Settings
from lakeproof.signals import ending_signals
from lakeproof.storage import open_storage

log = structlog.get_logger()


@dataclass(frozen=True)
class BronzeQuery:
    """What to run.

    Parameters
    ----------
    stream
        Name of the stream; its contract is ``<contracts>/<stream>.yaml``.
    landing
        URI below which its files land.
    available_now
        Take what has landed by now and end, instead of waiting for more.
    trigger
        Time between two looks for new files, as Spark writes it: ``5 seconds``.
    """

    stream: str
    landing: str
    available_now: bool = False
    trigger: str = "1 second"


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
        plan = preparing.result()
        with _stop_file_on_signals() as stop_file:
            _run(spark, settings, query, plan, MicroBatches(settings, plan.contract, plan.landing_log, held), stop_file)


def _run(
    spark: SparkSession, settings: Settings, query: BronzeQuery, plan: "_Plan", process: MicroBatches, stop_file: Path
) -> None:
    source = landing_source(
        LandingOptions(
            query.stream,
            query.landing,
            stop_file,
            plan.until,
            pickled_settings=pickle.dumps(settings),
        )
    )
    spark.dataSource.register(source)
    Thread(target=warm_up, args=(spark,), name="warm-up", daemon=True).start()
    running = (
        spark.readStream.format(source.name())
        .load()
        .writeStream.queryName(f"bronze-{query.stream}")
        .option("checkpointLocation", f"{settings.checkpoints_uri}/bronze-{query.stream}")
        .trigger(processingTime="0 seconds" if query.available_now else query.trigger)
        .foreachBatch(process)
        .start()
    )
    log.info(
        "started",
        stream=query.stream,
        landing=query.landing,
        contract=plan.contract.version,
        mode="available now" if query.available_now else f"every {query.trigger}",
    )
    try:
        process.recover(spark, running.id)
        _wait(running, stop_file, query.available_now)
    except StreamingQueryException as error:
        raise _query_error(process.failure or error, settings) from error
    finally:
        running.stop()
    log.info("stopped", stream=query.stream, micro_batches=process.count, on_signal=stop_file.exists())


@dataclass(frozen=True)
class _Plan:
    contract: Contract
    landing_log: LandingLog
    until: int | None


def _prepare(settings: Settings, query: BronzeQuery) -> _Plan:
    """Make what is missing, let the contract be the current one, and, to take what is there, find it."""
    contracts = ContractLog(settings.landing_log_database)
    contract = adopt(open_catalog(settings), settings, query.stream, contracts)
    landing_log = LandingLog(settings.landing_log_database, query.stream)
    return _Plan(contract, landing_log, _discover_all(settings, query, landing_log) if query.available_now else None)


def _discover_all(settings: Settings, query: BronzeQuery, landing_log: LandingLog) -> int:
    discovery = Discovery(
        open_storage(query.landing, settings.s3), landing_log, timedelta(seconds=settings.settle_seconds)
    )
    growing = discovery.sweep_until_settled()
    if growing:
        log.warning("left for later: still being written", files=growing)
    return landing_log.head()


def _wait(query: StreamingQuery, stop_file: Path, available_now: bool) -> None:
    if not available_now:
        while not stop_file.exists() and not query.awaitTermination(1):
            pass
    # With a source that has nothing more to give, this returns once all is committed.
    query.processAllAvailable()


@contextmanager
def _stop_file_on_signals() -> Iterator[Path]:
    """Make SIGINT and SIGTERM create a file, which the source looks for before each micro-batch; yield its path."""
    with tempfile.TemporaryDirectory(prefix="lakeproof-") as folder:
        stop_file = Path(folder) / "stop"

        def stop(_number: int, _frame: Any) -> None:
            if not stop_file.exists():
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


def _query_error(error: Exception, settings: Settings) -> LakeproofError:
    if isinstance(error, LakeproofError):
        return error
    return LakeproofError(
        f"The query failed: {what_failed(error)}",
        f"What was committed stays; run it again to go on. Details: {settings.logs_dir / 'spark.log'}",
    )
