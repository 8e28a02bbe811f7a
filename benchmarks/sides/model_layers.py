"""Micro-batches of bronze, silver and gold of several sizes, one after another, with a number of cores.

Run as a side: ``python -m benchmarks.sides.model_layers CORES FILES [stream]``. Micro-batches are processed as in the
consumer, by the engine of the layers. With `stream`, the query of bronze processes its micro-batches, and the samples
have the time that it adds to them.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from benchmarks.harness import ROOT
from benchmarks.model_inputs import LARGE, SMALL, Round, cut, large_rounds, linked, small_rounds
from benchmarks.sides.looks import timed_looks
from consumer.iceberg.jvm import java_class
from consumer.iceberg.scan import read
from consumer.layers.base import Layer, complete
from consumer.layers.bronze.land import BronzeLayer
from consumer.layers.registry import layers_of
from consumer.layers.silver.compared import compared_of, kept_scan
from consumer.layers.silver.content import keys
from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from consumer.scope import Scope
from consumer.sources.files.source import FileSource
from consumer.sources.source import Held
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_product
from lakeproof.history.apply import adopt
from lakeproof.settings import Settings, load_settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog
from lakeproof.state.lease import Lease, lease
from lakeproof.tables.names import silver_tables, stream_tables

STREAM, PRODUCT = "events", "user_activity"
ResultT = TypeVar("ResultT")
Work = Callable[[], dict[str, Any]]
"""Processes a micro-batch, and returns the fields of its log line."""
_SHUFFLE = "spark.sql.shuffle.partitions"
_CHECKPOINT = "a checkpoint"
_EMPTY_TASKS = (4, 16, 64, 256)
_OF_TASKS = ("Executor task launch worker", "stdout writer")


@dataclass(frozen=True)
class Used:
    """Time of a piece of work."""

    wall: float
    driver: float  # processor seconds of the driver's Python
    jvm: float
    workers: float

    @classmethod
    def by(cls, work: Callable[[], ResultT]) -> tuple["Used", ResultT]:
        """Do some work, and measure it."""
        before, began = _processor_seconds(), time.monotonic()
        done = work()
        wall, after = time.monotonic() - began, _processor_seconds()
        return cls(wall, *(now - then for now, then in zip(after, before, strict=True))), done


class Pipeline:
    """A lake with one stream, whose layers run one at a time."""

    def __init__(self, settings: Settings, spark: SparkSession) -> None:
        self._settings, self._spark = settings, spark
        self._catalog, self._log = open_catalog(settings), LandingLog(settings.state.database, STREAM)
        self._contracts = ContractLog(settings.state.database)
        adopt(self._catalog, settings, STREAM, self._contracts)
        self._numbers = itertools.count()

    def of_bronze(self, held: Lease) -> Work:
        """Discover landed files; return a function that processes them."""
        source = FileSource(self._settings, STREAM, "bronze-events", available_now=True)
        source.prepare(self._catalog)
        start = self._log.head()
        source.resume(self._catalog.load_table(stream_tables(STREAM).ledger), None if start.seq == 0 else str(start))
        end = self._log.head()
        contract = self._contracts.current(STREAM)
        if contract is None:
            raise AssertionError(f"{STREAM} has no contract.")
        parts = source.held_between(str(start), str(end), lambda: ())
        layer = BronzeLayer(self._settings, STREAM, source)
        work = layer.landed(Held(parts, str(start), str(end), contract), _CHECKPOINT, next(self._numbers))
        return lambda: complete(layer, self._spark, work, held)

    def layers(self) -> list[Layer[Any]]:
        """Return silver and gold, with their tables."""
        contract = load_contract(self._settings.contracts, STREAM)
        product = load_product(ROOT / "gold", PRODUCT, lambda _: contract)
        found = list(layers_of(Scope(self._settings, {STREAM: contract}, [STREAM], [product])))
        for layer in found:
            layer.prepare(self._catalog)
            layer.open(self._spark)
        return found

    def of_layer(self, layer: Layer[Any], held: Lease) -> Work:
        """Return a function that processes all pending rows of a layer."""

        def work() -> dict[str, Any]:
            found = layer.next(self._spark)
            if found is None:
                raise AssertionError(f"There is nothing for {layer.name}.")
            return complete(layer, self._spark, found, held)

        return work

    def look_up(self) -> dict[str, float]:
        """Look up keys in the rows of silver, as tasks do; here, no row has one of the keys."""
        contract = load_contract(self._settings.contracts, STREAM)
        wanted, rows = pa.array([b"a key"] * 2, pa.binary()), 0
        scan = kept_scan(self._catalog, contract, silver_tables(STREAM).kept, 0, None)
        began = time.process_time()
        for batch in read(scan):
            compared_of(batch.filter(pc.is_in(keys(batch, contract), value_set=wanted)), contract)
            rows += batch.num_rows
        return {"seconds": time.process_time() - began, "rows": rows}


def main() -> None:
    """Run rounds of all sizes; print samples of each layer."""
    cores, files = int(sys.argv[1]), int(sys.argv[2])
    os.environ["LAKE_SPARK_MASTER"] = f"local[{cores}]"
    os.environ["LAKE_SETTLE_SECONDS"] = "0"
    # One micro-batch per round, regardless of its size.
    os.environ["LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH"] = os.environ["LAKE_MAX_BYTES_PER_MICRO_BATCH"] = str(1 << 40)
    settings = load_settings()
    spark = start_session(settings, "benchmark: model", PLANNING_ONLY)
    spark.conf.set(_SHUFFLE, "4")
    backlogs = {LARGE: cut(Path(os.environ["MODEL_LARGE"])), SMALL: cut(Path(os.environ["MODEL_SMALL"]))}
    samples: list[dict[str, Any]] = []
    if "stream" in sys.argv:
        samples += list(_triggers(settings, spark, backlogs[SMALL], files))
        samples += list(_empty_jobs(spark))
    else:
        samples += list(_rounds(settings, spark, backlogs, files))
    spark.stop()
    print(json.dumps({"samples": [{"cores": cores} | sample for sample in samples]}))


def _rounds(
    settings: Settings, spark: SparkSession, backlogs: Mapping[int, Iterator[Path]], files: int
) -> Iterator[dict[str, Any]]:
    pipeline = Pipeline(settings, spark)
    layers = pipeline.layers()
    landing, remembered = Path(settings.landing.uri.removeprefix("file://")) / STREAM, 0
    with lease(settings.state.database, STREAM) as held:
        for number, each in enumerate([Round(8, LARGE), Round(8, SMALL), *small_rounds(files), *large_rounds(files)]):
            linked(backlogs[each.records], landing / f"{number:03d}", each.files)
            used, totals = Used.by(pipeline.of_bronze(held))
            units = {"files": each.files, "rows": totals["bronze"] + totals["dead_letters"], "bytes": totals["bytes"]}
            found = [("bronze", used, totals)]
            found += [(layer.name.partition("-")[0], *Used.by(pipeline.of_layer(layer, held))) for layer in layers]
            for layer_name, took, said in found:
                if number > 1:  # the first rounds load classes and start workers
                    yield {
                        "layer": layer_name,
                        **units,
                        "remembered": remembered,
                        "held_out": each.held_out,
                        **took.__dict__,
                        "commit": said["phases"]["commit"],
                        "arrow_peak": pa.default_memory_pool().max_memory() or 0,
                    }
            remembered += totals["bronze"]
            if number > 1 and each.records == LARGE:
                yield {"layer": "look up", "remembered": remembered, "held_out": each.held_out, **pipeline.look_up()}


def _triggers(settings: Settings, spark: SparkSession, backlog: Iterator[Path], files: int) -> Iterator[dict[str, Any]]:
    """Measure the time that a query adds to a micro-batch."""
    landing = Path(settings.landing.uri.removeprefix("file://")) / STREAM
    for number, each in enumerate([Round(8, SMALL), *small_rounds(files)]):
        linked(backlog, landing / f"{number:03d}", each.files)
        looks = list[float]()
        with capture_logs() as logged, timed_looks(looks.append):
            query = BronzeQuery(settings, STREAM, Trigger(available_now=True))
            run_queries(settings, [query], lambda: spark, available_now=True)
        took = [line for line in logged if line["event"] == "micro-batch"]
        if not len(took) == len(looks) == 1:
            raise AssertionError(f"{len(took)} micro-batches in {len(looks)} looks for {each}.")
        if number:
            yield {
                "layer": "trigger",
                "files": each.files,
                "held_out": each.held_out,
                "wall": looks[0] - took[0]["seconds"],
            }


def _empty_jobs(spark: SparkSession) -> Iterator[dict[str, Any]]:
    """Time jobs whose tasks do nothing."""
    context = spark.sparkContext
    for turn in range(3):
        for tasks in _EMPTY_TASKS:
            before = _executor_seconds(spark)
            used, _ = Used.by(lambda tasks=tasks: context.parallelize(range(tasks), tasks).map(_same).collect())
            executor = max(_executor_seconds(spark) - before, 0.0)
            if turn:
                yield {"layer": "schedule", "tasks": tasks, **used.__dict__, "executor": executor}


def _executor_seconds(spark: SparkSession) -> float:
    """Return processor seconds so far of the JVM's threads that run tasks; on a cluster, they are in another JVM."""
    threads = java_class(spark, "java.lang.management.ManagementFactory").getThreadMXBean()
    found = 0
    for number in threads.getAllThreadIds():
        thread = threads.getThreadInfo(number)
        if thread is not None and thread.getThreadName().startswith(_OF_TASKS):
            found += threads.getThreadCpuTime(number)
    return found / 1e9


def _same(item: int) -> int:
    return item


def _processor_seconds() -> tuple[float, float, float]:
    """Return processor seconds so far of this process, of the JVM, and of the workers."""
    own = psutil.Process()
    mine = own.cpu_times()
    jvm, workers = 0.0, 0.0
    for child in own.children(recursive=True):
        try:
            used = child.cpu_times()
            if "java" in Path(child.exe()).name:
                jvm += used.user + used.system
            else:
                workers += used.user + used.system + used.children_user + used.children_system
        except psutil.Error:
            continue
    return mine.user + mine.system, jvm, workers


if __name__ == "__main__":
    main()
